"""Commits out of a sandbox: what an honest agent made arrives whole, and of what a hostile one sends nothing stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.core.errors import DiskFull, NightcrewError, Refused, ToolFailed, ToolHung
from tests.worktrees import packs
from tests.worktrees.conftest import World
from tests.worktrees.packs import BLOB, COMMIT, REF_DELTA, TREE, Thing, blob, commit, pack_of, packed, sent, tree, varint
from worktrees import intake
from worktrees.git import Bounds
from worktrees.intake import take
from worktrees.refs import Update
from worktrees.repository import Repository, discover

pytestmark = pytest.mark.timeout(120)

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
    monkeypatch.setattr(intake, "LOOSE_BYTES_MAX", 4096)
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


# What a stranger sends


HOSTILE = {
    "dotgit": ([".git"], "hasDotgit"),
    "dotgit in capitals": ([".GIT"], "hasDotgit"),
    "dotgit as NTFS has it": (["git~1"], "hasDotgit"),
    "dotgit as HFS has it": ([".g\u200cit"], "hasDotgit"),
    "dot dot": ([".."], "hasDotdot"),
    "a path": (["a/b"], "fullPathname"),
    "twice the same": (["a", "a"], "duplicateEntries"),
    "not sorted": (["b", "a"], "treeNotSorted"),
}


@pytest.mark.parametrize("names", HOSTILE)
@pytest.mark.parametrize("padding", [0, 120], ids=["loose", "pack"])
def test_a_tree_that_could_hurt_is_refused(box: Sandbox, names: str, padding: int) -> None:
    entries, said = HOSTILE[names]
    top = tree(*((FILE, name, blob(b"x\n")) for name in entries))
    data = pack_of([blob(b"x\n"), top, commit(top), *(blob(b"%d" % number) for number in range(padding))])
    box.refuses(data, commit(top).oid, said)


@pytest.mark.parametrize("padding", [0, 120], ids=["loose", "pack"])
def test_a_hostile_submodule_is_refused(box: Sandbox, padding: int) -> None:
    things, tip = one_file(b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch X\n', ".gitmodules")
    box.refuses(pack_of([*things, *(blob(b"%d" % number) for number in range(padding))]), tip, "gitmodulesUrl")


def test_a_commit_with_a_nul_in_its_header_is_refused(box: Sandbox) -> None:
    things, _ = one_file()
    last = commit(things[1], extra=b"x \0\n")
    box.refuses(pack_of([*things[:2], last]), last.oid, "nulInHeader")


def broken(things: list[Thing]) -> dict[str, bytes]:
    whole = pack_of(things)
    return {
        "truncated": whole[:-30],
        "no more than a header": whole[:12],
        "half a header": whole[:7],
        "wrong checksum": whole[:-1] + bytes([whole[-1] ^ 1]),
        "garbage after it": whole + b"garbage",
        "much garbage after it": whole + bytes(100_000),
        "another pack after it": whole + whole,
        "no pack": b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100),
        "another version": whole[:7] + b"\x09" + whole[8:],
        "too few objects": pack_of(things, len(things) + 1),
        "too many objects": pack_of(things, len(things) - 1),
        "four billion objects": pack_of(things, 2**32 - 1),
    }


@pytest.mark.parametrize("how", broken(one_file()[0]))
@pytest.mark.parametrize("padding", [0, 120], ids=["loose", "pack"])
def test_a_broken_pack_is_refused(box: Sandbox, how: str, padding: int) -> None:
    things, tip = one_file()
    data = broken([*things, *(blob(b"%d" % number) for number in range(padding))])[how]
    box.refuses(data, tip)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_hole_in_what_a_tip_reaches_is_refused(box: Sandbox, missing: int) -> None:
    things, tip = one_file()
    del things[missing]
    box.refuses(pack_of(things), tip)


def test_a_hole_in_objects_that_were_here_is_refused(box: Sandbox) -> None:
    """The person's store may hold a commit that nothing names and whose history is gone. The pack itself has no dangling link then, so
    only the walk finds it."""
    things, _ = one_file()
    lone = commit(things[1], "1" * 40)
    for thing in (*things[:2], lone):
        kind = packs.KINDS[thing.kind]
        command = ["git", "hash-object", "-w", "-t", kind, "--stdin"]
        subprocess.run(command, cwd=box.repo.root, input=thing.data, check=True, capture_output=True)
    last = commit(things[1], lone.oid)
    box.refuses(pack_of([last]), last.oid, None, intake.Incomplete)
    box.refuses(b"", lone.oid, None, intake.Incomplete)


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_no_commit_is_refused(box: Sandbox, which: int) -> None:
    things, _ = one_file()
    box.refuses(pack_of(things), things[which].oid, "is no commit", Refused)


def test_a_tip_that_did_not_come_is_said(box: Sandbox) -> None:
    box.refuses(b"", "1" * 40, "did not come with it", intake.Incomplete)


@pytest.mark.parametrize(
    "update", [Update(REF, "", "1" * 40), Update(REF, "--all", ""), Update("main", "1" * 40, ""), Update(f"{REF}\0x", "1" * 40, "")]
)
def test_names_that_are_none_are_refused(box: Sandbox, update: Update) -> None:
    with pytest.raises(Refused, match="named wrongly"):
        box.take(b"", update)


# Bombs


BOMB_SIZE = 10 * 2**30


def bombs() -> dict[str, tuple[list[Thing], str]]:
    things, tip = one_file()
    base = blob(b"b" * 65536)
    copies = varint(65536) + varint(65536 * 40_000) + (b"\x80" * 40_000)
    few = zlib.compress(b"few")
    return {
        "a commit that says it is huge": ([*things, Thing(COMMIT, size=BOMB_SIZE, packed=few)], tip),
        "a tree that says it is huge": ([*things, Thing(TREE, size=BOMB_SIZE, packed=few)], tip),
        "a blob that says it is huge": ([*things, Thing(BLOB, size=BOMB_SIZE, packed=few)], tip),
        "a delta that says it makes something huge": (
            [*things, base, Thing(REF_DELTA, varint(65536) + varint(BOMB_SIZE) + b"\x80", bytes.fromhex(base.oid))],
            tip,
        ),
        "a delta that makes something huge": ([*things, base, Thing(REF_DELTA, copies, bytes.fromhex(base.oid))], tip),
    }


@pytest.mark.parametrize("how", bombs())
@pytest.mark.parametrize("padding", [0, 120], ids=["loose", "pack"])
def test_a_bomb_ends_with_an_error(box: Sandbox, how: str, padding: int) -> None:
    things, tip = bombs()[how]
    box.refuses(pack_of([*things, *(blob(b"%d" % number) for number in range(padding))]), tip)


def test_the_memory_of_a_git_that_reads_foreign_objects_is_bounded(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tree is taken where more is allowed: it is the limit that refuses."""
    files = [(FILE, f"f{number:07}", blob(b"x\n")) for number in range(1_000_000)]
    top = tree(*files)
    data, tip = pack_of([blob(b"x\n"), top, commit(top)]), commit(top).oid
    monkeypatch.setattr(intake, "MEMORY_MAX", 24 * 2**20)
    box.refuses(data, tip, "[Oo]ut of memory|memory")
    monkeypatch.setattr(intake, "MEMORY_MAX", 2**30)
    box.take_to(tip, data)
    assert box.at() == tip


