"""A conversation that goes on in another process, from its transcript."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.builtin.kit import Bench


def resumed(bench: Bench) -> tuple[str, ...]:
    return ("--session-id", "s-1", "--resume", str(bench.out / "transcript.jsonl"))


def test_it_goes_on_where_a_tool_was_under_way(bench: Bench) -> None:
    """The request begins with the bytes of those before, and says of the open call that it was interrupted."""
    bench.tools(("bash", {"command": "echo first"}))
    bench.tools(("bash", {"command": "echo second; kill -9 $PPID"}))
    assert bench.run("Count to three.", words=("--session-id", "s-1")).code == -9
    file = bench.out / "transcript.jsonl"
    file.write_bytes(file.read_bytes() + b'{"type":"assistant","cut')
    file.write_bytes(file.read_bytes().rpartition(b"\n")[0] + b"\n")  # as it is handed on
    bench.sim.faults(text="Three.", contains="first", times=1)
    ran = bench.run("Go on.", words=resumed(bench))
    assert (ran.code, ran.result["result"], ran.result["session_id"]) == (0, "Three.", "s-1")
    assert [block["content"] for block in ran.tool_results] == ["interrupted; it did not finish"]
    assert ran.result["usage"]["cache_read_input_tokens"] > 0, "the prefix is the same to the byte"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["type"] for line in lines].count("assistant") == 3 and lines[-1]["result"] == "Three."


@pytest.mark.parametrize("content", ["", "{\n", '{"type": "assistant"}\n', "[]\n", '{"type":"system"}\n', None])
def test_a_transcript_that_is_none_ends_it_at_once(bench: Bench, content: str | None) -> None:
    bench.out.mkdir()
    transcript = bench.out / "transcript.jsonl"
    if content is not None:
        transcript.write_text(content)
    where = transcript if content is not None else Path(bench.out, "nowhere")
    ran = bench.run(words=("--resume", str(where)))
    assert (ran.code, ran.result["terminal_reason"]) == (3, "bad_settings")
    assert "cannot go on with the conversation" in ran.result["result"] and len(ran.lines) == 1, "nothing was asked"
