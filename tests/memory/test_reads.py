"""Who read what."""

from __future__ import annotations

from pathlib import Path

from memory.versions import ReadBook, Reads


def test_reads_are_counted_by_reader(tmp_path: Path) -> None:
    with ReadBook.opened(tmp_path / "memory.db") as book:
        book.note(["a", "b", "a"], "1/x", 5.0, given=True)
        book.note(["a"], "1/x", 6.0, given=False)
        book.note(["a"], "1/x", 6.5, given=True)
        book.note(["a"], "person", 7.0, given=False)
    with ReadBook.opened(tmp_path / "memory.db") as book:
        assert book.reads() == {"a": Reads(4, 2, 7.0), "b": Reads(1, 1, 5.0)}
