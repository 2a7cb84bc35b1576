"""Commits out of a sandbox: what an honest agent made arrives whole, and of what a hostile one sends nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.kernel.errors import ToolFailed
from tests.worktrees.conftest import World
from tests.worktrees.intake_kit import FILE, REF, Sandbox, box, make_sandbox, many_files, small
from tests.worktrees.packs import Thing, blob, commit, pack_of, packed, tree
from worktrees import pack_import
from worktrees.repository import Update, discover

__all__ = ["box"]
pytestmark = pytest.mark.timeout(120)


# What an honest agent made


def test_a_small_pack_becomes_loose_objects(box: Sandbox) -> None:
    """Twenty thousand attempts must not leave twenty thousand packs."""
    before = len(box.objects())
    box.take_to(small(box))
    assert box.world.blobs(box.repo, REF)["src/new.txt"] == "new"
    assert len(box.objects()) == before + 4
    assert not [name for name in box.objects() if name.startswith("pack/")]
    assert box.world.sh(box.repo.root, "reflog", "show", "--format=%gs", REF) == "nightcrew: test"
    assert box.healthy()


def test_a_large_pack_stays_one_without_its_mark(box: Sandbox) -> None:
    box.take_to(many_files(box, 150))
    assert {Path(name).suffix for name in box.objects() if name.startswith("pack/")} - {".rev"} == {".pack", ".idx"}
    assert box.world.blobs(box.repo, REF)["new149.txt"] == "new 149"
    assert box.healthy()


@pytest.mark.parametrize("make", [small, lambda box: many_files(box, 150)], ids=["loose", "pack"])
def test_taking_the_same_again_changes_nothing(box: Sandbox, make: Callable[[Sandbox], str]) -> None:
    tip = make(box)
    data = packed(box.theirs, tip, f"^{box.repo.head}")
    box.take_to(tip, data)
    once = box.objects()
    box.take(data, Update("refs/nightcrew/rescue/r1/fix/1", tip, ""))
    assert box.objects() == once
    assert box.healthy()


def test_a_thin_pack_finds_its_bases_here(box: Sandbox) -> None:
    lines = [f"line {number} of a long text\n" for number in range(5000)]
    box.world.commit(box.repo.root, "long.txt", "".join(lines))
    box.repo = discover(box.world.git, box.repo.root)
    box.world.sh(box.theirs, "pull", "-q")
    tip = box.world.commit(box.theirs, "long.txt", "".join([*lines, "more\n"]))
    data = packed(box.theirs, tip, f"^{box.repo.head}")
    assert len(data) < 5000
    box.take_to(tip, data)
    assert box.world.blobs(box.repo, REF)["long.txt"].endswith("more")


def test_a_large_file_in_a_small_pack_stays_packed(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a delta of a few bytes: unpacked it would be large."""
    monkeypatch.setattr(pack_import, "LOOSE_BYTES_MAX", 4096)
    (box.theirs / "noise").write_bytes(os.urandom(100_000))
    box.take_to(box.world.commit(box.theirs, "other.txt"))
    assert [name for name in box.objects() if name.endswith(".pack")]
    assert box.healthy()


def test_no_pack_at_all_moves_refs_to_what_is_here(box: Sandbox) -> None:
    box.take_to(box.repo.head, b"")
    assert box.at() == box.repo.head


def test_an_empty_pack_moves_refs_to_what_is_here(box: Sandbox) -> None:
    box.take_to(box.repo.head, pack_of([]))
    assert box.at() == box.repo.head


def test_sha256_is_taken_too(world: World) -> None:
    path = world.tmp / "wide"
    path.mkdir()
    world.sh(path, "init", "-q", "--object-format=sha256")
    world.commit(path)
    box = make_sandbox(world, discover(world.git, path))
    tip = small(box)
    box.take_to(tip)
    assert box.at() == tip
    assert len(tip) == 64
    assert box.healthy()


