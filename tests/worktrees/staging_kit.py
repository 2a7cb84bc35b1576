"""A result and a branch that went apart, and what two sides can do to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.kernel.train_orders import Method, Person, Terms
from worktrees import landing
from worktrees.landing import Contained, LeftOut, Result, Staged
from worktrees.repository import discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

TERMS = Terms("t1", Person("Ada Person", "ada@example.com"), 1_700_000_000.7, into="main")
LINES = [f"line {number}\n" for number in range(12)]
Side = Callable[[Path], object]


def text(**changed: str) -> str:
    """Twelve lines, some with other words: `at3="mine"`."""
    return "".join(changed.get(f"at{number}", line.rstrip()) + "\n" for number, line in enumerate(LINES))


def crlf(**changed: str) -> bytes:
    return text(**changed).replace("\n", "\r\n").encode()


def commit_all(world: World, root: Path, words: str = "change") -> str:
    return world.run(root, "sh", "-ec", 'git add -A; git commit -q --allow-empty -m "$0"; git rev-parse HEAD', words)


class Trial:
    """A repository whose `main` and `result` branch from one commit."""

    def __init__(self, world: World, start: Side = lambda _: None) -> None:
        self.world, self.root = world, world.make()
        (self.root / "long.txt").write_text(text())
        (self.root / "src").mkdir()
        for name in ("a.py", "b.py", "c.py"):
            (self.root / "src" / name).write_text(text(at0=name))
        start(self.root)
        self.base = commit_all(world, self.root, "base")
        self.repo = discover(world.git, self.root)

    def sides(self, ours: Side, theirs: Side) -> Trial:
        self.world.sh(self.root, "switch", "-q", "-C", "result", self.base)
        theirs(self.root)
        self.tip = commit_all(self.world, self.root, "their work")
        self.world.sh(self.root, "checkout", "-q", "-B", "main", self.base)
        ours(self.root)
        self.onto = commit_all(self.world, self.root, "our work")
        return self

    def stage(self, method: Method = Method.MERGE, **terms: object) -> Staged | LeftOut | Contained:
        return landing.stage(self.repo, self.onto, Result("r1/task", self.tip, "Title"), replace(TERMS, method=method, **terms))  # type: ignore[arg-type]  # of Terms

    def both(self) -> list[Staged | LeftOut | Contained]:
        """By the two ways in which git is asked."""
        return [self.stage(Method.SQUASH), self.stage(Method.REBASE)]

    def files(self) -> dict[str, str]:
        """Of the staged commit."""
        found = [one for one in self.both() if isinstance(one, Staged)]
        assert len(found) == 2
        assert len({self.world.sh(self.root, "rev-parse", f"{one.commit}^{{tree}}") for one in found}) == 1
        return self.world.blobs(self.repo, found[0].commit)

    def left(self) -> LeftOut:
        found = [one for one in self.both() if isinstance(one, LeftOut)]
        assert len(found) == 2 and found[0].files == found[1].files
        return found[0]


def write(name: str, content: str) -> Side:
    def act(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    return act


def move(old: str, new: str, content: str = "") -> Side:
    def act(root: Path) -> None:
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / old).rename(root / new)
        if content:
            (root / new).write_text(content)

    return act


def remove(name: str) -> Side:
    return lambda root: (root / name).unlink()


def chmod(name: str) -> Side:
    return lambda root: (root / name).chmod(0o755)


def link(name: str, to: str) -> Side:
    def act(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(to)

    return act


def both(*sides: Side) -> Side:
    def act(root: Path) -> None:
        for side in sides:
            side(root)

    return act


OTHER = write("ours.txt", "ours\n")
