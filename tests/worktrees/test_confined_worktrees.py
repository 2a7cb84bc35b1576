"""Worktrees that a confined agent turned against us: see `test_confined_attacks`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.host.untrusted_fs import remove_tree
from tests.worktrees.attack_kit import KEPT, Alive, Attempt, Plant, attempt, sparse

__all__ = ["attempt"]
pytestmark = pytest.mark.timeout(200)


# What lies in the worktree ---------------------------------------------------------------------------------------------------------------


def sparse_file(attempt: Attempt) -> None:
    """Named so that it comes before all others."""
    sparse(attempt.tree / "a sparse file")


def ignored_sparse_file(attempt: Attempt) -> None:
    sparse(attempt.tree / "ignored.bin")
    (attempt.tree / ".gitignore").write_text("*.bin\n")


def loops_of_links(attempt: Attempt) -> None:
    for name in ("a", "b", "c"):
        (attempt.tree / name).symlink_to({"a": "b", "b": "a", "c": "."}[name])


def links_to_directories_of_the_person(attempt: Attempt) -> None:
    (attempt.tree / "root").symlink_to("/")
    (attempt.tree / "git").symlink_to(attempt.repo.common_dir)
    (attempt.tree / "fd").symlink_to("/proc/self/fd")


def odd_names(attempt: Attempt) -> None:
    for name in (b"line\nbreak", b"\x1b[31mred\x1b[0m", b"\xff\xfe", b"-rf", b":(top)", b"\xe2\x80\xaeevil", b"a" * 255, b" ", b'"', b"\\"):
        Path(os.fsdecode(os.fsencode(attempt.tree) + b"/" + name)).write_text("odd\n")


def odd_names_that_wait(attempt: Attempt) -> None:
    """They reach the notes."""
    for name in (b"line\nbreak", b"\x1b[31mred\x1b[0m", b"\xff\xfe", b"\xe2\x80\xaeevil"):
        top = os.fsencode(attempt.tree) + b"/" + name
        os.mkdir(top)
        os.mkfifo(top + b"/.gitignore")


def git_in_odd_spellings(attempt: Attempt) -> None:
    for name in (".GIT", "git~1", ".g\u200cit", ".git ", "sub/.Git"):
        (attempt.tree / name).mkdir(parents=True)
        (attempt.tree / name / "config").write_text(f"[core]\n\tfsmonitor = {attempt.program}\n")


def names_that_differ_in_case(attempt: Attempt) -> None:
    for name in ("readme", "README", "Dir/x", "dir/x", "dIR"):
        (attempt.tree / name).parent.mkdir(exist_ok=True)
        (attempt.tree / name).write_text(name)


def deep(attempt: Attempt, depth: int) -> None:
    here = os.open(attempt.tree, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("deep.txt", os.O_CREAT, dir_fd=here))
    os.close(here)


def five_thousand_deep(attempt: Attempt) -> None:
    deep(attempt, 5_000)


def a_hundred_thousand_deep(attempt: Attempt) -> None:
    deep(attempt, 100_000)


def deep_in_its_repository(attempt: Attempt) -> None:
    (attempt.top / "refs" / "heads" / "deep").mkdir()
    here = os.open(attempt.top / "refs" / "heads" / "deep", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def closed_directories(attempt: Attempt) -> None:
    for name in ("objects", "refs/heads", "logs"):
        (attempt.top / name).chmod(0)


def a_hostile_commit(attempt: Attempt) -> None:
    """A tree with `.git` in it, made byte by byte, on its branch."""
    blob = attempt.git("hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = evil\n")
    inner = attempt.git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    text = b"40000 .git\0" + bytes.fromhex(inner)
    tree = attempt.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=text)
    attempt.git("reset", "-q", "--soft", attempt.git("commit-tree", tree, "-p", "HEAD", "-m", "evil"))


TREES: dict[Plant, list[str]] = {
    **dict.fromkeys(
        [
            sparse_file, ignored_sparse_file, loops_of_links, links_to_directories_of_the_person, odd_names, odd_names_that_wait,
            names_that_differ_in_case, five_thousand_deep, a_hundred_thousand_deep, deep_in_its_repository,
        ],
        KEPT,
    ),
    git_in_odd_spellings: ["done.txt"], closed_directories: ["done.txt"],
    a_hostile_commit: [],
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=[pytest.mark.soak, pytest.mark.timeout(900)] if plant is a_hundred_thousand_deep else [])
        for plant in TREES
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_worktree_that_was_turned_against_us(attempt: Attempt, nobody_alive: Alive, plant: Plant) -> None:
    plant(attempt)
    try:
        attempt.live_on(nobody_alive)
    finally:
        for directory in (attempt.top / "objects", attempt.top / "refs" / "heads", attempt.top / "logs"):
            if directory.is_dir():
                directory.chmod(0o755)
        for top in (attempt.tree, attempt.top):
            if top.is_dir():
                remove_tree(top)  # too deep for what clears the test's own directory
    assert set(attempt.kept()) >= set(TREES[plant])
