"""A person's repository that takes what comes out of a sandbox, and packs of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.kernel.errors import NightcrewError, Refused
from tests.worktrees.conftest import World
from tests.worktrees.packs import Thing, blob, commit, packed, sent, tree
from worktrees.pack_import import take
from worktrees.repository import Repository, Update

REF = "refs/heads/nightcrew/r1/fix/work"
FILE = "100644"


@dataclass
class Sandbox:
    """A person's repository, and an agent's own beside it that has the person's objects as alternates."""

    world: World
    repo: Repository
    theirs: Path
    before: list[str] = field(default_factory=list)

    def take(self, data: bytes, *updates: Update, known: Sequence[str] = (), deadline_s: float = 60.0) -> None:
        with sent(data) as pack:
            take(self.repo, pack, updates, known or [self.repo.head], "nightcrew: test", deadline_s=deadline_s)

    def take_to(self, tip: str, data: bytes | None = None, old: str = "", deadline_s: float = 60.0) -> None:
        data = packed(self.theirs, tip, f"^{self.repo.head}") if data is None else data
        self.take(data, Update(REF, tip, old), deadline_s=deadline_s)

    def at(self, ref: str = REF) -> str:
        return self.world.sh(self.repo.root, "rev-parse", "--verify", "-q", ref, ok=False)

    def objects(self) -> list[str]:
        store = self.repo.common_dir / "objects"
        return sorted(str(path.relative_to(store)) for path in store.rglob("*") if not path.is_dir() or path.name.startswith("tmp_"))

    def healthy(self) -> bool:
        self.world.sh(self.repo.root, "fsck", "--strict", "--connectivity-only")
        return "garbage: 0" in self.world.sh(self.repo.root, "count-objects", "-v") and not any("tmp_" in name for name in self.objects())

    def refuses(self, data: bytes, tip: str, why: str | None = None, kind: type[NightcrewError] = Refused, deadline_s: float = 60.0) -> str:
        """And nothing of it stays."""
        before = self.objects()
        with pytest.raises(kind, match=why) as caught:
            self.take_to(tip, data, deadline_s=deadline_s)
        assert (self.objects(), self.at()) == (before, "")
        assert "no ref moved" in caught.value.kept
        return caught.value.line()


def make_sandbox(world: World, repo: Repository) -> Sandbox:
    world.sh(world.tmp, "clone", "-q", "--shared", str(repo.root), "theirs")
    return Sandbox(world, repo, world.tmp / "theirs")


@pytest.fixture
def box(world: World) -> Sandbox:
    return make_sandbox(world, world.repo())


def many_files(box: Sandbox, count: int) -> str:
    for number in range(count):
        (box.theirs / f"new{number}.txt").write_text(f"new {number}\n")
    return box.world.commit(box.theirs, "last.txt")


def small(box: Sandbox) -> str:
    return box.world.commit(box.theirs, "src/new.txt", "new\n")


def one_file(data: bytes = b"x\n", name: str = "file", mode: str = FILE) -> tuple[list[Thing], str]:
    top = tree((mode, name, blob(data)))
    last = commit(top)
    return [blob(data), top, last], last.oid
