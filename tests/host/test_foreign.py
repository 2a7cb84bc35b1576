"""The door to what an agent can write: nothing is followed, nothing waits, and nothing leaves the directory that was opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.host import foreign
from supervisor.host.foreign import folder

pytestmark = pytest.mark.timeout(60)  # open(2) of a pipe does not return
Trap = Callable[[Path, Path], None]


@pytest.fixture(params=["openat2", "step by step"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel's one call, and without it."""
    if request.param == "step by step":
        monkeypatch.setattr(foreign, "_openat2", lambda: None)
    return


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
