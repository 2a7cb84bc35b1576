"""The door to the crontab: what was there stays as it was, and what cannot be read is not written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.host import autostart
from supervisor.kernel.errors import Refused, ToolFailed, ToolMissing

MARKER = "nightcrew night x 0123456789ab"
LINE = f"1 2 * * * x # {MARKER}"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `crontab` of shell that keeps its table in the file `table` beside it, and says what Debian's says where there is none."""
    file = tmp_path / "bin" / "crontab"
    file.parent.mkdir()
    file.write_text(
        f"""#!/bin/sh
t={tmp_path}/table
case "$1" in
-l) [ -f "$t" ] || {{ echo "no crontab for me" >&2; exit 1; }}; cat "$t";;
-r) rm "$t";;
-) cat >"$t";;
esac
"""
    )
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")
    return file


def add(tmp_path: Path) -> str:
    return autostart.change_crontab(lambda text: autostart.with_line(text, LINE, MARKER), tmp_path / "lock")


def test_what_was_there_is_given_back_byte_by_byte(program: Path, tmp_path: Path) -> None:
    table, before = tmp_path / "table", b"# of mine \xff\xfe\r\nMAILTO=\"\"\n* * * * * echo '\\%' \xe2\x80\xa8x\n"
    table.write_bytes(before)
    add(tmp_path)
    assert table.read_bytes() == before + f"{LINE}\n".encode()
    autostart.change_crontab(lambda text: autostart.without(text, MARKER), tmp_path / "lock")
    assert table.read_bytes() == before


def test_a_crontab_of_ours_alone_comes_and_goes(program: Path, tmp_path: Path) -> None:
    assert autostart.read_crontab() == ""
    add(tmp_path)
    assert autostart.read_crontab() == f"{LINE}\n"
    autostart.change_crontab(lambda text: autostart.without(text, MARKER), tmp_path / "lock")
    assert not (tmp_path / "table").exists()


def test_a_crontab_that_cannot_be_read_is_never_written(program: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("* * * * * mine\n")
    for broken in ('echo "you (me) are not allowed to use this program" >&2; exit 1', "exit 1", "head -c 5 $t; exit 1"):
        program.write_text(program.read_text().replace('case "$1" in\n', f'case "$1" in\n-l) {broken};;\n', 1))
        with pytest.raises(ToolFailed, match="cannot read the crontab"):
            add(tmp_path)
        assert table.read_text() == "* * * * * mine\n"


def test_a_crontab_that_somebody_changes_meanwhile_is_left_to_them(program: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("* * * * * mine\n")

    def meanwhile(text: str) -> str:
        table.write_text(f"{text}1 * * * * newer\n")
        return autostart.with_line(text, LINE, MARKER)

    with pytest.raises(Refused, match="changed meanwhile"):
        autostart.change_crontab(meanwhile, tmp_path / "lock")
    assert table.read_text() == "* * * * * mine\n1 * * * * newer\n"


def test_a_write_that_fails_or_does_not_hold_is_told(program: Path, tmp_path: Path) -> None:
    text = program.read_text()
    program.write_text(text.replace('-) cat >"$t"', '-) echo "-:1: bad minute" >&2; exit 1'))
    with pytest.raises(ToolFailed, match="bad minute"):
        add(tmp_path)
    program.write_text(text.replace('-) cat >"$t"', "-) cat >/dev/null"))
    with pytest.raises(Refused, match="not what was written"):
        add(tmp_path)


def test_without_the_program_the_person_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not autostart.has_crontab()
    with pytest.raises(ToolMissing, match="crontab"):
        autostart.read_crontab()
