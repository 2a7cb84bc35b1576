"""What an attempt's traces and its gate say, and what becomes of its task."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from supervisor.kernel.format import duration
from supervisor.kernel.records import GateExit
from supervisor.kernel.recovery import ASKED, REBOOTED, spent_until
from supervisor.kernel.states import End

# Gates
# -----
# The gate of a task: a command that runs where its agent was, once that is done, and says whether the work is good enough.


GATE = "gate: "
"""How the cause of an attempt's end begins whose agent was done, and whose gate was not passed."""
TIMEOUT_S = 600.0
"""A gate's time when its task does not say: the tests of most projects take less."""
SAID_MAX = 4000
"""Bytes of the end of what a gate printed that its result, and the next prompt, hold: some fifty lines, about 1,000 tokens."""


def judge_gate(asked: bool, gate: GateExit | None, end: End, cause: str) -> tuple[End, str]:
    """How an attempt ended, given how its agent did. `asked`: its task has a gate."""
    if end is not End.DONE or not asked or passed(gate):
        return end, cause
    return End.FAILED, f"{GATE}{_why(gate)}"


def with_limit(cause: str, met: str) -> str:
    """The cause of a gate that was not passed, with the limit that it met, if any."""
    return f"{GATE}{met}; {cause.removeprefix(GATE)}" if met else cause


def passed(gate: GateExit | None) -> bool:
    """Whether it ran and exited with 0."""
    return gate is not None and gate.why == "exit" and gate.code == 0


def _why(gate: GateExit | None) -> str:
    if gate is None:
        return "it did not run"
    if gate.why == "timeout":
        return f"stopped after {duration(round(gate.duration_s))}"
    if gate.why == "exec":
        return f"could not start: {gate.detail}"
    return f"exit code {gate.code}" if gate.signal is None else f"killed by signal {gate.signal}"


def shape(gate: GateExit, said: bytes) -> dict[str, Any]:
    """As `gate` in `result.json`. `said`: the end of its log."""
    return {
        "passed": passed(gate),
        "why": "" if passed(gate) else _why(gate),
        "exit": {"code": gate.code, "signal": gate.signal},
        "duration_s": round(gate.duration_s, 3),
        "said": _plain(said[-SAID_MAX:]),
    }


def _plain(said: bytes) -> str:
    """As text, without what only a terminal understands."""
    return "".join(char for char in said.decode("utf-8", "replace") if char.isprintable() or char in "\n\t").strip("\n")


@dataclass(frozen=True, slots=True)
class Missed:
    """A gate that the attempt before this one did not pass."""

    why: str
    said: str
    tip: str
    """The commit that holds what that attempt left; empty: nothing does."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Missed | None:
        """What `result.json` says of it; None when the gate was passed, or there was none."""
        gate = result.get("gate")
        return None if not gate or gate["passed"] else cls(gate["why"], gate["said"], result.get("tip") or "")


# Retry
# -----
# What becomes of a task when an attempt of it has ended, by what ended it.
#
# | The attempt | The task |
# | --- | --- |
# | is done, or was cancelled | ends so |
# | was lost: its runner, tmux or the provider failed it | runs again, at no cost |
# | was lost with the machine, which was restarted | runs again, and nothing is counted |
# | did not pass its gate, for the first time | runs again once, at no cost |
# | was lost because a limit of its account was spent | waits until that opens, then runs again; nothing is counted |
# | failed, by itself or at its gate again, or ran out of time | runs again as often as `retries` say, then it has failed |
# | ended in an outage | runs again when that is over, and nothing is counted |
#
# Whatever it is for, the sixth time within ten minutes that a task would run again it is quarantined instead.


RESTARTS_MAX: Final = 5
WITHIN_S: Final = 600.0
"""Five restarts in ten minutes. Beyond that a task burns money, and perhaps the machine, for nothing; with the pauses between them it takes
an agent that dies at once about a minute to get there. Erlang's supervisors call this the restart intensity."""
BACKOFF_FIRST_S: Final = 2.0
BACKOFF_CAP_S: Final = 300.0
JITTER: Final = 0.25
"""The share by which a supervisor's backoffs may be shorter: see `Order.jitter`."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What the ends of a task's attempts have cost it. A person's `retry` begins a new one."""

    failures: int = 0
    """Its own, timeouts among them: those that cost a retry."""
    gates: int = 0
    """Gates that it did not pass and that cost none."""
    restarts: tuple[float, ...] = ()
    """When it was to run again, in seconds since 1970, oldest first: those of the last ten minutes."""


