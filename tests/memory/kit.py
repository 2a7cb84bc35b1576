"""A memory of its own, with a wall clock that only tests move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory.files import Layout
from memory.versions import Author
from memory.writing import Store, Terms

FIX, TWO = Author("1123-k3f9/fix", 1, "claude"), Author("1123-k3f9/two", 1, "codex")
DOUBTFUL = Author("1123-k3f9/fix", 2, "claude", trusted=False)
START = 1_795_456_800.0
"""2026-11-23T18:00:00Z."""
TODAY = "episodic/2026-11-23.jsonl"


@dataclass
class Wall:
    now: float = START

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@contextmanager
def opened(root: Path, terms: Terms | None = None) -> Iterator[Store]:
    root.mkdir(exist_ok=True)
    (root / "memory").mkdir(exist_ok=True)
    store = Store(Layout(root), Wall(), lambda: terms or Terms())
    try:
        yield store
    finally:
        store.close()


def text_of(store: Store, path: str) -> str:
    found = store.read(path)
    assert found is not None, f"{path} is not there"
    return found.text


def version(store: Store, path: str) -> str:
    found = store.read(path)
    return found.version if found is not None else ""
