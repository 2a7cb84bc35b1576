"""Events of hooks to evidence. The order of events in each case is one that was measured or reported for a real command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.agent_state import DETAIL_MAX, AgentState, Heard, hear
from supervisor.server.attempts.observe import AGENT_EVIDENCE_RECORD_MAX

S = AgentState
BASH = {"tool_name": "Bash", "tool_input": {"command": "make test", "description": "run the tests"}}
EDIT = {"tool_name": "Edit", "tool_input": {"file_path": "/w/a.py"}}


def heard(*events: dict[str, Any] | str) -> Heard:
    now = Heard()
    for number, event in enumerate(events):
        shape = {"hook_event_name": event} if isinstance(event, str) else event
        now = hear(now, {"session_id": "own", **shape}, float(number), number)
    return now


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, **more}


CASES: dict[str, tuple[list[dict[str, Any] | str], AgentState | None]] = {
    "start": (["SessionStart"], S.IDLE),
    "a prompt": (["SessionStart", "UserPromptSubmit"], S.WORKING),
    "a turn ends": (["UserPromptSubmit", "Stop"], S.IDLE),
    "a turn ends with background tasks": (["UserPromptSubmit", event("Stop", background_tasks=[{}])], S.WORKING),
    "a tool": (["UserPromptSubmit", event("PreToolUse", **BASH)], S.WORKING),
    "a permission is asked for": (
        ["UserPromptSubmit", event("PreToolUse", **BASH), event("PermissionRequest", **BASH)],
        S.WAITING_PERMISSION,
    ),
    "another tool begins while it is asked for": (
        [event("PermissionRequest", **BASH), event("PreToolUse", **EDIT)],
        S.WAITING_PERMISSION,
    ),
    "another tool ends while it is asked for": (
        [event("PermissionRequest", **BASH), event("PostToolUse", **EDIT)],
        S.WAITING_PERMISSION,
    ),
    "it was given and the tool ran": ([event("PermissionRequest", **BASH), event("PostToolUse", **BASH)], S.WORKING),
    "one of two was given": (
        [event("PermissionRequest", **BASH), event("PermissionRequest", **EDIT), event("PostToolUse", **BASH)],
        S.WAITING_PERMISSION,
    ),
    "it was denied by a rule": ([event("PermissionRequest", **BASH), event("PermissionDenied", **BASH)], S.WORKING),
    "the next prompt settles what Esc left open": ([event("PermissionRequest", **BASH), "UserPromptSubmit"], S.WORKING),
    "a subagent asks": (
        ["UserPromptSubmit", event("PermissionRequest", agent_id="a1", **BASH)],
        S.WAITING_PERMISSION,
    ),
    "a subagent ends": (["UserPromptSubmit", event("Stop", agent_id="a1")], S.WORKING),
    "a subagent ends while the agent asks": ([event("PermissionRequest", **BASH), event("Stop", agent_id="a1")], S.WAITING_PERMISSION),
    "a question to a person": (["UserPromptSubmit", event("PreToolUse", tool_name="AskUserQuestion", tool_input={})], S.WAITING_INPUT),
    "an elicitation": (["UserPromptSubmit", event("Elicitation", message="which?")], S.WAITING_INPUT),
    "an elicitation was answered": (["Elicitation", "ElicitationResult"], S.WORKING),
    "the context is compacted amid a turn": (["UserPromptSubmit", event("SessionStart", source="compact")], S.WORKING),
    "the turn failed": (["UserPromptSubmit", event("StopFailure", error="rate_limit")], S.IDLE),
    "Codex was interrupted": (["UserPromptSubmit", "Interrupt"], S.INTERRUPTED),
    "a notification of a permission": ([event("Notification", notification_type="permission_prompt")], S.WAITING_PERMISSION),
    "a notification of another kind": (["UserPromptSubmit", event("Notification", notification_type="auth_success")], S.WORKING),
    "a name of a later version": (["UserPromptSubmit", "SomethingNew"], S.WORKING),
    "nothing that says anything": (["ConfigChange", "InstructionsLoaded"], None),
}


@pytest.mark.parametrize(("events", "state"), CASES.values(), ids=CASES)
def test_what_events_say(events: list[dict[str, Any] | str], state: AgentState | None) -> None:
    evidence = heard(*events).evidence
    assert (evidence.state if evidence is not None else None) is state


def test_what_is_asked_is_told_on_one_line_and_the_oldest_first() -> None:
    long = {"tool_name": "Bash", "tool_input": {"command": "echo \x1b[2J\n" + "x" * 9999}}
    now = heard(event("PermissionRequest", **long), event("PermissionRequest", **EDIT))
    assert now.evidence is not None
    assert now.evidence.detail.startswith("Bash: echo \\x1b[2J\\n") and len(now.evidence.detail) == DETAIL_MAX
    assert now.evidence.session == "own" and now.evidence.sequence == 1
    later = event("Notification", notification_type="permission_prompt", message="It needs you")
    assert isinstance(later, dict)
    again = hear(now, {"session_id": "own", **later}, 99.0, 9)
    assert again.evidence == now.evidence, "what is asked for, and since when"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["PreToolUse", "PermissionRequest", "PostToolUse", "Stop", "SessionStart", "Notification", "UserPromptSubmit", "Other"]
)
KEYS = ["session_id", "agent_id", "tool_name", "tool_input", "source", "message", "error", "notification_type", "background_tasks"]


@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4)), max_size=12))
def test_events_of_any_shape_are_survived_and_little_is_kept(events: list[tuple[str, dict[str, Any]]]) -> None:
    now = Heard()
    for number, (name, shape) in enumerate(events):
        now = hear(now, {**shape, "hook_event_name": name}, float(number), number)
    assert len(now.pending) <= 64
    assert now.evidence is None or (len(now.evidence.detail) <= DETAIL_MAX and "\n" not in now.evidence.detail)


def test_a_flood_of_permissions_keeps_the_newest() -> None:
    now = heard(*(event("PermissionRequest", tool_name="Bash", tool_input={"command": str(number)}) for number in range(200)))
    assert len(now.pending) == 64 and now.pending[-1][1] == "Bash: 199"


def test_however_long_what_is_asked_is_little_of_it_is_kept() -> None:
    long = "\U0001f600" * 40_000
    now = heard(*(event("PermissionRequest", tool_name=f"T{number}", tool_input={"command": long + str(number)}) for number in range(70)))
    assert len(json.dumps(now.pending)) < AGENT_EVIDENCE_RECORD_MAX - 2**14
    assert len({tool for tool, _ in now.pending}) == 64, "they are told apart by all of it"
