"""What a walk through a directory finds different."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memory import rescan
from memory.rescan import Rescan, is_file
from supervisor.kernel.path_globs import kind_of

LATER = 10**12
"""Nanoseconds by which the clock of a walk is ahead of the files': none of them is fresh."""


def walked(files: Rescan) -> list[str]:
    return sorted(path for piece in files.walk() for path in piece)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    (tmp_path / "memory" / "semantic").mkdir(parents=True)
    return tmp_path / "memory"


def of(memory: Path, ahead: int = LATER, wanted: Callable[[str], bool] = lambda path: kind_of(path) is not None) -> Rescan:
    return Rescan(memory.parent, "memory", wanted, lambda: os.stat(memory).st_ctime_ns + ahead)


def test_it_finds_what_is_new_changed_replaced_and_gone(memory: Path) -> None:
    files = of(memory)
    for name in ("same", "longer", "replaced", "gone", "touched"):
        (memory / "semantic" / f"{name}.md").write_text("one")
    (memory / "core.md").write_text("one")
    assert len(walked(files)) == 6
    assert walked(files) == []
    (memory / "semantic" / "longer.md").write_text("one and more")
    (memory / "draft").write_text("two")
    (memory / "draft").rename(memory / "semantic" / "replaced.md")
    (memory / "semantic" / "gone.md").unlink()
    os.utime(memory / "semantic" / "touched.md", (1, 1))
    (memory / "procedural").mkdir()
    (memory / "procedural" / "new.md").write_text("one")
    assert walked(files) == ["procedural/new.md", *(f"semantic/{name}.md" for name in ("gone", "longer", "replaced", "touched"))]
    assert len(files) == 6


def test_a_file_of_the_same_length_and_time_is_found_by_its_inode_or_ctime(memory: Path) -> None:
    files, note = of(memory), memory / "semantic" / "a.md"
    note.write_text("one")
    os.utime(note, ns=(1, 1))
    assert walked(files) == ["semantic/a.md"]
    note.write_text("two")
    os.utime(note, ns=(1, 1))
    assert walked(files) == ["semantic/a.md"]


def test_what_changed_a_moment_ago_is_looked_at_once_more(memory: Path) -> None:
    """Times move by a tick of the kernel: a second write in the same tick leaves them as they were."""
    files = of(memory, ahead=0)
    (memory / "semantic" / "a.md").write_text("one")
    assert walked(files) == walked(files) == ["semantic/a.md"]


def test_what_is_no_plain_file_or_lies_at_no_path_of_ours_does_not_count(memory: Path) -> None:
    (memory / "semantic" / "real.md").write_text("x")
    (memory / "semantic" / "link.md").symlink_to("/etc/passwd")
    (memory / "semantic" / "deep").mkdir()
    (memory / "semantic" / "deep" / "a.md").write_text("x")
    (memory / "semantic" / ".draft.md").write_text("x")
    (memory / "procedural").symlink_to("semantic")
    os.mkfifo(memory / "semantic" / "pipe.md")
    files = of(memory)
    assert walked(files) == ["semantic/real.md"]
    assert files.look(["semantic/link.md", "procedural/real.md", "semantic/pipe.md", "../memory/core.md"]) == []


def test_deep_trees_are_not_entered(memory: Path) -> None:
    deep = memory / "a" / "b" / "c" / "d" / "e"
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent, deep.parent.parent):
        (folder / "x").write_text("x")
    assert walked(of(memory, wanted=lambda _: True)) == ["a/b/c/x"]


def test_a_directory_that_is_not_there_has_nothing(memory: Path) -> None:
    files = of(memory)
    (memory / "core.md").write_text("x")
    assert walked(files) == ["core.md"]
    memory.rename(memory.with_name("elsewhere"))
    files = Rescan(memory.parent, "memory", lambda _: True, lambda: 0)
    assert walked(files) == []
    memory.symlink_to("elsewhere")
    assert walked(files) == []
    assert not is_file(memory.parent, "memory/core.md", 10)


def test_all_of_a_directory_that_vanished_is_gone(memory: Path) -> None:
    files = Rescan(memory.parent, "memory", lambda _: True, lambda: LATER**2)
    (memory / "core.md").write_text("x")
    assert walked(files) == ["core.md"]
    memory.rename(memory.with_name("elsewhere"))
    assert walked(files) == ["core.md"]
    assert walked(files) == []


def test_a_walk_is_cut_into_pieces_and_ends(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescan, "PIECE", 10)
    for number in range(35):
        (memory / "semantic" / f"n{number}.md").write_text("x")
    files = of(memory)
    assert max(len(piece) for piece in files.walk()) <= 10
    assert len(files) == 35
    assert files.is_whole
    for number in range(35):
        (memory / "semantic" / f"n{number}.md").unlink()
    pieces = list(files.walk())
    assert max(map(len, pieces)) == 10
    assert sum(map(len, pieces)) == 35


def test_a_walk_that_ends_early_calls_nothing_gone(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (memory / "semantic" / f"n{number}.md").write_text("x")
    files = of(memory)
    walked(files)
    monkeypatch.setattr(rescan, "ENTRIES_MAX", 10)
    assert walked(files) == []
    assert not files.is_whole


def test_what_is_forgotten_is_found_again(memory: Path) -> None:
    (memory / "core.md").write_text("x")
    files = of(memory)
    assert walked(files) == ["core.md"]
    files.forget()
    assert walked(files) == ["core.md"]
    files.forget()
    (memory / "core.md").unlink()
    assert files.look(["core.md"]) == ["core.md"]


def test_a_note_is_there_when_it_holds_something_and_not_too_much(memory: Path) -> None:
    note = memory / "semantic" / "a.md"
    assert not is_file(memory.parent, "memory/semantic/a.md", 10)
    note.touch()
    assert not is_file(memory.parent, "memory/semantic/a.md", 10)
    note.write_text("x" * 10)
    assert is_file(memory.parent, "memory/semantic/a.md", 10)
    note.write_text("x" * 11)
    assert not is_file(memory.parent, "memory/semantic/a.md", 10)
