"""How much work a task is, when its plan says `size = "auto"`, and what a task of each size gets: pure, by stated rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

NAMES: Final = ("small", "medium", "large")
WORDS: Final = (80, 400)
"""A prompt of at most so many words is small, of at most so many medium."""
FILES: Final = (200, 5000)
"""The same for the files that the repository has at the commit the task starts from."""
BYTES: Final = (2 * 2**20, 100 * 2**20)
"""And for how much they hold."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What is measured of a repository: its files at one commit."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """`[size.NAME]`: what a task of one size gets that does not say so itself. 0 and empty: nothing."""

    cores: int = 0
    memory_max: int = 0
    models: Mapping[str, str] = field(default_factory=dict)
    """By kind of agent."""


def auto(prompt: str | None, repository: Repository | None) -> tuple[str, str]:
    """The size of a task, and by what, for people. The prompt and the repository each say how large they are (the larger of files and
    bytes); the task is what lies in the middle, and the larger one of two that are neighbours. Where only one is known it decides; with
    nothing known a task is medium."""
    measured = [*_of_prompt(prompt), *_of_repository(repository)]
    if not measured:
        return "medium", "nothing to measure it by"
    levels = [level for level, _ in measured]
    return NAMES[(sum(levels) + len(levels) - 1) // len(levels)], " and ".join(words for _, words in measured)


def _of_prompt(prompt: str | None) -> list[tuple[int, str]]:
    if prompt is None:
        return []
    words = len(prompt.split())
    return [(_level(words, WORDS), f"a prompt of {words} words")]


def _of_repository(repository: Repository | None) -> list[tuple[int, str]]:
    if repository is None:
        return []
    level = max(_level(repository.files, FILES), _level(repository.bytes, BYTES))
    return [(level, f"{repository.files} file{'s' if repository.files != 1 else ''} of {repository.bytes / 2**20:.1f} MiB")]


def _level(value: int, bounds: tuple[int, int]) -> int:
    return sum(value > bound for bound in bounds)
