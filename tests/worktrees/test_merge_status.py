"""What many tips are told together is what each would be told alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import ToolFailed
from worktrees import merge, tree_merge
from worktrees.git import IDENTITY
from worktrees.merge import Branches
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


class History:
    """Commits made at random: two files with three contents each, so that the same change often comes twice."""

    def __init__(self, repo: Repository, seed: int) -> None:
        self.repo, self.draw = repo, random.Random(seed)
        self.states = {repo.head: (0, 0)}

    def grown(self, start: str, length: int) -> str:
        """The tip of so many commits from `start`; now and then one merges another in."""
        for _ in range(length):
            others = {self.draw.choice(list(self.states))} if self.draw.random() < 0.2 else set()
            start = self.commit(start, *(others - {start}))
        return start

    def commit(self, *parents: str) -> str:
        one, two = self.states[parents[0]]
        state = (self.draw.randrange(3), two) if self.draw.random() < 0.5 else (one, self.draw.randrange(3))
        blobs = [self.git("hash-object", "-w", "--stdin", stdin="a\n" * 9 + str(number)) for number in state]
        tree = self.git("mktree", stdin="".join(f"100644 blob {blob}\tf{at}.txt\n" for at, blob in enumerate(blobs)))
        flags = [word for parent in parents for word in ("-p", parent)]
        oid = self.git("commit-tree", tree, *flags, stdin=str(len(self.states)))
        self.states[oid] = state
        return oid

    def git(self, *argv: str, stdin: str = "") -> str:
        return self.repo.git.run(self.repo.store, *argv, stdin=stdin.encode(), env=IDENTITY).text


def alone(repo: Repository, tip: str) -> int:
    """By git's own count, and by every comparison with every branch."""
    count = merge._count(repo, tip)
    targets = merge._targets(repo)
    return 0 if count and any(tree_merge.judge(repo, target, tip).held for target in targets) else count


@pytest.fixture
def history(world: World, seed: int) -> History:
    return History(world.repo(), seed)


def test_together_they_are_told_what_each_is_told_alone(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, draw = history.repo, history.draw
    for number in range(3):
        tip = history.grown(draw.choice(list(history.states)), draw.randrange(1, 4))
        history.git("update-ref", f"refs/heads/{'main' if number == 0 else f'own{number}'}", tip)
    tips = [history.grown(draw.choice(list(history.states)), draw.randrange(3)) for _ in range(5)]
    for number, tip in enumerate(tips):
        history.git("update-ref", f"refs/heads/nightcrew/r/t{number}/work", tip)
    expected = [alone(repo, tip) for tip in tips]
    together = Branches(repo, tips)
    assert [together.unmerged(tip) for tip in tips] == expected
    assert [Branches(repo, tips[:2]).unmerged(tip) for tip in tips] == expected, "others may be asked about too"
    monkeypatch.setattr(merge, "_WALK_MAX", 0)
    assert [Branches(repo, tips).unmerged(tip) for tip in tips] == expected, "also where they are too many to hold"


def test_a_tip_that_cannot_be_read_spoils_no_other(world: World) -> None:
    repo = world.repo()
    tip = world.commit(repo.root, "new.txt")
    world.sh(repo.root, "reset", "-q", "--hard", "HEAD~1")
    missing = "1234" * 10
    together = Branches(discover(world.git, repo.root), [tip, missing])
    assert together.unmerged(tip) == 1
    assert missing not in together
    with pytest.raises(ToolFailed):
        together.unmerged(missing)


def test_nothing_is_compared_that_needs_no_comparison(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No branch of the person's has gone on: none can hold a patch, and git is not asked for each tip."""
    repo = world.repo()
    tips = []
    for number in range(6):
        tips.append(world.commit(repo.root, f"new{number}.txt"))
        world.sh(repo.root, "reset", "-q", "--hard", "HEAD~1")
    asked: list[str] = []
    run = type(world.git).run

    def counted(*args: object, **more: object) -> object:
        asked.append(str(args[2]))
        return run(*args, **more)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(type(world.git), "run", counted)
    together = Branches(repo, tips)
    assert [together.unmerged(tip) for tip in tips] == [1] * 6
    assert len(asked) <= 6, asked
