from __future__ import annotations

import os
from pathlib import Path

from agents.kinds import kinds
from supervisor.faces.status import ON_STDERR, detail, last_line
from tests.faces.test_made_of import view


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


def test_the_line_of_an_agent_is_what_it_says_to_people(tmp_path: Path) -> None:
    records = tmp_path / "runs" / "r/t" / "1"
    records.mkdir(parents=True)
    (records / "stdout.log").write_text('{"type":"assistant"}\n')
    (records / "stderr.log").write_text("> bash make test\n")
    assert detail(view(tier=1, kind="builtin"), tmp_path) == "> bash make test"
    assert detail(view(tier=1), tmp_path) == '{"type":"assistant"}'
    assert {name for name, kind in kinds().items() if kind.output == "json lines"} == ON_STDERR
