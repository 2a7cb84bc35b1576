"""Hands a message to its receivers, by apprise, in a process of its own: `python -m supervisor.features.notify.post` reads one from its
standard input. Importing apprise takes 0.3 s, and a receiver can be as slow as it likes: the supervisor waits for neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping
from pathlib import Path

from supervisor.features.notify.rules import DESKTOP, Receiver
from supervisor.gateway.provider_keys import Redactor
from supervisor.host import secrets
from supervisor.kernel.errors import NightcrewError, NotFound, ToolMissing, one_line
from supervisor.kernel.format import duration

POST_S = 60.0
"""For all receivers of a message together."""
ANSWER_S = 15.0
"""So long a receiver may take to connect, and to answer."""
_WHY_MAX = 200


def require() -> None:
    """Raises ToolMissing without the extra."""
    if importlib.util.find_spec("apprise") is None:
        raise ToolMissing(
            "no message can be sent",
            why="nightcrew's extra notify is not installed",
            hint="install nightcrew with it, as in: uv tool install 'nightcrew[notify]', or in its environment: pip install apprise",
        )


async def post(receivers: Iterable[Receiver], title: str, body: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Send a message to each, whose address may be in `environ`.

    Returns by name why one has not taken it, empty when it has. Takes POST_S at most. Raises ToolMissing.
    """
    require()
    answers: dict[str, str] = {}
    addresses: dict[str, str] = {}
    for receiver in receivers:
        try:
            addresses[receiver.name] = address(receiver, environ)
        except NightcrewError as error:
            answers[receiver.name] = error.line()
    return {**answers, **(await _posted(addresses, title, body) if addresses else {})}


def address(receiver: Receiver, environ: Mapping[str, str]) -> str:
    """What apprise is given. Raises NotFound, and Refused for a file that others can read."""
    kind, _, value = receiver.source.partition(":")
    if receiver.name != receiver.source:
        return receiver.source
    if kind == "file":
        return secrets.key(Path(value).expanduser())
    if not environ.get(value, "").strip():
        raise NotFound("no address for messages", on=receiver.name, why="the variable is not set where nightcrew was started")
    return environ[value].strip()


async def try_out(receivers: Iterable[Receiver], environ: Mapping[str, str]) -> dict[str, str]:
    """Send each a message that says nothing, as `post` does; the desktop is among them where it is told."""
    from supervisor.features.notify import service as notify_service

    away, said = [one for one in receivers if one.name != DESKTOP], ("nightcrew: a test", "nightcrew can reach you.")
    answers = await post(away, *said, environ) if away else {}
    desktop = [one.name for one in receivers if one.name == DESKTOP]
    return {**answers, **{name: await notify_service.on_desktop(*said, environ) for name in desktop}}


async def _posted(addresses: dict[str, str], title: str, body: str) -> dict[str, str]:
    asked = json.dumps({"addresses": addresses, "title": title, "body": body}).encode()
    argv = [sys.executable, "-I", "-m", "supervisor.features.notify.post"]
    try:
        child = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    except OSError as error:
        return dict.fromkeys(addresses, str(error))
    try:
        answers: dict[str, str] = json.loads((await asyncio.wait_for(child.communicate(asked), POST_S))[0])
    except TimeoutError:
        return dict.fromkeys(addresses, f"nobody answered in {duration(POST_S)}")
    except ValueError:
        return dict.fromkeys(addresses, f"the process that sends it ended with {child.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended, as it should
            child.kill()
        await child.wait()
    return answers


# In the process of its own -----------------------------------------------------------------------------------------------------------


class _Warnings(logging.Handler):
    """Keeps the first thing that apprise complained of."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _send(url: str, title: str, body: str) -> str:
    """Why a receiver has not taken it; empty: it has."""
    import apprise

    heard = _Warnings(logging.WARNING)
    logger = logging.getLogger("apprise")
    logger.handlers, logger.propagate = [heard], False
    try:
        plugin = apprise.Apprise.instantiate(url)
        if plugin is None:
            return "apprise does not know such an address"
        plugin.socket_connect_timeout = plugin.socket_read_timeout = ANSWER_S
        plugin.overflow_mode = apprise.OverflowMode.TRUNCATE
        taken = plugin.notify(body=body, title=title, body_format=apprise.NotifyFormat.TEXT)
    except Exception as error:  # noqa: BLE001 - a hundred plug-ins by others: whatever one raises, the other receivers get theirs
        return without_address(f"{type(error).__name__}: {error}", url)
    return "" if taken else without_address(heard.first or "it did not take it", url)


def without_address(why: str, url: str) -> str:
    """Without any part of the address, which is as good as a password."""
    redactor = Redactor()
    for part in (url, *re.split(r"[/@:?&=]", url)):
        redactor.add(part)
    return one_line(redactor.clean(why))[:_WHY_MAX]


def main() -> None:
    """Read a message, send it, print what became of it."""
    asked = json.load(sys.stdin)
    print(json.dumps({name: _send(url, asked["title"], asked["body"]) for name, url in asked["addresses"].items()}))


if __name__ == "__main__":
    main()
