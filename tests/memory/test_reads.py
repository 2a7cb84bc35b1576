"""Who read what, and how much of the prompts that begin alike came from the provider's cache."""

from __future__ import annotations

from pathlib import Path

from memory.reads import ReadBook, Reads


def test_reads_are_counted_by_reader(tmp_path: Path) -> None:
    with ReadBook.opened(tmp_path / "memory.db") as book:
        book.note(["a", "b", "a"], "1/x", 5.0, given=True)
        book.note(["a"], "1/x", 6.0, given=False)
        book.note(["a"], "1/x", 6.5, given=True)
        book.note(["a"], "person", 7.0, given=False)
    with ReadBook.opened(tmp_path / "memory.db") as book:
        assert book.reads() == {"a": Reads(4, 2, 7.0), "b": Reads(1, 1, 5.0)}


def test_the_hit_ratio_of_a_prefix(tmp_path: Path) -> None:
    with ReadBook.opened(tmp_path / "memory.db") as book:
        for number in range(4):
            book.briefed(f"1/t{number}", 1, ("d" * 16, 900), float(number))
        book.briefed("1/t3", 1, ("d" * 16, 900), 9.0)  # its launch was repeated
        assert len(book.uncounted()) == 4
        told = {"input": 100, "cache_read": 800, "cache_write": 100, "output": 5}
        book.count(
            {
                ("1/t0", 1): {"tokens": told, "first_request": {"input": 100, "cache_read": 0, "cache_write": 100}},
                ("1/t1", 1): {"tokens": told, "first_request": {"input": 50, "cache_read": 150, "cache_write": 0}},
                ("1/t2", 1): {"tokens": {"input": None}, "first_request": None},
            }
        )
        assert book.uncounted() == [("1/t3", 1)]
        (prefix,) = book.prefixes()
        assert (prefix.attempts, prefix.counted, prefix.bytes, prefix.last) == (4, 2, 900, 9.0)
        assert prefix.hit_ratio == 0.8 and prefix.first_hit_ratio == 0.375
