"""How a headless agent is while it runs, by what it printed so far. Pure, and a step costs what was printed since the step before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agents.inbox import NUMBER
from agents.protocols.lines import Object, count, name_of, several, text
from agents.protocols.outcome import Entry
from agents.status import AgentState

_DETAIL_MAX = 200


@dataclass(frozen=True, slots=True)
class Live:
    """What an agent has said until now."""

    session: str = ""
    """Its own: the first one that spoke. What another one says, which it started, is not heard."""
    state: AgentState | None = None
    """None while it has said nothing of its state."""
    detail: str = ""
    heard: int = 0
    """Lines that told of its state."""
    given: int = 0
    """Number of the newest text that it was given, of those which people sent; 0: none."""
    taken: int = 0
    """The same, of those after which it went on."""
    background: bool = False
    """It says that something goes on in its background, after which it goes on itself."""


def after(before: Live, one: Object, entries: Iterable[Entry]) -> Live:
    """What is known after one of its lines, which says `entries`."""
    session = name_of(one, "session_id") or name_of(one, "sessionID")
    if session and before.session and session != before.session:
        return before
    now = replace(before, session=before.session or session, given=max(before.given, count(one, NUMBER)))
    if text(one, "subtype") == "background_tasks_changed":
        return replace(now, background=bool(several(one, "tasks")))
    if text(one, "subtype") == "session_state_changed":
        state = AgentState.IDLE if text(one, "state") == "idle" else AgentState.WORKING
        return replace(now, state=state, detail="", heard=now.heard + 1, taken=now.given)
    for entry in entries:
        state, detail = _state(entry)
        taken = now.taken if entry.who == "user" else now.given
        now = replace(now, state=state, detail=detail[:_DETAIL_MAX], heard=now.heard + 1, taken=taken)
    return now


def _state(entry: Entry) -> tuple[AgentState, str]:
    match entry.kind:
        case "end":
            return AgentState.IDLE, "" if entry.ok else f"its turn failed: {entry.text}"
        case "retry":
            return AgentState.RATE_LIMITED, f"its request was refused and is sent again: {entry.text}"
        case _:
            return AgentState.WORKING, ""
