"""Tell a person what matters: look, decide, and hand messages over."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import json
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.config import user
from supervisor.contract import Supervisor
from supervisor.features.notify import notify_environment, post
from supervisor.features.notify import rules as notify_rules
from supervisor.features.notify.rules import DESKTOP, Kind, Known, Message, Notice, Receiver, Terms
from supervisor.gateway.provider_keys import Redactor
from supervisor.host import files, processes
from supervisor.host.clock import Clock
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError, NotRunning, ToolMissing, one_line
from supervisor.kernel.format import duration
from supervisor.server import requests
from supervisor.server.gateway import GatewayKeeper
from supervisor.server.loop import Loop
from supervisor.server.wakeups import was_set
from supervisor.store import journal

if TYPE_CHECKING:
    from agents.tmux import Tmux
    from supervisor.host.clock import Clock
    from supervisor.host.paths import Home
    from supervisor.server.loop import Loop
    from supervisor.store.ledger import Ledger


# Notify here
# -----------
# Tells a person who is at this machine: the bell and the status line of the terminals that are attached to our tmux server, the
# bell of a screen that looks at the crew, and the desktop. A person's own tmux is never touched: their bell is that of the terminal
# in which one of these is open.
#
# Texts are of agents in part: the status line gets them as `agents.tmux.said_text`, the desktop as an argument that is no
# option, without marks of its markup and without the escapes that `notify-send` reads.


SHOWN_S = 10.0
"""On a status line."""
DESKTOP_S = 10.0
"""For the program that shows a notification."""
WATCHED_S = 3.0
"""So long after its last look a screen is taken to be open."""


class Here:
    """Of one supervisor. `post` is as `post.post`."""

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
        answers, line = dict[str, str](), notify_rules.shown(title, body)
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
        processes.ring(path)


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
        return f"{argv[0]} did not end in {duration(DESKTOP_S)}"
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended, as it should
            child.kill()
        await child.wait()
    return "" if child.returncode == 0 else one_line(said.decode("utf-8", "replace").strip())[:200] or f"it ended with {child.returncode}"


# Notifying
# ---------
# Tells a person what matters: looks at the journal, at who waits for an answer, at the gateway and at the caps, every second and as
# soon as an agent says that it needs somebody, and sends what `rules` says is due: to receivers elsewhere by `post`,
# and on this machine, while somebody is there, by `notify_here`. What each of both knows is in a file of its own, which is written
# before anything is sent.


LOOK_S = 1.0
Without = Callable[[Loop, str], Awaitable[bool]]
LEAVE_S = 5.0
"""So long a supervisor that leaves waits for a message that is being sent."""
ROWS = 1000
"""Of the journal at one look."""
KEPT_MAX = 2**22


Post = Callable[[Iterable[Receiver], str, str, Mapping[str, str]], Awaitable[dict[str, str]]]
"""As `post.post`."""


def kept(file: Path) -> Known | None:
    """What the last supervisor knew; None when there is no such file, or one that nobody of us wrote."""
    try:
        data = file.read_bytes()
        shape = json.loads(data) if len(data) <= KEPT_MAX else {}
        return codec.check(Known, shape, whole=False) if "cursor" in shape else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it looks, and whom it tells that a message was given up."""

    ledger: Ledger
    goes_on: Callable[[], Awaitable[list[Notice]]]
    """What is so at this moment."""
    say: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where addresses of receivers are."""
    post: Post | None = None
    """Who sends; None: `post.post`."""


class Notifying:
    """One supervisor's messages. `look` belongs to the loop's thread."""

    def __init__(self, file: Path, terms: Terms, clock: Clock, sources: Sources) -> None:
        self._file = file
        self._terms = terms
        self._clock = clock
        self._sources = sources
        found = kept(file)
        if found is not None and terms.pace.tries == 1:  # what was being shown when a supervisor was killed is no news any more
            found = replace(found, outbox=())
        self._known = found or Known(journal.newest_entry(sources.ledger.db))  # whoever begins to listen is not told the history
        if found is None:
            self._keep(self._known)

    async def look(self) -> bool:
        """Hear what is new, and send what is due. Whether something was heard. Raises LedgerError, DiskFull: nothing is lost then."""
        now = self._clock.wall()
        rows = list(journal.after(self._sources.ledger.db, self._known.cursor, ROWS))
        happened = [notice for row in rows if (notice := self._of_row(row)) is not None]
        goes_on = await self._sources.goes_on()
        known = notify_rules.hear(self._known, happened, goes_on, now, self._terms)
        shown = time.localtime(now)
        known = notify_rules.pack(known, now, 60 * shown.tm_hour + shown.tm_min, self._terms)
        heard = known is not self._known
        self._move(known, rows[-1]["seq"] if rows else known.cursor)
        while (message := notify_rules.due(self._known, self._clock.wall())) is not None:
            await self._send(message)
        return heard

    def _move(self, known: Known, cursor: int) -> None:
        """A look that heard nothing is not written down: the next supervisor reads those rows once more, and hears nothing either."""
        heard = known is not self._known
        known = replace(known, cursor=cursor)
        if heard:
            self._keep(known)
        self._known = known

    def _keep(self, known: Known) -> None:
        files.atomic_write(self._file, codec.dumps(known).encode(), durable=False)
        self._known = known

    def _of_row(self, row: dict[str, Any]) -> Notice | None:
        data = {name: _without_secrets(value) if isinstance(value, str) else value for name, value in row["data"].items()}
        return notify_rules.of_journal(row["event"], row["task"], data, row["at"], text=self._terms.text)

    async def _send(self, message: Message) -> None:
        left = [receiver for receiver in self._terms.receivers if receiver.name in message.left]
        self._keep(notify_rules.sending(self._known, message.number, self._clock.wall()))
        answers = await (self._sources.post or post.post)(left, message.title, message.body, self._sources.environ)
        failed, now = {name: why for name, why in answers.items() if why}, self._clock.wall()
        known, given_up = notify_rules.sent(self._known, message.number, failed, now, self._terms.pace.tries)
        self._keep(known)
        outcome = "given up" if given_up else "sent" if not failed else "tried"
        data = {"what": message.title, self._counted: len(left), "failed": sorted(failed), "outcome": outcome}
        data |= {"after_s": round(max(0.0, now - message.at), 3)} if message.at else {}
        self._sources.ledger.journal(None, None, "notified", data)
        if given_up:
            why = "; ".join(f"{name}: {why}" for name, why in failed.items())
            self._sources.say(f"a message was given up ({why}): nightcrew notify test")

    @property
    def _counted(self) -> str:
        return "here" if self._sources.post is not None else "urls"


def _without_secrets(text: str) -> str:
    """To be done before text is cut: half a secret is not known as one."""
    return Redactor().clean(text)


async def goes_on(loop: Loop, terms: Terms, *, without: Without | None = None) -> list[Notice]:
    """Who waits for a person, what a person has to mend for the gateway, and which cap is near. `without`: whether somebody looks at the
    agent that asks, and need not be told."""
    now = loop.clock.wall()
    found = notify_rules.cap_near("cost_per_night", loop.crew.traffic.night, now)
    for night in loop.crew.nights.values():
        if night.terms.cost_max:
            found += notify_rules.cap_near(f"cost_max of the night {night.run}", night.spent.usd / night.terms.cost_max, now)
    if Kind.NEEDS_PERSON in terms.on:
        who = await requests.handle_needs(loop)
        for mail in who["mail"]:
            subject = _without_secrets(mail["subject"]) if terms.text else mail["id"]
            found.append(notify_rules.needs_person(mail["from"], f"asks by mail: {subject}", now))
        for one in who["agents"]:
            if without is None or not await without(loop, str(one["task"])):
                asks, detail = str(one["state"]).replace("_", " "), _without_secrets(one["detail"]) if terms.text else ""
                found.append(notify_rules.needs_person(one["task"], f"{asks}: {detail}" if detail else asks, one["since"]))
        found += [notify_rules.needs_person(one["task"], one["detail"], one["since"]) for one in who["choices"]]
    keeper = loop.services.find(GatewayKeeper)
    word = keeper.word() if keeper is not None else None
    for trouble in word.troubles if word is not None else ():
        found.append(Notice(Kind.BREAKER_OPEN, f"gateway {trouble}", notify_rules.line(_without_secrets(trouble)), now))
    return found


async def looked_at(loop: Loop, task: str) -> bool:
    """Whether somebody is attached to the pane of a task's agent."""
    known = loop.crew.tasks.get(task)
    return known is not None and await requests.is_attended(loop, (task, known.epoch))


