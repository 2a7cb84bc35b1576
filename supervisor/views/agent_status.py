"""How an agent is, with all that speaks for it: evidence from the ledger, its hooks and the gateway, fused by `agents.agent_state`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from agents.agent_state import AgentState, Evidence, Source, Status, fuse
from agents.kinds import of_task
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, duration, rfc3339
from supervisor.kernel.states import AttemptState, End, TaskState
from supervisor.store.queries import TaskView
from supervisor.views import status as text

_ENDS = {
    End.DONE: AgentState.DONE,
    End.FAILED: AgentState.FAILED,
    End.TIMEOUT: AgentState.FAILED,
    End.CANCELLED: AgentState.STOPPED,
    End.LOST: AgentState.CRASHED,
}
_TASKS = {
    TaskState.WAITING: AgentState.QUEUED,
    TaskState.READY: AgentState.QUEUED,
    TaskState.PARKED: AgentState.QUEUED,
    TaskState.PAUSED: AgentState.PAUSED,
    TaskState.QUARANTINED: AgentState.CRASHED,
}
"""Of tasks that do not run; the others of them never will, or ended."""


def of(view: TaskView, said: Mapping[str, Any], gateway: Mapping[str, Any] | None, now: float) -> Status:
    """`said` is the supervisor's answer on this task (`session`, `evidence`), empty when nobody answers; `gateway` what the gateway says of
    it, None when it says nothing."""
    evidence = [_process(view), *map(_said, said.get("evidence", ()))]
    if gateway is not None and (piece := _gateway(gateway, now)) is not None:
        evidence.append(piece)
    status = fuse(evidence, str(said.get("session", "")))
    left_out = [f"hooks left out because {why}: {count}" for why, count in said.get("refused", {}).items()]
    return replace(status, look="; ".join(filter(None, (status.look, *left_out))))


def lines(view: TaskView, status: Status, now: float) -> list[str]:
    """For people: the state with its rule, then each piece of evidence with its age and what became of it."""
    head = f"{view.id}  {status.state}"
    head += f" for {age(now - status.since)}" if status.since else ""
    found = [f"{head}: {one_line(status.detail)}" if status.detail else head, f"  because   {status.rule}"]
    found += [f"  look      {one_line(status.look)}"] if status.look else []
    found += [f"  assigned  {one_line(view.assigned)}"] if view.assigned else []
    for one in status.considered:
        piece = one.evidence
        detail = f": {one_line(piece.detail)}" if piece.detail else ""
        since = age(now - piece.at if piece.at else None)
        found.append(f"  {piece.source.name.lower().replace('_', ' '):<13} {since:>7}  {piece.state:<18} {one.why}{detail}")
    return found


def to_json(status: Status) -> dict[str, Any]:
    """For programs."""
    return {
        "state": str(status.state),
        "since": rfc3339(status.since),
        "needs_person": status.needs_person,
        "rule": status.rule,
        "detail": status.detail,
        "look": status.look,
        "evidence": [
            {**asdict(one.evidence), "source": one.evidence.source.name.lower(), "at": rfc3339(one.evidence.at), "why": one.why}
            for one in status.considered
        ],
    }


def _process(view: TaskView) -> Evidence:
    at = view.ended or view.started or view.created or view.changed
    if view.state is not TaskState.RUNNING:
        state = _TASKS.get(view.state) or (_ENDS[End(view.end)] if view.end else AgentState.STOPPED)
        return Evidence(Source.PROCESS, state, view.changed, text.why(view))
    if view.paused:
        return Evidence(Source.PROCESS, AgentState.PAUSED, at, text.pause(view) or "a person paused it")
    match view.attempt_state:
        case AttemptState.LAUNCHING:
            return Evidence(Source.PROCESS, AgentState.STARTING, at)
        case AttemptState.RUNNING:
            return Evidence(Source.PROCESS, *_running(view, at))
        case AttemptState.STOPPING:
            return Evidence(Source.PROCESS, AgentState.WORKING, at, "it is being stopped")
        case _:
            return Evidence(Source.PROCESS, AgentState.WORKING, at, "its process has ended, its work is being secured")


def _running(view: TaskView, at: float) -> tuple[AgentState, float, str]:
    kind = of_task(view.kind)
    if not kind.owns_terminal(interactive=view.interactive):
        return AgentState.WORKING, at, "its process runs"
    if kind.has_hooks:
        return AgentState.STARTING, at, "its process runs, and it has not said that it is ready"
    return AgentState.UNKNOWN, at, "its process runs; whether it works, only it could say"


def _said(shape: Mapping[str, Any]) -> Evidence:
    return Evidence(Source(shape["source"]), AgentState(shape["state"]), shape["at"], shape["detail"], shape["session"], shape["sequence"])


def _gateway(shape: Mapping[str, Any], now: float) -> Evidence | None:
    flying, queued, times = shape.get("in_flight"), shape.get("queued"), shape.get("raised") or 1.0
    raised = f"; its turns wait {duration(shape['turn_wait_s'])}, so its weight is raised {times:.1f} times" if times > 1 else ""
    if flying:
        return Evidence(Source.GATEWAY, AgentState.WORKING, now, f"{flying} requests under way{raised}")
    since = now - (shape.get("waiting_s") or 0.0)
    return Evidence(Source.GATEWAY, AgentState.RATE_LIMITED, since, f"{queued} requests wait for tokens{raised}") if queued else None
