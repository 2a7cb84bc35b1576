from __future__ import annotations

import json
import os
from pathlib import Path

from supervisor.views.status import last_line
from tests.agents.protocols.scenarios import DATA


def test_the_last_line_is_read_again_when_the_log_changes(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    assert last_line(log) == ""
    log.write_text("one\n\n")
    assert last_line(log) == "one"
    with log.open("a") as file:
        file.write("two\nthree")
    assert last_line(log) == "three"
    before = log.stat().st_mtime_ns
    log.write_text("one\n\ntwo\nTHREE")
    os.utime(log, ns=(before, before + 1))  # the same size
    assert last_line(log) == "THREE"
    log.unlink()
    assert last_line(log) == ""


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("x" * 100_000 + "\nlast \n \n")
    assert last_line(log) == "last"


def test_what_an_agent_put_in_the_place_of_its_log_is_not_read(tmp_path: Path) -> None:
    """A pipe would never end, and a link would show a file of the reader's."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("the reader's own\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "directory").mkdir()
    assert [last_line(tmp_path / name) for name in ("pipe", "link", "directory", "absent")] == [""] * 4


def test_of_a_stream_of_json_it_is_what_the_agent_said_last(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    stream = (DATA / "claude-2.1.329" / "denied.jsonl").read_bytes()
    log.write_bytes(stream)
    assert last_line(log) == "I could not run it."
    log.write_bytes(b"".join(line for line in stream.splitlines(keepends=True)[:3]))
    assert last_line(log) == "Bash python3 -c 'print(1)'"
    big = json.dumps({"type": "user", "text": "x" * 100_000})
    log.write_bytes(stream + big.encode() + b"\n")
    assert last_line(log) == "I could not run it.", "what a tool printed is not shown"
    log.write_bytes((DATA / "codex-0.169.0" / "tool.jsonl").read_bytes())
    assert last_line(log) == "Committed."
    log.write_text('{"no": "stream of ours"}\n')
    assert last_line(log) == '{"no": "stream of ours"}'
