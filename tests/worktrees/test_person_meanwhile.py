"""A person commits, renames branches, packs and collects garbage without end, while attempts are secured side by side."""

from __future__ import annotations

import itertools
import os
import random
import select
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from supervisor.kernel.errors import HostError, NightcrewError, ToolFailed
from supervisor.server.attempts.jobs import SECURE_PAUSES_S
from tests.support import wait_until
from worktrees import collect_work
from worktrees.collect_work import publish, secure
from worktrees.environments import Environment, release
from worktrees.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.worktrees.conftest import World

    Alive = Callable[[Path], Sequence[int]]

COLLECT = (["worktree", "prune"], ["pack-refs", "--all"], ["gc", "-q", "--prune=now"], ["repack", "-qad"])


class Person:
    """Works in the repository as long as the `with` lasts."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.done: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def git(self, *argv: str) -> None:
        done = subprocess.run(["git", *argv], cwd=self.root, capture_output=True, text=True, check=False)
        self.done.append(argv[0])
        if done.returncode:
            self.failed.append(f"{argv}: {done.stderr}")

    def _work(self) -> None:
        number, order = 0, itertools.cycle(self.random.sample(COLLECT, len(COLLECT)))
        while not self._stop.is_set() or number < len(COLLECT):
            number += 1
            (self.root / "mine.txt").write_text(f"{number}\n")
            self.git("add", "mine.txt")
            self.git("commit", "-q", "-m", f"mine {number}")
            self.git("branch", f"b{number}")
            self.git("branch", "-m", f"b{number}", f"c/{number % 5}/{number}")
            self.git(*next(order))

    def __enter__(self) -> Person:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def again(
    act: Callable[[], object], kinds: tuple[type[NightcrewError], ...] = (NightcrewError,), pauses: Sequence[float] = (0,) * 50
) -> None:
    """A gc that prunes what is young takes unnamed objects away at any moment."""
    for pause in pauses:
        with suppress(*kinds):
            act()
            return
        time.sleep(pause)
    act()


def again_as_the_supervisor(act: Callable[[], object]) -> None:
    again(act, (ToolFailed, HostError), SECURE_PAUSES_S)


def live(world: World, env: Environment, rounds: int) -> list[str]:
    """An attempt that commits, amends, stashes, is published and secured; its commits."""
    made = []
    for number in range(rounds):
        made.append(world.commit(env.path, f"{number}.txt", env.task))
        world.sh(env.path, "commit", "-q", "--amend", "-m", "better")
        made.append(world.sh(env.path, "rev-parse", "HEAD"))
        again(lambda: publish(env))
    (env.path / "f0.txt").write_text(f"stashed by {env.task}\n")
    world.sh(env.path, "stash", "-q")
    made.append(world.sh(env.path, "rev-parse", "stash"))
    (env.path / "left.bin").write_bytes(os.urandom(5000))
    again_as_the_supervisor(lambda: secure(env, "leftover work", always=True))
    return made


@pytest.mark.parametrize(
    ("count", "rounds"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.soak), pytest.param(10, 3, marks=pytest.mark.soak)]
)
def test_nothing_of_either_is_lost(confined: World, nobody_alive: Alive, count: int, rounds: int, seed: int) -> None:
    world = confined
    repo = world.repo()
    with Person(repo.root, seed) as person:
        attempts = [world.env(repo, task=f"r1/t{number}") for number in range(count)]
        with ThreadPoolExecutor(count) as pool:
            made = list(pool.map(lambda env: live(world, env, rounds), attempts))
    assert {"gc", "repack", "worktree"} <= set(person.done)
    assert not person.failed
    assert world.sh(repo.root, "fsck", "--no-dangling") == ""
    for env, oids in zip(attempts, made, strict=True):
        assert set(oids) <= world.kept(env)
        assert "left.bin" in world.names(repo, env.branch)
        release(env)
        remove(env, nobody_alive, discard=True)
    world.sh(repo.root, "gc", "-q", "--prune=now")
    for env, oids in zip(attempts, made, strict=True):
        assert set(oids) <= world.kept(env)
    assert world.sh(repo.root, "status", "--porcelain") == ""
    assert world.sh(repo.root, "rev-list", "--count", "main") == str(person.done.count("commit") + 1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", ["everything", "a tree", "a file", "the tip"])
def test_what_a_prune_took_comes_back_when_the_attempt_is_secured_again(confined: World, nobody_alive: Alive, what: str) -> None:
    """It had looked at the refs before they moved, and says to nobody that it runs."""
    world = confined
    env = world.env(world.repo())
    made = [world.commit(env.path, "deep/a.txt"), world.commit(env.path, "deep/b.txt", "two\n")]
    (env.path / "left.txt").write_text("left\n")
    done = secure(env, "leftover work", always=True)
    asked = {"a tree": f"{done.tip}:deep", "a file": f"{done.tip}:deep/b.txt", "the tip": done.tip}
    gone = [world.sh(env.repo.root, "rev-parse", asked[what])] if what in asked else []
    for oid in gone or [row.split()[0] for row in world.sh(env.repo.root, "rev-list", "--objects", done.tip, f"^{env.base}").splitlines()]:
        (env.repo.common_dir / "objects" / oid[:2] / oid[2:]).unlink()
    assert subprocess.run(["git", "fsck"], cwd=env.repo.root, capture_output=True, check=False).returncode != 0
    assert secure(env, "leftover work", always=True) == done
    assert world.sh(env.repo.root, "fsck", "--no-dangling") == ""
    assert set(made) <= world.kept(env) and "left.txt" in world.names(env.repo, env.branch)
    release(env)
    remove(env, nobody_alive, discard=True)


@pytest.mark.parametrize("what", ["the tip", "its tree"])
def test_what_a_prune_took_while_the_helper_answered_is_asked_for_again(
    confined: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The helper was told that we have the published commit, and left it out of its pack."""
    world = confined
    env = world.env(world.repo())
    tip = world.commit(env.path, "deep/a.txt")
    publish(env)
    (env.path / "left.txt").write_text("left\n")
    oid = tip if what == "the tip" else world.sh(env.repo.root, "rev-parse", f"{tip}^{{tree}}")
    taken = list[str]()

    def prune(label: str) -> None:
        if label == "securing.answered" and not taken:
            taken.append(oid)
            (env.repo.common_dir / "objects" / oid[:2] / oid[2:]).unlink()

    monkeypatch.setattr(collect_work, "failpoint", prune)
    done = secure(env, "leftover work", always=True)
    assert taken and world.sh(env.repo.root, "rev-parse", env.branch) == done.tip
    assert world.sh(env.repo.root, "fsck", "--no-dangling") == ""
    assert {"left.txt", "deep/a.txt"} <= set(world.names(env.repo, env.branch))


def test_what_a_prune_took_after_the_helper_saw_it_among_the_persons_objects_is_asked_for_again(
    confined: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ref of ours has it, as when a try before this one was cut short; the helper leaves out what it sees."""
    world = confined
    env = world.env(world.repo())
    tip = world.commit(env.path, "deep/a.txt")
    own = confined.own(env, env.repo.common_dir / "objects" / tip[:2] / tip[2:])
    seen = env.repo.common_dir / "objects" / tip[:2] / tip[2:]
    seen.parent.mkdir(exist_ok=True)
    seen.write_bytes(own.read_bytes())
    take = collect_work._take

    def after_a_prune(env: Environment, helper: collect_work.Helper, *rest: Any) -> None:
        wait_until(lambda: select.select([helper.stdout], [], [], 0)[0], "the pack to be written")
        seen.unlink(missing_ok=True)
        take(env, helper, *rest)

    monkeypatch.setattr(collect_work, "_take", after_a_prune)
    assert secure(env, "leftover work", always=True).commits >= 1
    assert world.sh(env.repo.root, "fsck", "--no-dangling") == "" and tip in world.kept(env)
