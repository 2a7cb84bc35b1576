"""What an attempt's traces and its gate say, and what becomes of its task."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from supervisor.kernel.format import duration
from supervisor.kernel.records import Exit, GateExit
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


# Recovery
# --------
# What an attempt's traces say: pure, and the same at a restart as in every tick.
#
# The caller must gather the traces in this order: life first (sessions, panes, the runner against the process table), the exit
# record last. In any other order an attempt can finish between the two looks and be taken for lost, and then it would run twice;
# that was measured in a prototype (5 processes for 4 tasks). So the record, being read last, wins.


SERVER_DIED = "the tmux server died"
REBOOTED = "the machine was restarted"
CRASHES = frozenset((4, 6, 7, 8, 9, 11))
"""Signals (ILL, ABRT, BUS, FPE, KILL, SEGV) of which an agent does not end because somebody at its terminal asked for it."""
LIMIT = "limit: "
"""How `stop_why` begins when the supervisor stopped it for a limit that it had passed; which one follows."""
SPENT = "its limit is spent until "
"""How the cause of a loss begins that is over at a moment, in UTC, which follows."""
ASKED = "asked a person "
"""How the cause of a failure begins whose task has asked for a person too often: it is not run again."""
PARKED = "parked after a long pause"
"""`stop_why` of an attempt whose task goes on with its conversation in the next one."""


AGAIN = "begun again for its memory: "
"""How `stop_why` begins when the supervisor stopped it so that it goes on in a new attempt; why follows."""


@dataclass(frozen=True, slots=True)
class Life:
    """Looked at first. `pane` and `runner` are what is there now, not what was once written."""

    pane: bool
    """A pane of this attempt exists and its process runs. Counts only until started.json is there: from then on the runner is the life,
    for tmux was seen to call a pane alive whose process it never reaped."""
    runner: bool
    """started.json names a process that is still the same process and not a zombie."""
    started: bool
    """started.json exists: the agent may have run, however briefly."""


class Verdict(Enum):
    """What the traces mean."""

    RECORDED = "it ended, and the runner wrote how"
    LIVE = "it runs: adopt it, needing no slot"
    LOST = "neither record nor life, though it began"
    NEVER_STARTED = "no runner ever owned this epoch: it may start"


def verdict(life: Life, record: Exit | None) -> Verdict:
    """Judge one attempt whose ledger row has no end."""
    if record is not None:
        return Verdict.RECORDED
    if life.runner or (life.pane and not life.started):
        return Verdict.LIVE
    return Verdict.LOST if life.started else Verdict.NEVER_STARTED


def judge_traces(record: Exit, *, stop_why: str, server_died: bool) -> tuple[End, str]:
    """How an attempt with an exit record ended, and why in a few words.

    `stop_why` is the reason the ledger holds for a stop that we asked for (empty when we asked for none): it decides, because the
    signal that the agent then died of was ours. `server_died` tells a closed session (a person's doing: final) from a dead
    tmux server (nobody's: re-run).
    """
    if (stop_why in ("timeout", PARKED) or stop_why.startswith((LIMIT, AGAIN))) and record.why == "exit" and record.code is not None:
        stop_why = ""  # the agent exited before the stop: a supervisor that slept reads the clock before the record
    if stop_why == "timeout" or record.why == "timeout":
        return End.TIMEOUT, f"stopped after {duration(round(record.duration_s))}"
    if stop_why:
        return stopped(stop_why)
    if record.why == "hangup":
        return (End.LOST, SERVER_DIED) if server_died else (End.CANCELLED, "its session was closed by hand")
    if record.why == "stopped":
        return End.LOST, "its runner was told to stop from outside"
    if record.why == "finished":
        return End.DONE, ""
    if record.why == "exec":
        return End.FAILED, f"could not start: {record.detail}"
    if record.signal is not None:
        return End.FAILED, f"killed by signal {record.signal}"
    return (End.DONE, "") if record.code == 0 else (End.FAILED, f"exit code {record.code}")


def spent(until: float) -> str:
    """The cause of an end for which a spent limit is to blame that opens again at `until`, in seconds since 1970."""
    return SPENT + datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spent_until(end: End, cause: str) -> float:
    """The moment of such a cause; 0 for any other."""
    if end is not End.LOST or not cause.startswith(SPENT):
        return 0.0
    return datetime.fromisoformat(cause.removeprefix(SPENT)).timestamp()


def stopped(why: str) -> tuple[End, str]:
    """How an attempt ended that we stopped for the reason `why` of the ledger, and why in a few words."""
    if why == "timeout":
        return End.TIMEOUT, why
    if why == PARKED or why.startswith(AGAIN):
        return End.LOST, why
    return (End.FAILED, why.removeprefix(LIMIT)) if why.startswith(LIMIT) else (End.CANCELLED, why)


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