def test_alternates_of_the_persons_own_work(world: World) -> None:
    """Named relative to a path with a colon and a quote in it, which git's variable for alternates would part."""
    origin = world.make('odd: "dir"/origin')
    world.sh(origin.parent, "clone", "-q", "--shared", "origin", "mine")
    mine = origin.parent / "mine"
    (mine / ".git/objects/info/alternates").write_text("../../../origin/.git/objects\n")
    box = make_sandbox(world, discover(world.git, mine))
    box.take_to(small(box))
    assert box.world.blobs(box.repo, REF)["src/new.txt"] == "new"


@pytest.mark.parametrize("elsewhere", ["/dev/shm", ""])
def test_a_linked_pack_directory_is_filled(box: Sandbox, tmp_path_factory: pytest.TempPathFactory, elsewhere: str) -> None:
    """Also one on another file system."""
    with tempfile.TemporaryDirectory(dir=elsewhere or tmp_path_factory.mktemp("packs")) as packs_here:
        pack_dir = box.repo.common_dir / "objects" / "pack"
        pack_dir.rmdir()
        pack_dir.symlink_to(packs_here)
        tip = many_files(box, 150)
        box.take_to(tip)
        assert {Path(name).suffix for name in os.listdir(packs_here)} - {".rev"} == {".pack", ".idx"}
        assert box.healthy()


def test_a_shared_repository_stays_shared(box: Sandbox) -> None:
    store = box.repo.common_dir / "objects"
    box.world.sh(box.repo.root, "config", "core.sharedRepository", "group")
    store.chmod(0o2775)
    tip = small(box)
    had = {path.name for path in store.iterdir()}
    box.take_to(tip)
    made = [path for path in store.iterdir() if path.name not in had]
    assert made
    assert all(path.stat().st_mode & 0o7777 == 0o2775 for path in made)


# What git's check finds, and we take


@pytest.mark.parametrize(
    "last",
    [
        commit(tree((FILE, "file", blob(b"x\n"))), who="A <a@b>1 +0000"),
        commit(tree((FILE, "file", blob(b"x\n"))), who="A <a@b> 1 +051800"),
        commit(tree(("0100644", "file", blob(b"x\n")))),
    ],
    ids=["missingSpaceBeforeDate", "badTimezone", "zeroPaddedFilemode"],
)
@pytest.mark.parametrize("padding", [0, 120], ids=["loose", "pack"])
def test_what_old_tools_wrote_is_taken(box: Sandbox, last: Thing, padding: int) -> None:
    tops = [tree((FILE, "file", blob(b"x\n"))), tree(("0100644", "file", blob(b"x\n")))]
    box.take_to(last.oid, pack_of([blob(b"x\n"), *tops, last, *(blob(b"%d" % number) for number in range(padding))]))
    assert box.at() == last.oid


# Refs


def test_a_ref_that_stands_elsewhere_keeps_all_of_them(box: Sandbox) -> None:
    tip, before = small(box), box.objects()
    data = packed(box.theirs, tip, f"^{box.repo.head}")
    box.world.sh(box.repo.root, "update-ref", REF, box.repo.head)
    for wrong in ("", tip):
        with pytest.raises(ToolFailed, match="update-ref"):
            box.take(data, Update("refs/nightcrew/rescue/r1/fix/1", tip, ""), Update(REF, tip, wrong))
        assert box.at() == box.repo.head
        assert box.at("refs/nightcrew/rescue/r1/fix/1") == ""
        assert box.objects() == before
    box.take(data, Update("refs/nightcrew/rescue/r1/fix/1", tip, ""), Update(REF, tip, box.repo.head))
    assert box.at() == box.at("refs/nightcrew/rescue/r1/fix/1") == tip


