"""What the hooks of an agent's command line say of its state: events of Claude Code (2.1) and Codex (0.169), in their order, to evidence.

Neither end of an activity is enough alone: a permission that was asked for holds until its own tool has run or was refused, whatever other
tools begin meanwhile, and a refusal by a person or Esc fires no hook in Claude Code (its session file tells). Events of subagents move the
state only where they ask a person. Names that are not known here say nothing.

Everything in an event is the agent's own text and may be forged or of any shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents.status import AgentState, Evidence, Source
from supervisor.core.errors import one_line

Said = tuple[AgentState, str]
DETAIL_MAX = 200
"""Characters of what is asked that are kept."""
_PENDING_MAX = 64
_ASKING_TOOLS = frozenset({"AskUserQuestion"})
"""Tools that wait for a person's answer by being called."""
_TOOL_ENDED = frozenset({"PostToolUse", "PostToolUseFailure", "PermissionDenied"})
_TURN = frozenset({"UserPromptSubmit", "Interrupt", "SessionStart"})
"""Events that end whatever was asked before."""
_NOTIFIED = {
    "permission_prompt": AgentState.WAITING_PERMISSION,
    "elicitation_dialog": AgentState.WAITING_INPUT,
    "idle_prompt": AgentState.IDLE,
}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the hooks of one session have said so far."""

    evidence: Evidence | None = None
    pending: tuple[tuple[str, str], ...] = ()
    """Permissions asked for and not settled, oldest first: a digest of the tool with its input, and what a person reads, at most DETAIL_MAX
    characters."""


def hear(before: Heard, event: Mapping[str, Any], at: float, sequence: int) -> Heard:
    """What is known after `event`, a hook's input, which came at `at` (wall-clock seconds) as the `sequence`th. Raises nothing."""
    name, session = _text(event, "hook_event_name"), _text(event, "session_id")
    after = _settled(before, event, name)
    found = _state(after, event, name)
    if found is None:
        return after
    state, detail = found
    return replace(after, evidence=Evidence(Source.HOOK, state, at, one_line(detail)[:DETAIL_MAX], session, sequence))


def permissions(before: Heard, after: Heard, name: str) -> list[tuple[str, str]]:
    """What the event `name`, which led from `before` to `after`, says of permissions: each as the history has it, and what was asked."""
    became = "granted" if name in ("PostToolUse", "PostToolUseFailure") else "denied" if name == "PermissionDenied" else "not granted"
    gone = [(f"permission {became}", shown) for tool, shown in before.pending if all(tool != other for other, _ in after.pending)]
    return gone + [("permission asked", shown) for tool, shown in after.pending if all(tool != other for other, _ in before.pending)]


def tool(name: str, event: Mapping[str, Any]) -> str:
    """The tool whose call this event begins; empty when it begins none."""
    return (_text(event, "tool_name") or "a tool")[:DETAIL_MAX] if name == "PreToolUse" else ""


def _settled(before: Heard, event: Mapping[str, Any], name: str) -> Heard:
    """With the permissions that are open after the event."""
    tool = _tool(event)
    if name == "PermissionRequest":
        kept = [one for one in before.pending if one[0] != tool]
        return replace(before, pending=(*kept, (tool, one_line(_shown(event))[:DETAIL_MAX]))[-_PENDING_MAX:])
    if name in _TOOL_ENDED:
        return replace(before, pending=tuple(one for one in before.pending if one[0] != tool))
    if name in _TURN or (name in ("Stop", "StopFailure") and not _is_subagents(event)):
        return before if _is_compaction(event, name) else replace(before, pending=())
    return before


def _state(now: Heard, event: Mapping[str, Any], name: str) -> Said | None:
    """The state that the event speaks of and what is asked; None when it speaks of none."""
    if name == "PermissionRequest" or (now.pending and name in (*_TOOL_ENDED, "PreToolUse")):
        return AgentState.WAITING_PERMISSION, now.pending[0][1]
    if _is_subagents(event) or _is_compaction(event, name) or name not in _SAYS:
        return None
    if name == "Notification" and now.pending:
        return None  # it repeats, seconds later and in general words, what was asked for
    return _SAYS[name](event)


def _works(_: Mapping[str, Any]) -> Said:
    return AgentState.WORKING, ""


def _tool_begins(event: Mapping[str, Any]) -> Said:
    asks = _text(event, "tool_name") in _ASKING_TOOLS
    return (AgentState.WAITING_INPUT, _shown(event)) if asks else _works(event)


def _turn_ends(event: Mapping[str, Any]) -> Said:
    tasks = event.get("background_tasks")
    return (AgentState.WORKING, f"{len(tasks)} background tasks") if isinstance(tasks, list) and tasks else (AgentState.IDLE, "")


def _turn_fails(event: Mapping[str, Any]) -> Said:
    return AgentState.IDLE, f"its turn failed: {_text(event, 'error') or 'for an unknown reason'}"


def _notifies(event: Mapping[str, Any]) -> Said | None:
    state = _NOTIFIED.get(_text(event, "notification_type"))
    return None if state is None else (state, _text(event, "message") if state is not AgentState.IDLE else "")


_SAYS: Mapping[str, Callable[[Mapping[str, Any]], Said | None]] = {
    "SessionStart": lambda _: (AgentState.IDLE, ""),
    "UserPromptSubmit": _works,
    "Interrupt": lambda _: (AgentState.INTERRUPTED, ""),
    "PreToolUse": _tool_begins,
    **dict.fromkeys(_TOOL_ENDED, _works),
    "Stop": _turn_ends,
    "StopFailure": _turn_fails,
    "Notification": _notifies,
    "Elicitation": lambda event: (AgentState.WAITING_INPUT, _text(event, "message")),
    "ElicitationResult": _works,
}


def _is_subagents(event: Mapping[str, Any]) -> bool:
    return bool(_text(event, "agent_id"))


def _is_compaction(event: Mapping[str, Any], name: str) -> bool:
    """A session starts again amid a turn when its context was compacted."""
    return name == "SessionStart" and _text(event, "source") == "compact"


def _tool(event: Mapping[str, Any]) -> str:
    """What tells one call of a tool from another: a permission names no call, only the tool and its input."""
    try:
        given = json.dumps(event.get("tool_input"), sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        given = ""
    return hashlib.sha256(f"{_text(event, 'tool_name')} {given}".encode("utf-8", "replace")).hexdigest()[:32]


def _shown(event: Mapping[str, Any]) -> str:
    given = event.get("tool_input")
    words = [value for value in given.values() if isinstance(value, str)] if isinstance(given, dict) else []
    return f"{_text(event, 'tool_name') or 'a tool'}: {words[0]}" if words else _text(event, "tool_name") or "a tool"


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""
