"""Securing work, removing a worktree and building a template, killed between any two changes to the file system, and done again (R01)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.worktrees.killing import died_at
from worktrees import removal, templates
from worktrees.collect_work import secure
from worktrees.environments import release

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

pytestmark = pytest.mark.parametrize("stride", [pytest.param(30), pytest.param(1, marks=pytest.mark.soak)])
STEPS_MAX = 400


def steps(stride: int, seed: int) -> Iterator[int]:
    yield from range(stride - seed % stride, STEPS_MAX, stride)
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("confined", [False, True])
def test_securing(world: World, confined: bool, stride: int, seed: int) -> None:
    world.confined = confined
    repo = world.repo()
    for number in steps(stride, seed):
        env = world.env(repo, task=f"r1/t{number}")
        tip = world.commit(env.path, "done.txt")
        (env.path / "left.txt").write_text("left\n")
        ended = died_at(number, functools.partial(secure, env, "leftover work", always=True))
        secured = secure(env, "leftover work", always=True)
        names = world.sh(repo.root, "ls-tree", "-r", "--name-only", f"refs/nightcrew/rescue/r1/t{number}/1").split()
        assert {"done.txt", "left.txt"} <= set(names), f"killed at step {number}: {secured}"
        world.sh(repo.root, "merge-base", "--is-ancestor", tip, secured.tip)
        if ended:
            break
    world.sh(repo.root, "fsck", "--strict", "--no-dangling")
    assert not list(repo.common_dir.glob("**/*.lock"))


@pytest.mark.parametrize("confined", [False, True])
def test_removing(world: World, confined: bool, stride: int, seed: int) -> None:
    world.confined = confined
    repo = world.repo()
    for number in steps(stride, seed):
        env = world.env(repo, task=f"r1/t{number}")
        world.commit(env.path, "done.txt")
        secure(env, "leftover work", always=True)
        release(env)
        ended = died_at(number, functools.partial(removal.remove, env, lambda _path: (), discard=True))
        if removal.is_gone(env):
            removal.forget(env)
        else:
            removal.remove(env, lambda _path: (), discard=True)
        left = sorted(str(path) for path in (repo.common_dir / "worktrees").glob("**/*"))
        left += sorted(str(path) for path in world.root.glob("r1/*"))
        assert not left, f"killed at step {number}"
        if ended:
            break


def test_building_a_template(world: World, stride: int, seed: int) -> None:
    repo = world.repo()
    for number in steps(stride, seed):
        place = world.tmp / "templates" / f"t{number}"
        ended = died_at(number, functools.partial(templates.build, repo, repo.head, place, lambda _tree: None))
        if not ended:
            templates.build(repo, repo.head, place, lambda _tree: None)
        templates.remove_template(templates.load(place))
        left = sorted(str(path) for path in (repo.common_dir / "worktrees").glob("**/*"))
        assert not left and not place.exists(), f"killed at step {number}"
        if ended:
            break
