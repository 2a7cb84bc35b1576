"""A stream of an agent, as a person reads it."""

from __future__ import annotations

import json

import pytest

from agents import protocols
from agents.protocols import Entry
from supervisor.client import transcript
from tests.agents.protocols.scenarios import DATA


def lines(*entries: Entry, color: bool = False) -> list[str]:
    return list(transcript.lines(entries, color=color))


def recorded(name: str) -> list[str]:
    stdout = (DATA / f"{name}.jsonl").read_bytes()
    return lines(*protocols.transcript(protocols.recognised(stdout), [stdout]))


def test_a_turn_that_was_denied_a_tool() -> None:
    first, *rest = recorded("claude-2.1.329/denied")
    assert first == "-- claude-opus-5-5"
    assert rest == [
        "agent: [simulated] Bash",
        "  Bash  python3 -c 'print(1)'  -> DENIED: This command requires approval",
        "agent: I could not run it.",
        "-- the turn ended",
    ]


def test_a_turn_that_failed() -> None:
    assert recorded("claude-2.1.329/max-turns")[-1] == "-- failed: max_turns: Reached maximum number of turns (2)"
    assert recorded("claude-2.1.329/max-turns")[2].split("  -> ")[1].startswith("failed: File does not exist.")
    assert recorded("codex-0.169.0/failed")[1:] == ["error: invalid request", "-- failed: invalid request"]


def test_a_turn_of_codex() -> None:
    said = recorded("codex-0.169.0/tool")
    assert [line.split("  -> ")[1] for line in said if "  -> " in line] == ["ok", "ok"]
    assert said[-2:] == ["agent: Committed.", "-- the turn ended"]


def test_calls_at_once_have_their_own_outcomes_and_one_may_have_none() -> None:
    calls = [Entry("tool", "agent", f"n {number}", tool="Bash", call=str(number)) for number in range(3)]
    outcomes = [Entry("outcome", "agent", "", call="1", ok=True), Entry("outcome", "agent/t9", "\n\nwhy\nmore", call="0", ok=False)]
    assert lines(*calls, *outcomes) == [
        "  Bash  n 1  -> ok",
        "  Bash  n 0  -> failed: why",
        "  Bash  n 2  -> no outcome",
    ]
    assert lines(Entry("outcome", "agent", "text", call="9", ok=True)) == ["  a tool  -> ok"], "its call was cut out of the log"


@pytest.mark.parametrize("kind", ["message", "tool", "outcome", "denied", "error", "start", "end"])
def test_no_control_character_passes(kind: protocols.What) -> None:
    evil = "a\x1b[2Jb\x07\x9b31m\u202ec\r\nd\x1b]0;title\x07\ttab\x0b\x85\u2028e"
    for ok in (True, False):
        shown = lines(Entry(kind, evil, evil, tool=evil, call="1", ok=ok))
        assert shown
        assert all(line.isprintable() for line in shown), shown
        colored = "".join(lines(Entry(kind, evil, evil, tool=evil, call="1", ok=ok), color=True))
        for code in ("0", "1", "2", "31", "32"):
            colored = colored.replace(f"\x1b[{code}m", "")
        assert "\x1b" not in colored


def test_as_json_every_agent_looks_the_same() -> None:
    stdout = (DATA / "claude-2.1.329" / "denied.jsonl").read_bytes()
    shapes = list(transcript.shapes(protocols.transcript("claude", [stdout])))
    call = shapes[2]["call"]
    assert shapes[2] == {
        "schema": 1,
        "kind": "tool",
        "who": "agent",
        "text": "python3 -c 'print(1)'",
        "tool": "Bash",
        "call": call,
        "ok": None,
    }
    assert (shapes[3]["kind"], shapes[3]["call"], shapes[3]["ok"]) == ("denied", call, False)
    assert json.dumps(shapes)
