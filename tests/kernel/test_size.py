"""How much work a task is, by what can be measured of it."""

from __future__ import annotations

import pytest

from supervisor.kernel.spec import Repository, auto_size

MIB = 2**20
SMALL, MEDIUM, LARGE = Repository(12, MIB), Repository(900, 3 * MIB), Repository(20_000, 300 * MIB)


@pytest.mark.parametrize(
    ("words", "repository", "expected"),
    [
        (10, SMALL, "small"),
        (10, MEDIUM, "medium"),
        (10, LARGE, "medium"),
        (200, SMALL, "medium"),
        (200, MEDIUM, "medium"),
        (200, LARGE, "large"),
        (900, SMALL, "medium"),
        (900, MEDIUM, "large"),
        (900, LARGE, "large"),
        (80, Repository(200, 2 * MIB), "small"),
        (81, Repository(201, 0), "medium"),
        (400, Repository(3, 2 * MIB + 1), "medium"),
        (401, Repository(3, 100 * MIB + 1), "large"),
        (10, None, "small"),
        (900, None, "large"),
    ],
)
def test_the_middle_of_prompt_and_repository(words: int, repository: Repository | None, expected: str) -> None:
    assert auto_size("word " * words, repository)[0] == expected


def test_a_command_is_as_large_as_its_repository() -> None:
    assert [auto_size(None, one)[0] for one in (SMALL, MEDIUM, LARGE, None)] == ["small", "medium", "large", "medium"]


def test_it_says_what_it_measured() -> None:
    assert auto_size("fix it", SMALL)[1] == "a prompt of 2 words and 12 files of 1.0 MiB"
    assert auto_size(None, None)[1] == "nothing to measure it by"
