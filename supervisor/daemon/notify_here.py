"""Tells a person who is at this machine: the bell and the status line of the terminals that are attached to our tmux server, the bell of a
screen that looks at the crew, and the desktop. A person's own tmux is never touched: their bell is that of the terminal in which one of
these is open.

Texts are of agents in part: the status line gets them as `agents.tmux.quoting.said_text`, the desktop as an argument that is no option,
without marks of its markup and without the escapes that `notify-send` reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterable, Mapping

from agents.tmux import Tmux
from supervisor.core import notify
from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.notify import Receiver
from supervisor.host import terminals
from supervisor.host.clock import Clock

SHOWN_S = 10.0
"""On a status line."""
DESKTOP_S = 10.0
"""For the program that shows a notification."""
WATCHED_S = 3.0
"""So long after its last look a screen is taken to be open."""


class Here:
    """Of one supervisor. `post` is as `notify_post.post`."""

    def __init__(self, tmux: Tmux, clock: Clock, *, desktop: bool) -> None:
        self._tmux, self._clock, self._desktop = tmux, clock, desktop
        self._watched_from = -WATCHED_S
        self._number, self._line = 0, ""

    def told(self, *, watches: bool) -> dict[str, object]:
        """How often the bell was rung, and with what words the last time: a screen that looks again rings when the number has grown.
        `watches`: who asks is one, and goes on looking."""
        if watches:
            self._watched_from = self._clock.monotonic()
        return {"number": self._number, "line": self._line}

    async def is_anybody_there(self) -> bool:
        """Whether there is a place where something can be told."""
        if self._desktop or self._clock.monotonic() - self._watched_from < WATCHED_S:
            return True
        return bool(await self._terminals())

    async def post(self, receivers: Iterable[Receiver], title: str, body: str, environ: Mapping[str, str]) -> dict[str, str]:
        """Tell it by each of them. Returns by name why it could not be told, empty when it was, or nobody was there."""
        answers, line = dict[str, str](), notify.shown(title, body)
        for name in (receiver.name for receiver in receivers):
            match name:
                case "bell":
                    self._number, self._line = self._number + 1, line
                    await asyncio.to_thread(_ring, await self._terminals())
                    answers[name] = ""
                case "tmux":
                    answers[name] = await self._show(line)
                case _:
                    answers[name] = await on_desktop(title, body, environ)
        return answers

    async def _terminals(self) -> list[str]:
        try:
            return await asyncio.to_thread(self._tmux.terminals)
        except NightcrewError:  # no server, or one that does not answer: nobody sees it then
            return []

    async def _show(self, line: str) -> str:
        for terminal in await self._terminals():
            with contextlib.suppress(NightcrewError):  # it went away meanwhile
                await asyncio.to_thread(self._tmux.say, terminal, line, SHOWN_S)
        return ""


def _ring(paths: Iterable[str]) -> None:
    for path in paths:
        terminals.ring(path)


def desktop_argv(title: str, body: str, find: Callable[[str], str | None]) -> list[str]:
    """The command that shows a notification, empty where there is none."""
    if program := find("notify-send"):
        marked = html.escape(body, quote=False).replace("\\", "\\\\")  # it reads C's escapes in the body, and a desktop its markup
        return [program, "--app-name=nightcrew", "--", title, marked]
    if program := find("terminal-notifier"):
        return [program, "-title", title, "-message", f"\u200b{body}", "-group", "nightcrew"]  # a first "[" or "-" would be no text
    if program := find("osascript"):
        script = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
        return [program, *(word for line in script for word in ("-e", line)), title, body]
    return []


async def on_desktop(title: str, body: str, environ: Mapping[str, str]) -> str:
    """Show it on the desktop that `environ` names. Why it could not be shown, or nothing."""
    both = {**os.environ, **environ}
    argv = desktop_argv(title, body, functools.partial(shutil.which, path=both.get("PATH")))
    if not argv:
        return "none of notify-send, terminal-notifier and osascript is installed"
    try:
        child = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=both)
    except OSError as error:
        return one_line(str(error))
    try:
        said = (await asyncio.wait_for(child.communicate(), DESKTOP_S))[1]
    except TimeoutError:
        return f"{argv[0]} did not end in {DESKTOP_S:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended, as it should
            child.kill()
        await child.wait()
    return "" if child.returncode == 0 else one_line(said.decode("utf-8", "replace").strip())[:200] or f"it ended with {child.returncode}"
