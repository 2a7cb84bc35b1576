"""How often a job of an attempt is tried, and what becomes of the attempt when that was not enough.

| Job | What can go wrong and pass | After five tries |
| --- | --- | --- |
| launch | a tool: the attempt is lost, and runs again six times at most; a git hangs: one try more, then `failed` | ended, `failed` |
| begin, stop and the judging of an end | | ended, `failed` |
| ending an attempt for that | | tried for ever: nothing that may live is called gone |
| collect | git: three tries more, one more when it hangs, then `failed` | `failed`, its work where it lies |
| release | tmux | tried for ever: it has no slot, no thread and no lock meanwhile |
| suspend, resume, adopt | | left as it is, and said; its end is seen again |
| clean | | not tried again: the person who asked is told |

A full disk and a ledger that cannot be written are waited for by every job: space comes back, and nothing can be committed without. Between
two tries a job has no thread. The pauses double from a second to a minute.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from supervisor.core.errors import DiskFull, LedgerError, NightcrewError
from supervisor.core.records import attempt_name

TRIES = 5
FIRST_S = 1.0
LONGEST_S = 60.0
STEP_S = 1.0
"""A pause is slept in such pieces, so that a supervisor which leaves waits for none."""

Key = tuple[str, int]
Job = Callable[[str, int], Awaitable[None]]
Aside = Callable[[str, int, str], Awaitable[None]]
"""Sets an attempt aside; the last argument says why."""


async def leave(task: str, epoch: int, why: str) -> None:
    """Set aside by leaving it as it is."""


async def until_done(key: Key, job: Job, aside: Aside | None, say: Callable[[str], None], leaving: Callable[[], bool]) -> None:
    """Try `job` until it succeeds, or until `leaving()`, but once at least. With `aside` at most `TRIES` times, then that, until it
    succeeds. Raises nothing."""
    failed = 0
    while True:
        try:
            await job(*key)
        except (DiskFull, LedgerError) as error:
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
            await _pause(min(LONGEST_S, FIRST_S * 2 ** min(max(failed - 1, 0), 16)), leaving)


def reason(error: Exception) -> str:
    """What a person is told of it."""
    return error.line() if isinstance(error, NightcrewError) else f"{type(error).__name__}: {error}"


async def _set_aside(task: str, epoch: int, *, aside: Aside, why: str) -> None:
    await aside(task, epoch, why)


async def _pause(seconds: float, leaving: Callable[[], bool]) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while not leaving() and (left := until - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(min(left, STEP_S))