NEW: Final = Tally()


@dataclass(frozen=True, slots=True)
class Next:
    """What follows."""

    event: str
    """Of the task's table in `states`."""
    tally: Tally
    delay_s: float = 0.0
    """Before it may start again; of one that is parked, by the wall clock."""
    reason: str = ""
    """Why the task is as it is then, where that is not how its attempt ended."""
    question: str = ""
    """What a person is to say before it runs again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    end: End
    cause: str
    wall: float
    """When, in seconds since 1970."""
    unwanted: bool = False
    """A person cancelled its task meanwhile."""
    free: bool = False
    """It ended in an outage."""
    no_provider: bool = False
    """In one of the models. Perhaps it is what this task asks that its provider fails: it is noted as a restart."""


def after(tally: Tally, retries: int, ended: Ended, less: float = 0.0) -> Next:
    """What follows for a task on the end of its newest attempt. `less`: as in `backoff_s`."""
    if ended.end in (End.DONE, End.CANCELLED):
        return Next(str(ended.end), tally)
    spent = tally if ended.free else _charged(tally, ended.end, ended.cause)
    asked_too_often = ended.end is End.FAILED and ended.cause.startswith(ASKED)
    if asked_too_often or (spent.failures > retries and spent.failures > tally.failures):
        return Next("failed", spent)
    if ended.unwanted:
        return Next("cancelled", spent)
    until = spent_until(ended.end, ended.cause)
    if until:
        return Next("park", tally, max(0.0, until - ended.wall))
    if (ended.free and not ended.no_provider) or is_reboot(ended.end, ended.cause):
        return Next("run again", spent, backoff_s(1, less))
    noted = _noted(spent, ended.wall)
    return Next("run again", noted, backoff_s(len(noted.restarts), less)) if ended.free else _again(noted, ended, less)


def is_reboot(end: End, cause: str) -> bool:
    """Whether it died with the whole machine. Nothing of the task's own did that, and nobody can do it often within minutes."""
    return end is End.LOST and cause == REBOOTED


def _noted(tally: Tally, wall: float) -> Tally:
    """With a restart more."""
    recent = tuple(at for at in tally.restarts if wall - WITHIN_S < at <= wall)
    return replace(tally, restarts=(*recent, wall))


def _again(tally: Tally, ended: Ended, less: float) -> Next:
    times = len(tally.restarts)
    if times > RESTARTS_MAX:
        how = f"{ended.end}: {ended.cause}" if ended.cause else str(ended.end)
        return Next("restarted too often", tally, reason=f"ended {times} times within {duration(WITHIN_S)}, at last {how}")
    return Next("run again", tally, backoff_s(max(times, tally.failures if ended.end is not End.LOST else 0), less))


def _charged(tally: Tally, end: End, cause: str) -> Tally:
    if end is End.LOST:
        return tally
    if end is End.FAILED and cause.startswith(GATE) and not tally.gates:
        return replace(tally, gates=1)
    return replace(tally, failures=tally.failures + 1)


def backoff_s(count: int, less: float = 0.0) -> float:
    """Seconds before re-run number `count` (1 is the first): doubling from 2 s, at most 300 s, and shorter by the share `less` of that."""
    whole = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2 ** min(max(count, 1) - 1, 16))
    return float(whole * (1.0 - less))


def luck(task: str, epoch: int) -> float:
    """In 0..1, the same for the same attempt and another for each: so that a crew which died together does not come back together."""
    return zlib.crc32(f"{task}:{epoch}".encode("utf-8", "surrogateescape")) / 2**32
