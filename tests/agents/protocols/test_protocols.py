"""What agents print, read: recorded streams of real ones, and everything that no agent should print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import protocols
from agents.protocols import Entry, Outcome, Usage, lines
from supervisor.kernel.leases import SAID
from tests.agents.protocols.scenarios import DATA, SCENARIOS

RECORDED = sorted(DATA.glob("*/*.jsonl"))
ME, OTHER = "session-of-mine", "session-inside"


def stream(*shapes: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(shape).encode() + b"\n" for shape in shapes)


def start(session: str = ME, **more: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": session, "model": "m", "cwd": "/w", **more}


def result(session: str = ME, **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "session_id": session, "terminal_reason": "completed", **more}


def read(*shapes: dict[str, Any], protocol: str = "claude") -> Outcome:
    said = protocols.read(protocol, stream(*shapes))
    assert said is not None
    return said


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_recorded_streams(file: Any) -> None:
    cli = file.parent.name.partition("-")[0]
    (scenario,) = [one for one in SCENARIOS if (one.cli, one.name) == (cli, file.stem)]
    said = protocols.read(cli, file.read_bytes())
    assert said is not None
    assert {name: getattr(said, name) for name in scenario.expected} == scenario.expected
    assert said.reason.startswith(scenario.reason)
    assert said.session
    assert (said.usage is None) == (said.is_error and cli in ("codex", "opencode"))
    assert said.transcript.endswith(f"/{said.session}.jsonl") == (cli == "claude")


def test_every_scenario_is_recorded() -> None:
    assert {(file.parent.name.partition("-")[0], file.stem) for file in RECORDED} == {(one.cli, one.name) for one in SCENARIOS}


def test_a_turn_after_a_background_task_is_counted_once() -> None:
    said = protocols.read("claude", (DATA / "claude-2.1.329" / "background.jsonl").read_bytes())
    assert said is not None
    results = [
        json.loads(line) for line in (DATA / "claude-2.1.329" / "background.jsonl").read_text().splitlines() if '"type":"result"' in line
    ]
    parts = [one["usage"] for one in results]
    assert len(parts) == 2
    assert said.usage is not None
    assert said.usage.cache_write == sum(part["cache_creation_input_tokens"] for part in parts)
    assert said.cost_usd == results[-1]["total_cost_usd"] > results[0]["total_cost_usd"]


def test_tokens_by_model_count_first() -> None:
    """Tokens by model are the session's, so they count before `usage`, which is a turn's."""
    small = {"cacheReadInputTokens": 3, "cacheCreationInputTokens": 4, "outputTokens": 5}
    models = {"big": {"inputTokens": 1, "outputTokens": 2}, "small": small}
    said = read(result(usage={"input_tokens": 1, "output_tokens": 2}, modelUsage=models))
    assert (said.usage, said.models) == (Usage(1, 7, 3, 4), ("big", "small"))


def test_what_an_agent_inside_prints_is_not_its_own() -> None:
    inside = result(OTHER, is_error=True, num_turns=9, permission_denials=[{"tool_name": "Bash"}])
    said = read(start(), start(OTHER), result(num_turns=2, result="Mine."), inside)
    assert (said.session, said.is_error, said.denials, said.steps, said.message) == (ME, False, (), 2, "Mine.")
    assert read(start(), start(OTHER), inside) == Outcome(session=ME, began=True, models=("m",)), "its own turn has not ended"


def test_what_our_hook_denied_is_nothing_that_a_person_could_allow() -> None:
    def call(number: str, source: str, why: str) -> dict[str, Any]:
        """The result of a call that was denied."""
        meta = {"id": number, "permission_decision": {"decision": "reject", "source": source}}
        block = {"type": "tool_result", "tool_use_id": number, "is_error": True, "content": why}
        return {"type": "user", "session_id": ME, "message": {"content": [block]}, "tool_result_meta": [meta]}

    lease = f"src/x.py belongs to r/a, {SAID} src"
    calls = call("t1", "hook", lease), call("t2", "hook", "no rm here"), call("t3", "rule", lease)
    denied = [{"tool_name": f"W{number}", "tool_use_id": number} for number in ("t1", "t2", "t3")]
    assert read(start(), *calls, result(permission_denials=denied)).denials == ("Wt2", "Wt3")


def test_the_last_result_of_its_own_counts() -> None:
    refused = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "rm -r build\n--x"}}
    first = result(num_turns=2, permission_denials=[refused], usage={"input_tokens": 5})
    said = read(
        start(), first, result(is_error=True, num_turns=1, permission_denials=[refused], usage={"input_tokens": 7}, result="Broke.")
    )
    assert (said.is_error, said.reason, said.steps) == (True, "error: Broke.", 3)
    assert said.usage == Usage(input=12)
    assert said.denials == ("Bash: rm -r build --x",), "once, on one line"


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"is_error": True, "terminal_reason": "api_error", "api_error_status": 529, "result": "Overloaded"}, "api_error 529: Overloaded"),
        ({"subtype": "error_max_turns", "is_error": False, "terminal_reason": ""}, "error_max_turns"),
        ({"subtype": "error_max_budget_usd", "terminal_reason": None, "errors": ["Reached $1"]}, "error_max_budget_usd: Reached $1"),
        ({"terminal_reason": "aborted_tools"}, "aborted_tools"),
        ({"is_error": "yes"}, "error"),
        ({"is_error": True, "errors": [7], "result": 8, "api_error_status": "x"}, "error"),
        ({"result": "all is well"}, ""),
    ],
)
def test_why_a_result_is_an_error(shape: dict[str, Any], reason: str) -> None:
    said = read(result(**shape))
    assert (said.reason, said.is_error) == (reason, bool(reason))


def test_without_a_result_the_turn_has_not_ended() -> None:
    spoken = {"type": "assistant", "session_id": ME, "message": {"content": [{"type": "text", "text": "On it."}]}}
    inner = {**spoken, "parent_tool_use_id": "t1", "message": {"content": [{"type": "text", "text": "An agent of mine."}]}}
    waits = {"type": "system", "subtype": "background_tasks_changed", "session_id": ME, "tasks": [{"description": "make test"}]}
    said = read(start(), spoken, inner, waits)
    assert (said.ended, said.message, said.unfinished) == (False, "On it.", ("make test",))
    cut = stream(start(), result())[:-20]
    assert (protocols.read("claude", cut) or Outcome(ended=True)).ended is False
    assert protocols.read("claude", b"Invalid API key\n") is None
    assert protocols.read("nobody", stream(result())) is None


def test_a_log_that_was_cut_in_the_middle() -> None:
    whole = stream(start(), *[{"type": "user", "session_id": ME, "n": n} for n in range(100)], result(result="Done."))
    said = protocols.read("claude", whole[:1000] + b"\n[nightcrew: truncated 99 bytes]\n" + whole[-300:])
    assert said is not None
    assert (said.ended, said.session, said.message) == (True, ME, "Done.")


def test_what_it_says_is_bounded_and_harmless() -> None:
    denial = {"tool_name": "\x1b[31mBash" * 200, "tool_input": {"command": "\x1b]0;x\x07" * 999}}
    said = read(
        start("x" * 500),
        result(session="", is_error=True, errors=["\x1b[2J" * 9999], result="m" * 10**6, permission_denials=[denial] * 500),
    )
    assert len(said.message) == 8000
    assert len(said.denials) == 20
    assert all(line.isprintable() and len(line) < 500 for line in (*said.denials, said.reason))
    assert said.session == "", "no id is that long"
    assert read(result(num_turns=1.5, total_cost_usd=-1, usage={"input_tokens": 2**70}, structured_output=True)).usage == Usage()
    raw = b'{"type":"result","structured_output":' + b"[" * 5000 + b"]" * 5000 + b"}\n"
    assert protocols.read("claude", raw + stream(start())) == Outcome(session=ME, began=True, models=("m",))


def test_codex_threads_inside_are_not_its_own() -> None:
    inside: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": OTHER}, {"type": "turn.failed", "error": {"message": "no"}}]
    own: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": ME}, {"type": "turn.started"}]
    item = {"type": "item.completed", "item": {"type": "agent_message", "text": "Mine."}}
    ended = {
        "type": "turn.completed",
        "usage": {"input_tokens": 9, "cached_input_tokens": 4, "cache_write_input_tokens": 2, "output_tokens": 3},
    }
    said = read(*own, *inside, item, ended, protocol="codex")
    assert said == Outcome(ended=True, message="Mine.", session=ME, began=True, usage=Usage(3, 3, 4, 2))
    assert read(*own, *inside, protocol="codex").ended is False


def test_gemini() -> None:
    """A tool that its policy refuses, as the source of Gemini CLI 0.61.0 writes it."""
    shapes: list[dict[str, Any]] = [
        {"type": "init", "timestamp": "t", "session_id": ME, "model": "gemini-x"},
        {"type": "message", "role": "user", "content": "do it"},
        {"type": "message", "role": "assistant", "content": "I try", "delta": True},
        {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "c1", "parameters": {"command": "ls"}},
        {"type": "tool_result", "tool_id": "c1", "status": "error", "error": {"type": "policy_violation", "message": "denied by policy"}},
        {"type": "message", "role": "assistant", "content": "I could ", "delta": True},
        {"type": "message", "role": "assistant", "content": "not.", "delta": True},
    ]
    stats = {"input_tokens": 10, "cached": 4, "output_tokens": 2, "models": {"gemini-x": {}}}
    said = read(*shapes, {"type": "result", "status": "success", "stats": stats}, protocol="gemini")
    assert said == Outcome(
        True, denials=("run_shell_command: ls",), message="I could not.", session=ME, began=True, usage=Usage(6, 2, 4), models=("gemini-x",)
    )
    failed = {"type": "result", "status": "error", "error": {"type": "FatalTurnLimitedError", "message": "Reached max session turns"}}
    assert read(*shapes, failed, protocol="gemini").reason == "Reached max session turns"
    kinds = [entry.kind for entry in protocols.transcript("gemini", [stream(*shapes)])]
    assert kinds == ["start", "message", "message", "tool", "denied", "message"]


def test_a_transcript_marks_what_was_denied() -> None:
    told = list(protocols.transcript("claude", [(DATA / "claude-2.1.329" / "denied.jsonl").read_bytes()]))
    assert [entry.kind for entry in told] == ["start", "message", "tool", "denied", "message", "end"]
    assert told[2] == Entry("tool", "agent", "python3 -c 'print(1)'", tool="Bash", call=told[3].call)
    assert (told[3].call[:6], told[3].ok) == ("toolu_", False)


_NAMES = """type subtype session_id message content result is_error tasks permission_denials tool_input usage modelUsage memory_paths auto
num_turns item error changes status stats models tool_result_meta id tool_use_id parent_tool_use_id role thread_id errors tool_id parameters
sessionID part state structured_output"""
_WORDS = """system init assistant user result message tool_use tool_result thread.started turn.completed turn.failed item.completed
item.started text permission_denied background_tasks_changed success error step_start step_finish"""
NAMES, WORDS = _NAMES.split(), _WORDS.split()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
SHAPES = st.builds(
    lambda kind, rest: {**rest, "type": kind}, st.sampled_from(WORDS), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
)


@given(shapes=st.lists(SHAPES, max_size=6), rest=st.binary(max_size=40), cut=st.integers(0, 400))
def test_nothing_raises(shapes: list[dict[str, Any]], rest: bytes, cut: int) -> None:
    data = stream(*shapes)[cut:] + rest
    for protocol in ("claude", "codex", "gemini", "opencode"):
        protocols.read(protocol, data)
        told = list(protocols.transcript(protocol, [data]))
        assert told == list(protocols.transcript(protocol, [data[n : n + 7] for n in range(0, len(data), 7)])), "pieces make no difference"


def test_lines_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES", 1000)
    long = {"type": "long", "text": "x" * 2000}
    data = stream(long, {"type": "one"}, long, {"type": "two"}, long)
    data = data[:-1]
    for size in (1, 64, 999, 1001, 10**6):
        found = lines.objects([data[n : n + size] for n in range(0, len(data), size)])
        assert [one["type"] for one in found] == ["one", "two"], size
