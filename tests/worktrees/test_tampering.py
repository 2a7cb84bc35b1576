"""Which look notices that a rescue ref was moved: the next one, unless there are so many that looking costs too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worktrees.conftest import World
from worktrees import private_repository
from worktrees.private_repository import RefGuard
from worktrees.repository import Repository

REF = "refs/nightcrew/rescue/r1/fix/1"


class SlowClock:
    """Each look takes ten seconds."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repo()


@pytest.fixture
def guard(world: World, repo: Repository) -> RefGuard:
    """That has looked once since it began."""
    world.sh(repo.root, "update-ref", REF, repo.head)
    made = RefGuard(SlowClock())
    made.begin(repo)
    assert made.changed(repo) == ()
    return made


def remove(world: World, root: Path) -> None:
    world.sh(root, "update-ref", "-d", REF)


def test_a_few_refs_are_looked_at_each_time_however_slow_the_look_was(world: World, repo: Repository, guard: RefGuard) -> None:
    remove(world, repo.root)
    assert guard.changed(repo) == (REF,)
    assert guard.changed(repo) == ()


def test_many_are_looked_at_for_a_twentieth_of_the_time(
    world: World, repo: Repository, guard: RefGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_repository, "_FEW", 0)
    assert guard.changed(repo) == ()
    remove(world, repo.root)
    looks = [guard.changed(repo) for _ in range(30)]
    assert looks.index((REF,)) == 18 and looks.count((REF,)) == 1
