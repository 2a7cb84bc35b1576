"""What a stranger sends to `intake`: trees that could hurt, broken packs, bombs, and senders that do not send."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib

import pytest

from supervisor.kernel.errors import DiskFull, Refused, ToolHung
from tests.worktrees import packs
from tests.worktrees.intake_kit import FILE, REF, Sandbox, box, one_file
from tests.worktrees.packs import BLOB, COMMIT, REF_DELTA, TREE, Thing, blob, commit, pack_of, sent, tree, varint
from worktrees import pack_import
from worktrees.git import Bounds
from worktrees.pack_import import take
from worktrees.repository import Update

__all__ = ["box"]
pytestmark = pytest.mark.timeout(120)


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
    box.refuses(pack_of([last]), last.oid, None, pack_import.Incomplete)
    box.refuses(b"", lone.oid, None, pack_import.Incomplete)


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_no_commit_is_refused(box: Sandbox, which: int) -> None:
    things, _ = one_file()
    box.refuses(pack_of(things), things[which].oid, "is no commit", Refused)


def test_a_tip_that_did_not_come_is_said(box: Sandbox) -> None:
    box.refuses(b"", "1" * 40, "did not come with it", pack_import.Incomplete)


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
    file = blob(b"x\n")
    ends = b"\0" + bytes.fromhex(file.oid)
    top = Thing(TREE, b"".join(b"%s f%07d%s" % (FILE.encode(), number, ends) for number in range(1_000_000)))
    data, tip = pack_of([file, top, commit(top)]), commit(top).oid
    monkeypatch.setattr(pack_import, "MEMORY_MAX", 24 * 2**20)
    box.refuses(data, tip, "[Oo]ut of memory|memory")
    monkeypatch.setattr(pack_import, "MEMORY_MAX", 2**30)
    box.take_to(tip, data)
    assert box.at() == tip


def zeros(size: int) -> bytes:
    """Packed, a thousandth of it; without an end."""
    made, chunk = zlib.compressobj(9), bytes(2**20)
    first, again = (made.compress(chunk) + made.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * (size // 2**20 - 1)  # after a full flush the same is written as the same


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
    box.refuses(data, tip, None, pack_import.Incomplete)


def test_directories_as_deep_as_a_real_tree_are_taken(box: Sandbox) -> None:
    data, tip = nested(1000)
    box.take_to(tip, data)
    assert box.at() == tip


def test_more_objects_than_anybody_makes_are_not_even_read(box: Sandbox) -> None:
    things, tip = one_file()
    box.refuses(pack_of(things, pack_import.OBJECTS_MAX + 1), tip, "more than 1000000 objects", Refused)


def test_a_pack_that_is_too_large_is_refused(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_import, "BYTES_MAX", 100)
    things, tip = one_file()
    box.refuses(pack_of(things), tip, "more than 100 bytes", Refused)


def test_a_pack_that_leaves_no_room_is_refused(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_import, "RESERVE", 2**60)
    monkeypatch.setattr(pack_import, "LOOSE_BYTES_MAX", 100)
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
        strict = "--strict=" + ",".join(f"{name}=ignore" for name in pack_import.TOLERATED)
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
