"""How a headless agent is while it runs, line by line."""

from __future__ import annotations

import json
from typing import Any

from agents.protocols import Live, follow


def said(protocol: str, *lines: dict[str, Any], before: Live | None = None) -> Live:
    return follow(protocol, before or Live(), b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def line(kind: str, session: str = "own", **more: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": session, **more}


def test_a_refused_request_and_a_turn_that_failed_are_said() -> None:
    began = said("claude", line("system", subtype="init"))
    assert (began.state, began.session) == ("working", "own")
    refused = said("claude", line("system", subtype="api_retry", error="rate_limit", error_status=429), before=began)
    assert (refused.state, refused.detail) == ("rate_limited", "its request was refused and is sent again: rate_limit 429")
    assert said("claude", line("assistant", message={"content": [{"type": "text", "text": "x"}]}), before=refused).state == "working"
    failed = said("claude", line("result", subtype="error_max_turns", is_error=True, terminal_reason="max_turns"), before=refused)
    assert (failed.state, failed.detail) == ("idle", "its turn failed: max_turns")
    asked = said("builtin", line("system", subtype="session_state_changed", state="idle"), before=began)
    assert (asked.state, asked.heard) == ("idle", 2)
    assert said("codex", {"type": "turn.failed", "error": {"message": "no"}}).detail == "its turn failed: no"
    assert said("nothing", line("result")).state is None


def test_an_agent_inside_the_agent_does_not_speak_for_it() -> None:
    began = said("claude", line("system", subtype="init"))
    assert said("claude", line("result", "another", subtype="success", nightcrew_input=5), before=began) == began
    child = {"type": "step_finish", "sessionID": "b", "part": {"reason": "stop"}}
    assert (
        said("opencode", {"type": "step_start", "sessionID": "a"}, {"type": "text", "sessionID": "a", "part": {}}, child).state == "working"
    )


def test_a_text_is_taken_once_the_agent_goes_on() -> None:
    given = said("claude", line("result", subtype="success"), {"type": "user", "message": {"content": "x"}, "nightcrew_input": 7})
    assert (given.given, given.taken, given.state) == (7, 0, "working")
    assert said("claude", line("system", subtype="task_updated"), before=given).taken == 0
    assert said("claude", line("system", subtype="init"), before=given).taken == 7
    assert said("claude", line("user", nightcrew_input=-1), line("user", nightcrew_input="9"), before=given).given == 7
