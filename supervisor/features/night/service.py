"""Nights: kept awake, tasks set aside, and the report when a night ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from supervisor.features.night import rows as night_rows
from supervisor.host.clock import Clock
from supervisor.host.paths import Home, home
from supervisor.kernel.crew import Crew, Task
from supervisor.kernel.decision import MoveNight, is_held_back
from supervisor.kernel.errors import one_line
from supervisor.kernel.events import Event, NightBegan, PersonNeeded, Question
from supervisor.kernel.format import clock
from supervisor.kernel.night import Night, NightState
from supervisor.kernel.states import AttemptState
from supervisor.server import requests
from supervisor.store import journal, rows
from supervisor.store.ledger import Ledger

if TYPE_CHECKING:
    from supervisor.contract import Supervisor
    from supervisor.server.loop import Loop


# Nights
# ------
# Nights between the ledger, the gateway and the core: what is read at start, what the gateway says, what is done at the end.


REPORTED_S = 86400.0
"""A night that ended longer ago gets no report by itself any more."""


def begins(ledger: Ledger, run: str = "") -> Iterator[NightBegan]:
    """Return the nights that have not ended: all of them, or the one that a run is."""
    for row in ledger.of(night_rows.Nights).open():
        if run in ("", row.run):
            until = clock(row.terms.until) if row.terms.until else ""
            yield NightBegan(Night(row.run, row.terms, row.state, row.why, until))


def unreported(ledger: Ledger, home: Home, wall: float) -> list[str]:
    """Nights of the last day that have ended and have no report: the supervisor was killed in between."""
    recent = [row.run for row in night_rows.every(ledger.db) if row.state is NightState.ENDED and wall - (row.ended or 0.0) < REPORTED_S]
    return [run for run in recent if not (home.root / "runs" / run / "night.json").exists()]


# Night report
# ------------
# The morning report is written when a night ends, by a process of its own: the loop never waits for git, and a report that fails
# ends nothing. What it says goes where the supervisor's own words go.


WRITE_S = 120.0
"""300 tasks take 2 s; git at a slow disk takes longer."""
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "NIGHTCREW_CONFIG")


def write(run: str, where: Home | None = None, alert: Callable[[str], None] = lambda _: None) -> None:
    """Begin to write night.html, night.md and night.json of a run into its directory, and return at once. When no process can be started
    `alert` is told; whoever asks for the report later gets it all the same."""
    place = (where or home()).root
    env = {name: os.environ[name] for name in _PASSED if name in os.environ} | {"NIGHTCREW_HOME": str(place)}
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "night", "report", run, "--no-open"]
    try:
        writer = subprocess.Popen(argv, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        alert(f"the report of {run} was not written: {error.strerror}; next: nightcrew night report {run}")
        return
    threading.Thread(target=_await, args=(writer,), name="night-report", daemon=True).start()


def _await(writer: subprocess.Popen[bytes]) -> None:
    try:
        writer.wait(WRITE_S)
    except subprocess.TimeoutExpired:
        writer.kill()
        writer.wait()


# Keeping awake
# -------------
# Keeps the machine awake while a night has something left to do, where it can and `night.inhibit_sleep` does not say otherwise.


AGAIN_S = 60.0
"""What keeps it awake can be refused or ended by others: then it is tried again after this."""


class KeepingAwake:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, home: Home, clock: Clock, alert: Callable[[str], None], *, wanted: bool) -> None:
        self._clock = clock
        self._alert = alert
        self._wanted = wanted
        self._inhibitor = SleepInhibitor(home.root / "awake.log")
        self._holds = False
        self._again_at = 0.0

    def step(self, crew: Crew) -> None:
        """Hold or release, as the nights of now ask for."""
        run = next(filter(lambda run: _has_work(crew, run), crew.nights), None) if self._wanted else None
        try:
            if run is None:
                self.release()
            elif not self._holds and self._clock.monotonic() >= self._again_at:
                self._inhibitor.hold(f"work of the night {run} is under way")
                self._holds = True
            trouble = self._inhibitor.trouble() if self._holds else ""
        except OSError as error:
            trouble = error.strerror or str(error)
        if trouble:
            self.release()
            self._again_at = self._clock.monotonic() + AGAIN_S
            self._alert(f"the machine may fall asleep in the night: {trouble}")

    def release(self) -> None:
        """Let the machine sleep. Idempotent."""
        if self._holds:
            self._holds = False
            self._inhibitor.release()


def _has_work(crew: Crew, run: str) -> bool:
    """Whether something of a night can go on without a person."""
    return any(not is_held_back(crew.tasks[name]) for name in crew.by_night.get(run, ()))


# Setting aside
# -------------
# Sets tasks of a night aside that need a person while nobody is there. By day nothing is set aside.
#
# Who waits for a person is what `nightcrew status` shows as such. An agent in whose pane somebody is attached is left to them.


PATIENCE_S = 60.0
"""So long a person has to answer who is there after all, or who let it go on."""
EVERY_S = 2.0
QUESTION_MAX = 200
Key = tuple[str, int]


class Seen(NamedTuple):
    """How agents and people are seen."""

    who_asks: Callable[[], Awaitable[list[Mapping[str, Any]]]]
    """Return the agents that wait for a person: `task`, `state`, `detail` and `since` (wall-clock seconds)."""
    attended: Callable[[Key], Awaitable[bool]]
    """Return whether a person is attached to the pane of an attempt."""


class SettingAside:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, ledger: Ledger, clock: Clock, tell: Callable[[Event], None], ask_max: int, seen: Seen) -> None:
        self._ledger = ledger
        self._seen = seen
        self._clock = clock
        self._tell = tell
        self._ask_max = ask_max
        self._looked = -EVERY_S
        self._look: asyncio.Task[None] | None = None
        self._stood: dict[Key, float] = {}
        """When each was last seen to stand still, monotonic seconds."""

    def step(self, crew: Crew) -> None:
        """Look, unless no night goes on, the look before is still under way or was a moment ago."""
        now = self._clock.monotonic()
        busy = self._look is not None and not self._look.done()
        if not crew.nights or crew.stopped or busy or now - self._looked < EVERY_S:
            return
        self._looked = now
        stand = {
            (task.id, task.epoch): now for task in crew.living.values() if task.attempt is not None and task.attempt.paused is not None
        }
        self._stood = {key: at for key, at in self._stood.items() if now - at < PATIENCE_S} | stand
        self._look = asyncio.get_running_loop().create_task(self._ask(crew))

    async def _ask(self, crew: Crew) -> None:
        for one in await self._seen.who_asks():
            task = crew.tasks.get(str(one["task"]))
            if task is None or not _may_be_set_aside(crew, task) or self._clock.wall() - one["since"] < PATIENCE_S:
                continue
            key = task.id, task.epoch
            if key not in self._stood and not await self._seen.attended(key):
                self._tell(PersonNeeded(*key, self._question(task.id, str(one["detail"] or one["state"]))))

    def _question(self, task: str, text: str) -> Question:
        return Question(one_line(text)[:QUESTION_MAX], journal.times_set_aside(self._ledger.db, task), self._ask_max)

    def denied(self, crew: Crew, task: str, epoch: int, denials: list[str]) -> Question | None:
        """What a person should say of an attempt of a night that failed for what it was not allowed, when that was so in the attempt
        before; else None."""
        known = crew.tasks.get(task)
        if not denials or known is None or known.night not in crew.nights:
            return None
        before = (rows.result(self._ledger.db, task, epoch - 1) or {}).get("agent") or {}
        if before.get("denials") != denials:
            return None
        return self._question(task, f"it is not allowed to use {', '.join(denials)}")


def _may_be_set_aside(crew: Crew, task: Task) -> bool:
    attempt = task.attempt
    return task.night in crew.nights and attempt is not None and attempt.state is AttemptState.RUNNING and attempt.paused is None


# Nights
# ------
# The service: it sets tasks aside, keeps the machine awake, and writes the reports that a killed supervisor left out.


class Nights:
    """Looks after the nights of one supervisor. Belongs to the loop's thread."""

    def __init__(self, loop: Loop, home: Home) -> None:
        async def who_asks() -> list[Mapping[str, Any]]:
            return list((await requests.handle_needs(loop))["agents"])

        seen = Seen(who_asks, functools.partial(requests.is_attended, loop))
        self.aside = SettingAside(loop.ledger, loop.clock, lambda event: loop.events([event]), loop.settings.night.ask_max, seen)
        self.awake = KeepingAwake(home, loop.clock, loop.alert, wanted=loop.settings.night.inhibit_sleep)


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Look after nights inside."""
    loop = supervisor.loop
    for run in unreported(loop.ledger, supervisor.home, loop.clock.wall()):
        write(run, supervisor.home, loop.alert)
    loop.services.put(nights := Nights(loop, supervisor.home))
    try:
        yield
    finally:
        nights.awake.release()


def step(loop: Loop) -> None:
    """Look after nights, after a step of the loop."""
    nights = loop.services.get(Nights)
    nights.aside.step(loop.crew)
    nights.awake.step(loop.crew)


def moved(loop: Loop, command: MoveNight) -> None:
    """Write the report of a night that ended."""
    if command.state is NightState.ENDED:
        write(command.run, loop.home, loop.alert)


def denied(loop: Loop, task: str, epoch: int, tools: list[str]) -> Question | None:
    """Return what a person should say of an attempt that failed since it was denied these tools."""
    return loop.services.get(Nights).aside.denied(loop.crew, task, epoch, tools)


# Night refused
# -------------
# An installed night was not started: one alert, and a line of the history.


async def handle(loop: Loop, *, name: str, outcome: str, why: str) -> dict[str, Any]:
    """`name` of the night, its `outcome` (`refused`, `missed`, `failed`) and `why`."""
    loop.ledger.journal(None, None, "night refused", {"name": name, "outcome": outcome, "why": why})
    loop.alert(one_line(f"the night {name} was not started: {why}"))
    return {}


# Keeping the machine awake
# -------------------------
# The one door to what keeps the machine awake: a child that lives as long as the machine is to stay awake, and no longer than we do.
#
# `systemd-inhibit` holds its lock while the program that it starts lives: `cat`, which ends with the pipe that we hold open, also when
# we are killed. macOS has `caffeinate`, which ends with the process that it is told to watch; that path has not been tried.


_STOP_S = 5.0
_SAID_MAX = 500
_WHAT = ("sleep:idle:handle-lid-switch", "idle")
"""What is asked for, and what a session may have that nobody sits at: polkit's defaults give it the second alone."""
MISSING = "neither systemd-inhibit nor caffeinate is there"