def test_a_ref_that_moves_at_the_last_moment_keeps_all_of_them(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the swap: the swap itself compares."""
    tip = small(box)

    def moved(label: str) -> None:
        if label == "intake.migrated":
            box.world.sh(box.repo.root, "update-ref", REF, box.repo.head)

    monkeypatch.setattr(pack_import, "failpoint", moved)
    with pytest.raises(ToolFailed, match="update-ref"):
        box.take_to(tip)
    assert box.at() == box.repo.head
    assert box.healthy()


def test_a_ref_that_names_another_is_replaced_and_the_other_stays(box: Sandbox) -> None:
    tip = small(box)
    box.world.sh(box.repo.root, "symbolic-ref", "refs/nightcrew/x", "refs/heads/main")
    box.take(packed(box.theirs, tip, f"^{box.repo.head}"), Update("refs/nightcrew/x", tip, box.repo.head))
    assert box.at("refs/nightcrew/x") == tip
    assert box.at("main") == box.repo.head


# Interrupted


TAKER = """
import os, sys
from pathlib import Path
from worktrees.git import Git
from worktrees.pack_import import take
from worktrees.repository import Update
from worktrees.repository import discover
state, root, ref, tip, base = sys.argv[1:]
repo = discover(Git(Path(state)), Path(root))
take(repo, sys.stdin.fileno() or os.dup(0), [Update(ref, tip, ""), Update("refs/nightcrew/rescue/r1/fix/1", tip, "")], [base], "test")
"""


@pytest.mark.in_turns
@pytest.mark.parametrize("label", ["intake.received", "intake.unpacked", "intake.connected", "intake.migrated", "intake.moved"])
@pytest.mark.parametrize("make", [small, lambda box: many_files(box, 150)], ids=["loose", "pack"])
def test_killed_at_any_step_and_taken_again(box: Sandbox, label: str, make: Callable[[Sandbox], str]) -> None:
    tip = make(box)
    data = packed(box.theirs, tip, f"^{box.repo.head}")
    argv = [sys.executable, "-c", TAKER, str(box.world.tmp / "state"), str(box.repo.root), REF, tip, box.repo.head]
    killed = subprocess.run(argv, input=data, env={**os.environ, "NIGHTCREW_DIE_AT": label}, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    had = [box.at(), box.at("refs/nightcrew/rescue/r1/fix/1")]
    assert had == [tip if label == "intake.moved" else ""] * 2
    box.take(data, Update(REF, tip, had[0]), Update("refs/nightcrew/rescue/r1/fix/1", tip, had[1]))
    assert box.at() == box.at("refs/nightcrew/rescue/r1/fix/1") == tip
    assert len([name for name in box.objects() if name.endswith(".pack")]) <= 1
    assert not [name for name in box.objects() if name.endswith(".keep")]
    assert box.healthy()


@pytest.mark.parametrize("step", ["intake.received", "intake.migrated"])
def test_a_take_at_work_is_not_swept_by_another(box: Sandbox, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    second = small(box)
    other = packed(box.theirs, second, f"^{box.repo.head}")
    box.world.sh(box.theirs, "reset", "-q", "--hard", box.repo.head)
    first = many_files(box, 150)
    marks: list[int] = []

    def meanwhile(label: str) -> None:
        if label == step and not marks:
            marks.append(0)
            box.take(other, Update("refs/nightcrew/other", second, ""))
            marks.append(len([name for name in box.objects() if name.startswith("pack/") and name.endswith(".keep")]))

    monkeypatch.setattr(pack_import, "failpoint", meanwhile)
    box.take_to(first)
    assert (box.at(), box.at("refs/nightcrew/other")) == (first, second)
    assert marks == [0, int(step == "intake.migrated")]
    assert box.healthy()


@pytest.mark.parametrize("make", [small, lambda box: many_files(box, 150)], ids=["loose", "pack"])
def test_a_person_who_collects_garbage_before_the_migration_loses_nothing(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, make: Callable[[Sandbox], str]
) -> None:
    """`--prune=now` would remove a directory that is called as git's own quarantine."""
    tip = make(box)

    def collected(label: str) -> None:
        if label == "intake.unpacked":
            box.world.sh(box.repo.root, "gc", "-q", "--prune=now")

    with monkeypatch.context() as patched:
        patched.setattr(pack_import, "failpoint", collected)
        box.take_to(tip)
    assert box.at() == tip
    assert box.healthy()


def test_a_pack_that_is_not_named_yet_outlives_a_repack(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = many_files(box, 150)

    def repacked(label: str) -> None:
        if label == "intake.migrated":
            box.world.sh(box.repo.root, "gc", "-q", "--prune=now")

    monkeypatch.setattr(pack_import, "failpoint", repacked)
    box.take_to(tip)
    assert len(box.world.blobs(box.repo, REF)) > 150
    assert box.healthy()
