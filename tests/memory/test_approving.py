"""An approval that a disk does not let end: all of it or nothing, said in the error, and it can be repeated."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.versions import PERSON
from memory.writing import Store
from supervisor.host import untrusted_fs
from supervisor.kernel.errors import DiskFull, Refused, ToolFailed
from tests import support
from tests.memory.kit import DOUBTFUL, FIX, TODAY, opened, text_of

OLD, NEW, LONG = "old " * 2000, "new " * 10_000, "line " * 600
HOW = "procedural/a.md"


def propose(store: Store) -> None:
    store.put(HOW, OLD, PERSON)
    store.put(HOW, NEW, FIX)
    store.append({"text": "one"}, PERSON)
    for number in range(20):
        store.append({"text": f"{number} {LONG}"}, DOUBTFUL)


def is_approved(store: Store, path: str) -> bool:
    """Whether others read it; what is there is the old or the new, whole."""
    if path == HOW:
        text = text_of(store, path)
        assert text == OLD or text.endswith(NEW)
        return text != OLD
    records, skipped = store.day(path)
    assert not skipped and len(records) in (1, 21)
    return len(records) == 21


def end(store: Store, path: str) -> None:
    """The approval again, with room: it is made once, and nothing is left."""
    assert store.approve(path, PERSON).conflict == ""
    assert is_approved(store, path) and path not in [entry.path for entry in store.quarantined()]
    assert [entry.path for entry in store.entries()] == [TODAY, HOW] and store.versions.pending() == []
    assert store.found_all([path]) == [], "nobody else wrote"


@pytest.mark.parametrize("path", [HOW, TODAY])
def test_what_cannot_be_moved_is_not_approved(store: Store, root: Path, path: str) -> None:
    """Something lies in the place of the archive's directory."""
    propose(store)
    (root / "archive").write_text("")
    with pytest.raises(Refused):
        store.approve(path, PERSON)
    assert not is_approved(store, path) and store.versions.pending() == []
    (root / "archive").unlink()
    end(store, path)


@pytest.mark.parametrize("path", [HOW, TODAY])
def test_what_is_approved_and_still_waits_is_only_moved_by_the_next_approval(
    store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    propose(store)

    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(untrusted_fs, "move_new", full)
    with pytest.raises(DiskFull, match="kept: it is approved, and still waits; next: nightcrew mem approve"):
        store.approve(path, PERSON)
    assert is_approved(store, path)
    monkeypatch.undo()
    end(store, path)


def test_an_approval_beside_a_changed_note_is_repeated_beside_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    propose(store)
    store.put(HOW, "mine", PERSON)
    move = untrusted_fs.move_new
    monkeypatch.setattr(untrusted_fs, "move_new", lambda here, name, there, to: name != "a.md" and move(here, name, there, to))
    monkeypatch.setattr("memory.files.NUMBERS", 2)
    with pytest.raises(Refused):
        store.approve(HOW, PERSON)
    monkeypatch.undo()
    put = store.approve(HOW, PERSON)
    assert put.conflict == "procedural/a.conflict-person.md" and text_of(store, put.conflict).endswith(NEW)
    assert text_of(store, HOW) == "mine"
    assert [entry.path for entry in store.entries()] == [TODAY, put.conflict, HOW]


def test_lines_that_were_written_by_hand_are_approved_too(store: Store, root: Path) -> None:
    propose(store)
    for top in ("memory", "quarantine"):
        with (root / top / TODAY).open("a") as day:
            day.write(f'{{"text": "by hand in {top}"}}\n')
    store.approve(TODAY, PERSON)
    texts = [record["text"] for record in store.day(TODAY)[0]]
    assert len(texts) == 23 and texts[1] == "by hand in memory" and texts[-1] == "by hand in quarantine"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with support.small_disk(tmp_path / "small", "size=3m") as place:
        yield place


@pytest.mark.root
@pytest.mark.parametrize("spare", range(0, 320, 16))
@pytest.mark.parametrize("path", [HOW, TODAY])
def test_a_disk_that_fills_leaves_nothing_half_approved(small_disk: Path, path: str, spare: int) -> None:
    with opened(small_disk / "project") as store:
        propose(store)
    with opened(small_disk / "project") as store:
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            file.truncate(max(0, file.tell() - spare * 1024))
        try:
            store.approve(path, PERSON)
        except (DiskFull, ToolFailed) as error:
            waits = path in [entry.path for entry in store.quarantined()]
            assert waits and ("nothing of it is approved" in error.kept) is not is_approved(store, path)  # noqa: PT017 - it may go well
        else:
            assert is_approved(store, path)
        ballast.unlink()
        if path in [entry.path for entry in store.quarantined()]:
            end(store, path)