def commands(pid: int, why: str) -> list[list[str]]:
    """The programs that keep the machine awake here, the best first, each to be run with a pipe as its input; none: there is no such
    program. `pid` is the process for which it stays awake."""
    if found := shutil.which("systemd-inhibit"):
        return [[found, f"--what={what}", "--who=nightcrew", f"--why={why}", "--mode=block", "cat"] for what in _WHAT]
    if sys.platform == "darwin" and (found := shutil.which("caffeinate")):
        return [[found, "-i", "-w", str(pid)]]
    return []


class SleepInhibitor:
    """Belongs to one thread. Release it."""

    def __init__(self, log: Path) -> None:
        """What the programs say goes to `log`."""
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self._left: list[list[str]] = []

    @property
    def pid(self) -> int | None:
        """The child that keeps the machine awake; None without one."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def hold(self, why: str) -> None:
        """Begin to keep the machine awake, for the reason `why`, which `systemd-inhibit --list` shows. Returns at once: whether that
        succeeds, `trouble` says. To be released before it is asked for again. Raises OSError."""
        self._left = commands(os.getpid(), why)
        self._start()

    def trouble(self) -> str:
        """Why nothing keeps the machine awake; empty while something does, or is being tried: a program that is refused ends at once, and
        then the next one is started. Raises OSError."""
        if self._child is None:
            return MISSING
        code = self._child.poll()
        if code is None:
            return ""
        said = self._log.read_bytes()[:_SAID_MAX].decode("utf-8", "replace").strip()
        if not self._left:
            return f"the program that keeps the machine awake ended with {code}" + (f": {said}" if said else "")
        self._end()
        self._start()
        return ""

    def release(self) -> None:
        """Let the machine sleep. Idempotent."""
        self._left = []
        self._end()

    def _start(self) -> None:
        if self._left:
            with self._log.open("wb") as said:
                # In a session of its own: Ctrl-C at the supervisor's terminal is not meant for it.
                self._child = subprocess.Popen(self._left.pop(0), stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
