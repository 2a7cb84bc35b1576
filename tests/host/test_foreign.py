"""The door to what an agent can write: nothing is followed, nothing waits, and nothing leaves the directory that was opened."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.host import untrusted_fs
from supervisor.host.untrusted_fs import folder

pytestmark = pytest.mark.timeout(60)  # open(2) of a pipe does not return
Trap = Callable[[Path, Path], None]


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("made"))


def hard(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, victim: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("trap", [link, dangling, hard, pipe, directory])
def test_what_is_no_plain_file_is_neither_read_nor_written(tmp_path: Path, trap: Trap) -> None:
    place, victim = tmp_path / "place", tmp_path / "victim"
    place.mkdir()
    victim.write_text("theirs")
    trap(place / "name", victim)
    with folder(tmp_path, "place") as here:
        assert here.read("name", 100) is None
        assert not here.append("name", b"x") and not here.create("name", b"x")
        aside = here.set_aside("name")
        assert here.append("name", b"ours") and here.read("name", 2) == b"ou"
        here.replace("name", b"new")
        assert here.read("name", 100) == b"new"
        assert here.look(aside) is not None
    assert victim.read_text() == "theirs" and not victim.with_name("made").exists()


@pytest.mark.parametrize("trap", [link, dangling, hard, pipe])
def test_a_draft_replaces_what_is_there_and_follows_nothing(tmp_path: Path, trap: Trap) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    trap(tmp_path / "name", victim)
    with folder(tmp_path) as here:
        here.replace("name", b"ours")
    assert (tmp_path / "name").read_bytes() == b"ours" and victim.read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name", "victim"]


@pytest.mark.parametrize("make", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_in_place_of_a_directory_leads_nowhere(tmp_path: Path, depth: int, make: bool) -> None:
    (tmp_path / "elsewhere" / "b" / "c").mkdir(parents=True)
    steps = ["a", "b", "c"]
    at = tmp_path / "top" / "/".join(steps[:depth])
    at.mkdir(parents=True)
    (at / steps[depth]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"a/b/c|Not a directory|symbolic links"), folder(tmp_path / "top", "a/b/c", make=make):
        pass
    assert sorted(path.name for path in (tmp_path / "elsewhere").rglob("*")) == ["b", "c"]


def test_a_directory_is_kept_hold_of_wherever_it_is_moved(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    with folder(tmp_path, "a/b") as here:
        (tmp_path / "a" / "b").rename(tmp_path / "moved")
        (tmp_path / "a" / "b").symlink_to(tmp_path / "theirs")
        assert here.create("file", b"x")
    assert (tmp_path / "moved" / "file").exists() and not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("path", ["..", "a/../..", "/etc", "a//b", "./a"])
def test_only_plain_paths_lead_below(tmp_path: Path, path: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(OSError, match="plain"), folder(tmp_path / "a", path):
        pass


def test_what_is_missing_is_made_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with folder(tmp_path, "a/b", make=True) as here:
            here.create("file", b"x")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o022 for path in tmp_path.rglob("*")} == {0}


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with folder(tmp_path, "a/b/c") as here:
            here.read("nothing", 1)
        with pytest.raises(FileNotFoundError), folder(tmp_path, "a/nothing/c"):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that an agent can write, with a secret outside."""
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "tree" / "notes").mkdir(parents=True)
    (tmp_path / "tree" / "notes" / "fact.md").write_bytes(b"a fact")
    return tmp_path / "tree"


def read(tree: Path, name: str) -> bytes | None:
    """A file below `tree`; None when the way to it, or it, is none of ours."""
    above, _, last = name.rpartition("/")
    try:
        with folder(tree, above) as here:
            return here.read(last, 1000)
    except OSError:
        return None


def test_no_trap_hangs_or_leaks(tree: Path) -> None:
    """X07."""
    (tree / "link").symlink_to("../secret")
    (tree.parent / "other").write_text("canary")
    os.link(tree.parent / "other", tree / "hard")  # not of the same secret: its two names alone would refuse every other trap
    os.mkfifo(tree / "fifo")
    (tree / "up").symlink_to("..")
    os.mknod(tree / "socket", stat.S_IFSOCK | 0o600)
    before = sorted(os.listdir("/proc/self/fd"))
    assert read(tree, "notes/fact.md") == b"a fact"
    for name in ("link", "hard", "fifo", "notes", "socket", "up/secret", "notes/../../secret", "../secret", "none", "none/none"):
        assert read(tree, name) is None, name
    with folder(Path("/dev")) as devices:
        assert devices.read("zero", 10) is None
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_what_is_read_is_bounded_however_large_it_is(tree: Path) -> None:
    with (tree / "huge").open("wb") as file:
        file.truncate(200 * 2**30)
    assert read(tree, "huge") == b"\0" * 1000
    assert untrusted_fs.read_plain(tree / "huge", 10) == untrusted_fs.read_plain(tree / "huge", 10, tail=True) == b"\0" * 10


def test_what_grows_while_it_is_read_ends_all_the_same(tree: Path) -> None:
    over = threading.Event()

    def grow() -> None:
        with (tree / "log").open("ab", buffering=0) as file:
            while not over.is_set():
                file.write(b"x" * 2**16)
                if file.tell() > 2**26:
                    file.truncate(0)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(200):
            assert len(read(tree, "log") or b"") <= 1000
            assert len(untrusted_fs.read_plain(tree / "log", 2**17, tail=True) or b"") <= 2**17
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("trap", [link, dangling, pipe, directory])
def test_a_path_in_our_own_directory_leads_to_plain_files_only(tmp_path: Path, trap: Trap) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    trap(tmp_path / "stdout.log", victim)
    assert untrusted_fs.read_plain(tmp_path / "stdout.log", 100) is None
    with pytest.raises(OSError, match=r"stdout\.log"):
        untrusted_fs.open_plain(tmp_path / "stdout.log")
