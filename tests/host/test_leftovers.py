"""What kills leave in temporary directories, and who takes it away."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

from supervisor.host import unix_sockets
from supervisor.host.scratch import locked_directory
from supervisor.sandbox import executors

PREFIX = "nightcrew-7-"


def killed_within(parent: Path, prefix: str) -> Path:
    """What a process leaves that is killed while it has a directory."""
    child = os.fork()
    if child == 0:
        with locked_directory(parent, prefix) as place:
            (place / "deep" / "er").mkdir(parents=True)
            (place / "deep" / "er" / "file").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = parent.glob(f"{prefix}*")
    return left


def test_the_next_one_takes_away_what_a_killed_one_left(tmp_path: Path) -> None:
    left = killed_within(tmp_path, "scratch.")
    with locked_directory(tmp_path, "scratch.") as first, locked_directory(tmp_path, "scratch.") as second:
        assert not left.exists() and first.exists() and second.exists(), "who lives keeps its own"
    assert os.listdir(tmp_path) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    (tmp_path / "scratch.link").symlink_to(other)
    with locked_directory(tmp_path, "scratch."):
        pass
    assert (other / "file").exists()


def test_probing_sandboxes_leaves_nothing_and_takes_away_what_a_killed_probe_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed_within(tmp_path, "nightcrew-probe-")
    executors.probe()
    assert os.listdir(tmp_path) == []


def aged(place: Path) -> Path:
    os.utime(place, (0, time.time() - 2 * unix_sockets.UNUSED_S))
    return place


def test_directories_of_sockets_that_nobody_uses_are_removed() -> None:
    with tempfile.TemporaryDirectory(prefix="nc-") as folder:  # short: a socket's path holds 107 bytes
        judge_directories(Path(folder))


def judge_directories(top: Path) -> None:
    names = ("0" * 16, "1" * 16, "2" * 16, "3" * 16, "short")
    places = [top / f"{PREFIX}{name}" for name in names]
    for place in places:
        place.mkdir()
    dead, used, fresh, strange, _ = places
    (dead / "tmux.sock.turn").touch()
    (dead / "z").mkdir()
    with socket.socket(socket.AF_UNIX) as gone, socket.socket(socket.AF_UNIX) as lives:
        gone.bind(str(dead / "daemon.sock"))
        gone.close()
        lives.bind(str(used / "tmux.sock"))
        lives.listen()
        (used / "tmux.sock").unlink()  # who listens there is still there
        (strange / "notes.txt").touch()
        for place in (dead, used, strange, places[-1]):
            aged(place)
        unix_sockets.sweep(top, PREFIX, time.time())
        assert not dead.exists() and all(place.exists() for place in places[1:]), "in use, new, not ours, not of that name"
        assert [who.pid for who in unix_sockets.listeners(used / "tmux.sock")] == [os.getpid()]
    unix_sockets.sweep(top, PREFIX, time.time())
    assert not used.exists() and fresh.exists()
