"""Trees of any depth and shape, also while somebody swaps their directories: counted and removed by handles, within bounds."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.host import untrusted_fs, usage
from supervisor.host.untrusted_fs import Descent, entries, remove_tree
from tests.support import small_disk

pytestmark = pytest.mark.timeout(120)
MIB = 2**20


def dig(top: Path, levels: int, bottom: Callable[[int], None] | None = None) -> None:
    """Directories `d` in one another; `bottom` gets a handle of the last one."""
    top.mkdir(exist_ok=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    if bottom is not None:
        bottom(here)
    os.close(here)


def fill(here: int) -> None:
    with open(os.open("big", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here), "wb") as file:
        file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A place for deep trees, which pytest could not clear away."""
    yield tmp_path / "deep"
    remove_tree(tmp_path / "deep")


def test_what_lies_deep_is_counted(deep: Path) -> None:
    dig(deep, 5000, fill)
    found = usage.used([deep])
    assert found.complete and found.entries == 5002 and found.bytes >= MIB


@pytest.mark.parametrize("levels", [10_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_a_very_deep_tree_is_counted_and_removed(deep: Path, levels: int) -> None:
    dig(deep, levels)
    gc.collect()  # what an earlier test left open is closed now, and not while this one counts
    handles = len(os.listdir("/proc/self/fd"))
    assert usage.used([deep], max_seconds=600).entries == levels + 1
    remove_tree(deep, max_seconds=600)
    assert not deep.exists() and len(os.listdir("/proc/self/fd")) == handles


def test_entries_are_named_as_deep_as_a_path_can_name_and_no_directory_is_opened_from_the_top(
    deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    beneath = untrusted_fs._beneath

    def counted(top: int, below: str, *, make: bool) -> int:
        opened.append(below)
        return beneath(top, below, make=make)

    monkeypatch.setattr(untrusted_fs, "_beneath", counted)
    deep.mkdir()
    dig(deep / "in", 3000)
    (deep / "in" / "d" / "d" / "file").touch()
    (deep / "in" / "d" / "link").symlink_to("d")
    found, handles = [], set()
    for below, here, entry in entries(deep, "in"):
        found.append(f"{below}/{entry.name}")
        handles.add(len(os.listdir("/proc/self/fd")))
        assert os.stat(entry.name, dir_fd=here.handle, follow_symlinks=False).st_ino == entry.inode()
    assert {"in/d/d/file", "in/d/link"} <= set(found) and len(found) == len(set(found))
    assert max(map(len, found)) == 4096 and len(found) == 2047 + 2, "the names of what can still be named, and of the next"
    assert max(handles) - min(handles) < 40
    assert opened == ["in"]


def test_entries_pass_over_what_is_left_out_and_what_is_closed_unless_it_may_be_opened(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/closed/c", "left/c", "a/left/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "a" / "closed").chmod(0)

    def files(*, open_up: bool) -> set[str]:
        walk = entries(tmp_path, leave_out={"left"}, open_up=open_up)
        return {f"{below}/{entry.name}" for below, _, entry in walk if entry.name == "file"}

    open_ones = {"a/b/c/file", "a/left/c/file"}
    assert files(open_up=False) in (open_ones, open_ones | {"a/closed/c/file"}), "nothing is closed to root"
    assert files(open_up=True) == open_ones | {"a/closed/c/file"}
    assert stat.S_IMODE((tmp_path / "a" / "closed").stat().st_mode) == 0o700
    with pytest.raises(FileNotFoundError):
        next(entries(tmp_path, "nothing"))


def test_a_count_has_an_end_in_time(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).mkdir()
    ticks = itertools.count()
    found = usage.used([tmp_path], max_seconds=20, clock=lambda: float(next(ticks)))
    assert not found.complete and 0 < found.entries < 30


def test_a_count_in_one_directory_reads_no_more_than_it_counts(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / str(number)).touch()
    ticks = itertools.count()
    found = usage.used([tmp_path], max_entries=10, max_seconds=1000, clock=lambda: float(next(ticks)))
    assert (found.entries, found.complete) == (10, False)
    assert next(ticks) < 100


@contextlib.contextmanager
def swapping(directory: Path, other: Path) -> Iterator[None]:
    """`directory` is now itself, now a link to `other`."""
    aside, over = directory.with_name("aside"), threading.Event()

    def swap() -> None:
        while not over.is_set():
            directory.rename(aside)
            directory.symlink_to(other)
            directory.unlink()
            aside.rename(directory)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_swapped_directory_leads_no_count_elsewhere(tmp_path: Path) -> None:
    elsewhere, top = tmp_path / "elsewhere", tmp_path / "top"
    (elsewhere / "b" / "c").mkdir(parents=True)
    (elsewhere / "b" / "c" / "big").write_bytes(os.urandom(MIB))
    (top / "a" / "b" / "c").mkdir(parents=True)
    with swapping(top / "a", elsewhere):
        assert max(usage.used([top]).bytes for _ in range(3000)) < MIB


def test_a_swapped_directory_leads_no_removal_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "b").mkdir(parents=True)
    (elsewhere / "b" / "theirs").write_text("theirs")
    (elsewhere / "b").chmod(0o500)
    for _ in range(100):
        (tmp_path / "top" / "a" / "b").mkdir(parents=True)
        over = threading.Event()

        def swap(over: threading.Event = over) -> None:
            with contextlib.suppress(OSError):
                while not over.is_set():
                    os.rename(tmp_path / "top/a", tmp_path / "top/c")
                    os.symlink(elsewhere, tmp_path / "top/a")
                    os.unlink(tmp_path / "top/a")
                    os.rename(tmp_path / "top/c", tmp_path / "top/a")

        thread = threading.Thread(target=swap)
        thread.start()
        with contextlib.suppress(OSError):
            remove_tree(tmp_path / "top")
        over.set()
        thread.join()
        remove_tree(tmp_path / "top")
    assert (elsewhere / "b" / "theirs").read_text() == "theirs"
    assert stat.S_IMODE((elsewhere / "b").stat().st_mode) == 0o500


def test_sockets_pipes_and_links_are_counted_and_removed_and_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "out"
    top.mkdir()
    os.mkfifo(top / "pipe")
    (top / "link").symlink_to("/usr")
    (top / "self").symlink_to(".")
    monkeypatch.chdir(top)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        if os.geteuid() == 0:
            with contextlib.suppress(PermissionError):
                os.mknod(top / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        assert usage.used([top]).complete
    remove_tree(top)
    assert not top.exists()


def test_directories_that_are_closed_are_removed(tmp_path: Path) -> None:
    for name, mode in (("none", 0), ("read", 0o500), ("search", 0o300)):
        (tmp_path / "top" / name / "deeper").mkdir(parents=True)
        (tmp_path / "top" / name / "deeper" / "file").touch()
        (tmp_path / "top" / name / "deeper").chmod(mode)
        (tmp_path / "top" / name).chmod(mode)
    remove_tree(tmp_path / "top")
    assert not (tmp_path / "top").exists()


def test_what_shall_stay_stays(tmp_path: Path) -> None:
    for name in ("keep", "go", "go/keep"):
        (tmp_path / "top" / name).mkdir(parents=True)
    remove_tree(tmp_path / "top", keep=("keep", "not there"))
    assert sorted(path.name for path in (tmp_path / "top").rglob("*")) == ["keep"]
    remove_tree(tmp_path / "top")
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "top").symlink_to(tmp_path / "theirs")
    remove_tree(tmp_path / "top")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_a_removal_has_an_end_in_time(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / "top" / str(number)).mkdir(parents=True)
    ticks = itertools.count()
    with pytest.raises(TimeoutError):
        remove_tree(tmp_path / "top", max_seconds=20, clock=lambda: float(next(ticks)))
    assert (tmp_path / "top").exists()


def test_nothing_is_removed_on_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    with small_disk(tmp_path / "top" / "mounted", "size=1m") as place:
        (place / "theirs").touch()
        with pytest.raises(OSError, match="another file system"):
            remove_tree(tmp_path / "top")
        with pytest.raises(OSError, match="another file system"):
            remove_tree(place)
        assert (place / "theirs").exists()


def test_whoever_moves_a_directory_that_we_are_in_cuts_the_walk_short_and_leads_it_nowhere(deep: Path) -> None:
    dig(deep, 50)
    top = os.open(deep, os.O_RDONLY)
    handles = len(os.listdir("/proc/self/fd"))
    way = Descent(top)
    way.todo.append("left to do")
    for _ in range(50):
        way.enter("d")
        way.todo.append("left to do")
    assert len(os.listdir("/proc/self/fd")) < handles + 40
    (deep / "/".join("d" * 48)).rename(deep / "moved")
    for _ in range(2):
        assert way.leave() == "d" and way.is_whole
    assert way.leave() == "" and not way.is_whole
    assert os.fstat(way.here).st_ino == (deep / "/".join("d" * way.depth)).stat().st_ino and way.depth < 48
    while way.depth:
        assert way.todo == ["left to do"] and way.leave() == "d"
    way.close()
    os.close(top)
