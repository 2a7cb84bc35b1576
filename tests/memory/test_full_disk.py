"""A disk that is full (battery S04): what was there stays whole, and all goes on once there is room."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import files
from memory.versions import PERSON
from supervisor.kernel.errors import DiskFull
from tests import support
from tests.memory.kit import FIX, TODAY, opened, text_of

OLD = "old " * 10_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with support.small_disk(tmp_path / "small", "size=3m") as place:
        yield place


def fill(ballast: Path, *, spare: int) -> None:
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(max(0, file.tell() - spare))


@pytest.mark.root
@pytest.mark.parametrize("spare", [0, 16, 48, 80, 120, 160, 240])
def test_a_full_disk_leaves_the_old_text(small_disk: Path, spare: int) -> None:
    """With room for the row and none for the draft, with room for the draft and none for the row, and so on."""
    with opened(small_disk / "project") as store:
        store.put("semantic/a.md", OLD, PERSON)
        store.append({"text": "one"}, PERSON)
        fill(small_disk / "ballast", spare=spare * 1024)
        before, said = OLD, 0
        for number in range(12):
            new = f"new {number} " * 5000
            try:
                store.put("semantic/a.md", new, PERSON)
                before = new
            except DiskFull as error:
                said += 1
                assert "bytes free" in error.why and error.kept  # noqa: PT017 - it may be written as well
            assert text_of(store, "semantic/a.md") == before
        lines = ["one"]
        for number in range(2000):
            try:
                store.append({"text": f"line {number} " * 100}, FIX)
                lines.append(f"line {number} " * 100)
            except DiskFull:
                said += 1
                break
        records, skipped = store.day(TODAY)
        assert said >= 2 and [record["text"] for record in records] == [line.strip() if line == "one" else line for line in lines]
        assert not skipped
        (small_disk / "ballast").unlink()
        store.put("semantic/a.md", "at last", PERSON)
        store.append({"text": "last"}, PERSON)
        assert text_of(store, "semantic/a.md") == "at last" and store.versions.pending() == []
        assert [path.name for path in (small_disk / "project/memory").rglob(".*")] == []
    with opened(small_disk / "project") as store:
        assert store.found_all(["semantic/a.md", TODAY]) == [], "nobody else wrote"


@pytest.mark.root
@pytest.mark.parametrize("old", [None, "old"])
def test_what_is_written_was_written(small_disk: Path, monkeypatch: pytest.MonkeyPatch, old: str | None) -> None:
    """The disk fills after the file was exchanged, and before its row is done."""
    replace = files.replace

    def fills(*args: Any) -> Any:
        outcome = replace(*args)
        fill(small_disk / "ballast", spare=0)
        return outcome

    with opened(small_disk / "project") as store:
        if old is not None:
            store.put("semantic/a.md", old, PERSON)
        monkeypatch.setattr(files, "replace", fills)
        put = store.put("semantic/a.md", "new", PERSON)
        assert text_of(store, "semantic/a.md") == "new" and store.versions.pending(), "its row waits for room"
        monkeypatch.undo()
        with pytest.raises(DiskFull):
            store.put("semantic/a.md", "newer", PERSON)
        assert text_of(store, "semantic/a.md") == "new"
        (small_disk / "ballast").unlink()
        assert store.found_all(["semantic/a.md"]) == [] and store.versions.pending() == []
        assert [change.version for change in store.changes("semantic/a.md", 1)] == [put.version]
        assert [path.name for path in (small_disk / "project/memory").rglob(".*")] == []
