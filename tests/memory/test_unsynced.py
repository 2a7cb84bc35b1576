"""The directory of a file that was exchanged or moved cannot be synced: the answer says what is there, and the rows do."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.versions import PERSON, Action
from memory.writing import Store
from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import ToolFailed
from tests.memory.kit import FIX, opened, text_of


@pytest.fixture
def broken_directories(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once it is called, no directory can be synced; files can."""
    sync = os.fsync

    def fails(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(handle)

    return lambda: monkeypatch.setattr(os, "fsync", fails)


def check(root: Path, path: str, text: str) -> None:
    """Nothing is left to be settled, no draft lies there, and nobody else wrote."""
    with opened(root) as store:
        assert text_of(store, path) == text and store.found_all([path]) == [] and store.versions.pending() == []
        assert [place.name for place in (root / "memory").rglob(".*")] == []


@pytest.mark.parametrize("old", [None, "old"])
def test_a_text_that_is_there_is_not_said_to_be_refused(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, broken_directories: Callable[[], None], old: str | None
) -> None:
    if old is not None:
        store.put("semantic/a.md", old, PERSON)
    broken_directories()
    with pytest.raises(ToolFailed, match="could not be synced: Input/output error; kept: the new text") as raised:
        store.put("semantic/a.md", "new", PERSON)
    assert raised.value.on == str(root / "memory/semantic/a.md")
    assert text_of(store, "semantic/a.md") == "new" and store.changes("semantic/a.md", 1)[0].author == "person"
    monkeypatch.undo()
    store.put("semantic/a.md", "new", PERSON)
    check(root, "semantic/a.md", "new")


def test_what_was_replaced_within_the_last_moment_is_kept_all_the_same(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, broken_directories: Callable[[], None]
) -> None:
    store.put("semantic/a.md", "old", PERSON)
    exchange = untrusted_fs.exchange

    def late(handle: int, one: str, other: str) -> bool:
        (root / "memory/semantic/a.md").write_text("an editor's")
        broken_directories()
        return exchange(handle, one, other)

    monkeypatch.setattr(untrusted_fs, "exchange", late)
    with pytest.raises(ToolFailed):
        store.put("semantic/a.md", "new", FIX)
    monkeypatch.undo()
    store.put("semantic/b.md", "another", PERSON)
    assert text_of(store, "semantic/a.conflict-unknown.md") == "an editor's"
    assert text_of(store, "semantic/a.md").endswith("new")


def test_a_file_that_was_moved_is_said_to_be_in_the_archive(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, broken_directories: Callable[[], None]
) -> None:
    store.put("semantic/a.md", "old", PERSON)
    broken_directories()
    with pytest.raises(ToolFailed, match=f"kept: it is at {root}/archive/semantic/a.md"):
        store.remove("semantic/a.md", PERSON)
    monkeypatch.undo()
    assert store.read("semantic/a.md") is None and (root / "archive/semantic/a.md").read_text() == "old"
    assert store.changes("semantic/a.md", 1)[0].action is Action.REMOVE
    store.restore("semantic/a.md", PERSON)
    check(root, "semantic/a.md", "old")


def test_every_file_that_is_written_whole_says_the_same(tmp_path: Path, broken_directories: Callable[[], None]) -> None:
    files.atomic_write(tmp_path / "one", b"old")
    broken_directories()
    with pytest.raises(ToolFailed, match="could not be synced: Input/output error; kept: the new content"):
        files.atomic_write(tmp_path / "one", b"new")
    assert (tmp_path / "one").read_bytes() == b"new" and [path.name for path in tmp_path.iterdir()] == ["one"]
