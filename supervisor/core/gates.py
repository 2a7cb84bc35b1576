"""The gate of a task: a command that runs where its agent was, once that is done, and says whether the work is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.records import GateExit
from supervisor.core.states import End

GATE = "gate: "
"""How the cause of an attempt's end begins whose agent was done, and whose gate was not passed."""
TIMEOUT_S = 600.0
"""A gate's time when its task does not say: the tests of most projects take less."""
SAID_MAX = 4000
"""Bytes of the end of what a gate printed that its result, and the next prompt, hold: some fifty lines, about 1,000 tokens."""


def judge(asked: bool, gate: GateExit | None, end: End, cause: str) -> tuple[End, str]:
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
        return f"stopped after {gate.duration_s:.0f} s"
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


def told(missed: Missed, command: str, *, here: bool) -> str:
    """What the next attempt's prompt says of it. `here`: the work that did not pass is in its worktree."""
    where = "that work is in this worktree" if here else "this worktree has none of that work"
    return "\n\n".join(
        [
            f"[nightcrew] The work of the attempt before this one did not pass its gate ({missed.why}); {where}. The gate is:",
            command,
            *(["The end of what it printed:", missed.said] if missed.said else ["It printed nothing."]),
            "It runs again once you are done: see that the work passes it.",
        ]
    )
