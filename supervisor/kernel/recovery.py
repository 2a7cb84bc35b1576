"""What became of an attempt that nobody watched: judged from its records when a supervisor begins again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from supervisor.kernel.format import duration
from supervisor.kernel.records import Exit
from supervisor.kernel.states import End

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