def zeros(size: int) -> bytes:
    """Packed, a thousandth of it."""
    made = zlib.compressobj(9)
    chunk = bytes(2**20)
    return b"".join([*(made.compress(chunk) for _ in range(size // 2**20)), made.flush()])


def test_a_blob_that_inflates_without_end_is_stopped_at_the_deadline(box: Sandbox) -> None:
    """Its 100 GB are never held and never written."""
    things, tip = one_file()
    once = zeros(2**30)
    bomb = Thing(BLOB, size=100 * 2**30, packed=once)  # what comes first takes long enough
    box.refuses(pack_of([bomb, *things]), tip, "no answer in", ToolHung, deadline_s=1.0)


def nested(depth: int) -> tuple[bytes, str]:
    trees = [tree((FILE, "file", blob(b"x\n")))]
    for _ in range(depth):
        trees.append(tree(("40000", "d", trees[-1])))
    return pack_of([blob(b"x\n"), *trees, commit(trees[-1])]), commit(trees[-1]).oid


def test_directories_deeper_than_git_can_walk_are_refused(box: Sandbox) -> None:
    data, tip = nested(120_000)
    box.refuses(data, tip, None, intake.Incomplete)


def test_directories_as_deep_as_a_real_tree_are_taken(box: Sandbox) -> None:
    data, tip = nested(1000)
    box.take_to(tip, data)
    assert box.at() == tip


def test_more_objects_than_anybody_makes_are_not_even_read(box: Sandbox) -> None:
    things, tip = one_file()
    box.refuses(pack_of(things, intake.OBJECTS_MAX + 1), tip, "more than 1000000 objects", Refused)


def test_a_pack_that_is_too_large_is_refused(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BYTES_MAX", 100)
    things, tip = one_file()
    box.refuses(pack_of(things), tip, "more than 100 bytes", Refused)


def test_a_pack_that_leaves_no_room_is_refused(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "RESERVE", 2**60)
    monkeypatch.setattr(intake, "LOOSE_BYTES_MAX", 100)
    things, tip = one_file()
    box.refuses(pack_of(things), tip, "no room", DiskFull)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("size", [700_000, 1_500_000])
def test_a_disk_that_is_full_is_called_so_and_nothing_stays(box: Sandbox, size: int) -> None:
    """While it is unpacked, or while it is received."""
    store, small_disk = box.repo.common_dir / "objects", box.world.tmp / "disk"
    small_disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small_disk)], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        shutil.copytree(store, small_disk / "objects")
        store.rename(box.world.tmp / "elsewhere")
        store.symlink_to(small_disk / "objects")
        things, tip = one_file(os.urandom(size))
        box.refuses(pack_of(things), tip, kind=DiskFull)
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=True)


def test_a_stranger_cannot_call_a_disk_full(box: Sandbox) -> None:
    """Whoever reads that one is full stops other work."""
    things, tip = one_file(b'[submodule "x"]\n\turl = -No space left on device\n', ".gitmodules")
    box.refuses(pack_of(things), tip, "gitmodulesUrl", Refused)


def test_many_findings_that_are_tolerated_say_nothing(box: Sandbox) -> None:
    """git would write a line for each into our memory."""
    tops = [tree(("0100644", f"f{number}", blob(b"x\n"))) for number in range(200)]
    last = commit(tops[-1])
    with sent(pack_of([blob(b"x\n"), *tops, last])) as pack:
        strict = "--strict=" + ",".join(f"{name}=ignore" for name in intake.TOLERATED)
        quiet = box.repo.git.run(box.repo.store, "index-pack", "--stdin", strict, stdin=pack)
    assert quiet.err == ""


def test_of_a_million_complaints_the_last_are_kept(box: Sandbox) -> None:
    """One file is enough for as many as its author likes."""
    lines = b"".join(b'[submodule "%d"]\nurl = -%d\n' % (number, number) for number in range(20_000))
    things, tip = one_file(lines, ".gitmodules")
    with sent(pack_of(things)) as pack:
        argv = ("index-pack", "--stdin", "--strict")
        answer = box.repo.git.run(box.repo.store, *argv, stdin=pack, accept=(128,), bounds=Bounds(2**30, 2**30))
    assert 2**15 < len(answer.err) <= 2**16
    assert answer.err.endswith("fatal: fsck error in pack objects\n")
    box.world.sh(box.repo.root, "gc", "-q", "--prune=now")
    box.refuses(pack_of(things), tip, "gitmodulesUrl")


# A sender that does not send


@pytest.mark.parametrize("first", [b"", b"PACK", pack_of(one_file()[0])])
def test_a_sender_that_stalls_is_given_up(box: Sandbox, first: bytes) -> None:
    before = box.objects()
    mine, others = os.pipe()
    os.write(others, first)
    with pytest.raises(ToolHung, match="no end in time"):
        take(box.repo, mine, [Update(REF, one_file()[1], "")], [box.repo.head], "test", deadline_s=0.3)
    assert (box.objects(), box.at()) == (before, "")
    os.close(mine)
    os.close(others)


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

    monkeypatch.setattr(intake, "failpoint", moved)
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
from worktrees.intake import take
from worktrees.refs import Update
from worktrees.repository import discover
state, root, ref, tip, base = sys.argv[1:]
repo = discover(Git(Path(state)), Path(root))
take(repo, sys.stdin.fileno() or os.dup(0), [Update(ref, tip, ""), Update("refs/nightcrew/rescue/r1/fix/1", tip, "")], [base], "test")
"""


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

    monkeypatch.setattr(intake, "failpoint", meanwhile)
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
        patched.setattr(intake, "failpoint", collected)
        box.take_to(tip)
    assert box.at() == tip
    assert box.healthy()


def test_a_pack_that_is_not_named_yet_outlives_a_repack(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = many_files(box, 150)

    def repacked(label: str) -> None:
        if label == "intake.migrated":
            box.world.sh(box.repo.root, "gc", "-q", "--prune=now")

    monkeypatch.setattr(intake, "failpoint", repacked)
    box.take_to(tip)
    assert len(box.world.blobs(box.repo, REF)) > 150
    assert box.healthy()