@dataclass(frozen=True, slots=True)
class Receivers:
    """The receivers that the settings of this supervisor name."""

    here: Here
    tried: Sequence[Receiver]
    environ: Mapping[str, str]


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Send messages inside: to the receivers that the settings name, and to a person who is here."""
    loop, home, file = supervisor.loop, supervisor.home, supervisor.settings_file
    away, here = user.load_notify(file), user.load_notify_here(file)
    environ = notify_environment.take(home, away, here)
    place = Here(supervisor.tmux, loop.clock, desktop=DESKTOP in here.names)
    tried = (*away.receivers, *(one for one in here.receivers if one.name == DESKTOP))
    loop.services.put(Receivers(place, tried, environ))
    notifying, over = list(_notifying(loop, home, away, here, place, environ)), asyncio.Event()
    if not notifying:
        yield
        return
    task = asyncio.create_task(_run(loop, notifying, over))
    try:
        yield
    finally:
        over.set()
        loop.agents.asked.set()
        await asyncio.wait([task], timeout=LEAVE_S)
        task.cancel()
        await asyncio.wait([task])


Look = Callable[[], Awaitable[bool]]
"""Looks, where it is worth it. Whether something was heard that soon is due."""


def _notifying(loop: Loop, home: Home, away: Terms, here: Terms, place: Here, environ: Mapping[str, str]) -> Iterator[Look]:
    if here.receivers:
        sources = Sources(loop.ledger, lambda: goes_on(loop, here, without=looked_at), loop.alert, environ, place.post)
        yield functools.partial(_look_here, place, Notifying(home.notices_here, here, loop.clock, sources))
    else:
        home.notices_here.unlink(missing_ok=True)
    if not away.receivers:
        home.notices.unlink(missing_ok=True)
        return
    try:
        post.require()
    except ToolMissing as error:
        loop.alert(error.line())
        return
    yield Notifying(home.notices, away, loop.clock, Sources(loop.ledger, lambda: goes_on(loop, away), loop.alert, environ)).look


async def _look_here(place: Here, notifying: Notifying) -> bool:
    return await notifying.look() if await place.is_anybody_there() else False


async def _run(loop: Loop, looks: Sequence[Look], over: asyncio.Event) -> None:
    soon = False
    while not over.is_set():
        await was_set(loop.agents.asked, notify_rules.ASKED_S if soon else LOOK_S)
        loop.agents.asked.clear()
        soon = False
        for look in looks if loop.ready else ():
            try:
                soon = await look() or soon
            except NightcrewError as error:
                loop.alert(f"messages wait: {error.line()}")


# Notify test
# -----------
# A message to every receiver, sent as any other is: by this supervisor, with its settings and its environment.


async def handle(loop: Loop) -> dict[str, Any]:
    """`answers`: by the name of each receiver why it has not taken it, empty when it has. Raises ToolMissing without the extra, NotRunning
    before it is ready."""
    if not loop.ready:
        raise NotRunning("the supervisor is still beginning", hint="nightcrew status")
    receivers = loop.services.get(Receivers)
    return {"answers": await post.try_out(receivers.tried, receivers.environ)}


def told(loop: Loop, watches: bool) -> dict[str, Any]:
    """Return `told`: what a person who is here was told last. With `watches` a screen asks that rings when its number has grown."""
    return {"told": loop.services.get(Receivers).here.told(watches=watches)}
