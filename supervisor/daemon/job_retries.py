"""How often a job of an attempt is tried, and what becomes of the attempt when that was not enough.

| Job | What can go wrong and pass | After five tries |
| --- | --- | --- |
| launch | a tool: the attempt is lost, and runs again six times at most; a git hangs: one try more, then `failed` | ended, `failed` |
| begin, stop and the judging of an end | | ended, `failed` |
| ending an attempt for that | | tried for ever: nothing that may live is called gone |
| securing before a gate | git, a disk | the gate begins all the same; the end secures once more |
| collect | git: three tries more, one more when it hangs, then `failed` | `failed`, its work where it lies |
| release | tmux | tried for ever: it has no slot, no thread and no lock meanwhile |
| pause, resume, adopt | | left as it is, and said; its end is seen again |
| clean | | not tried again: the person who asked is told |

A full disk and a ledger that cannot be written are waited for by every job: space comes back, and nothing can be committed without. Between
two tries a job has no thread. The pauses double from a second to a minute; one for a full disk ends when there is more room.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.errors import DiskFull, LedgerError, NightcrewError
from supervisor.core.records import attempt_name
from supervisor.host import files

TRIES = 5
FIRST_S = 1.0
LONGEST_S = 60.0
STEP_S = 1.0
"""A pause is slept in pieces of this length, so that a supervisor can leave at once."""

Key = tuple[str, int]
Job = Callable[[str, int], Awaitable[None]]
Aside = Callable[[str, int, str], Awaitable[None]]
"""Sets an attempt aside; the last argument says why."""


async def leave(task: str, epoch: int, why: str) -> None:
    """The `aside` that leaves the attempt as it is."""


async def until_done(
    key: Key, job: Job, aside: Aside | None, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str]
) -> None:
    """Try `job` until it succeeds, or until `leaving()`, but once at least. With `aside` at most `TRIES` times, then that, until it
    succeeds. As long as it waits for a disk, `waiting` says for which. Raises nothing."""
    try:
        await _until_done(key, job, aside, say, leaving, waiting)
    finally:
        waiting.pop(key, None)


async def _until_done(
    key: Key, job: Job, aside: Aside | None, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str]
) -> None:
    failed, waited = 0, _Waited()
    while True:
        try:
            await job(*key)
        except DiskFull as error:
            if waited.again(error):
                waiting[key] = error.line()
                say(f"{attempt_name(*key)}: {waiting[key]}")
            if leaving():
                return
            await _pause(_pause_s(waited.times), lambda: leaving() or waited.has_more_room())
            continue
        except LedgerError as error:
            why = error.line()
        except Exception as error:  # noqa: BLE001 - a fault in one attempt's job must not end the others; it is shown and tried again
            why, failed = reason(error), failed + 1
        else:
            return
        say(f"{attempt_name(*key)}: {why}")
        if leaving():
            return
        if failed >= TRIES and aside is not None:
            say(f"{attempt_name(*key)}: given up after {TRIES} tries")
            job, aside, failed = functools.partial(_set_aside, aside=aside, why=why), None, 0
        else:
            await _pause(_pause_s(failed), leaving)


@dataclass(slots=True)
class _Waited:
    """A job's waits for full disks."""

    times: int = 0
    place: Path = Path()
    free: int = 0
    """Bytes that were free there when it was full."""
    said: set[tuple[str, str]] = field(default_factory=set)

    def again(self, error: DiskFull) -> bool:
        """Whether a person was not told of it yet; what is free there changes all the time."""
        self.times, self.place = self.times + 1, Path(error.on)
        self.free = files.free_near(self.place)
        is_new = (error.what, error.on) not in self.said
        self.said.add((error.what, error.on))
        return is_new

    def has_more_room(self) -> bool:
        return files.free_near(self.place) >= self.free + files.HARDLY_ANY


def _pause_s(times: int) -> float:
    return min(LONGEST_S, FIRST_S * 2.0 ** min(max(times - 1, 0), 16))


def reason(error: Exception) -> str:
    """What a person is told of it."""
    return error.line() if isinstance(error, NightcrewError) else f"{type(error).__name__}: {error}"


async def _set_aside(task: str, epoch: int, *, aside: Aside, why: str) -> None:
    await aside(task, epoch, why)


async def _pause(seconds: float, is_over: Callable[[], bool]) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while not is_over() and (left := until - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(min(left, STEP_S))
