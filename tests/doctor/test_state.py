"""The state directory, its disk, the ledger and the files that people write: well, damaged, somebody else's."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.watching import Watching
from supervisor.client import protocol
from supervisor.doctor import state_directory as checks
from supervisor.doctor import state_directory as file_events
from supervisor.doctor.examine import State
from supervisor.host import scratch
from supervisor.kernel.settings import Settings
from supervisor.store import sqlite
from tests.doctor.conftest import Machine
from tests.support import House, git, make_repository

ordinary = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


@pytest.fixture
def home(machine: Machine) -> Path:
    """A state directory with a ledger."""
    root = machine.root / "state"
    root.mkdir(mode=0o700)
    sqlite.connect(root / "ledger.db").close()
    return root


def test_before_anything_ran_all_is_well(machine: Machine) -> None:
    for check in checks.CHECKS.values():
        assert check(machine.place()).state is State.OK
    assert not (machine.root / "state").exists(), "looking makes nothing"


def test_directories_that_cannot_be_watched_are_named(machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_events.check(machine.place()).state is State.OK
    monkeypatch.setattr(Watching, "follow", lambda *_: "inotify instance limit reached")
    found = file_events.check(machine.place())
    assert (found.state, found.seen) == (State.WARN, "inotify instance limit reached")
    monkeypatch.setattr(scratch, "file_system", lambda *_: "nfs4")
    assert file_events.check(machine.place()).seen.startswith("nfs4 ")


def test_a_supervisor_says_how_often_events_were_dropped(house: House) -> None:
    house.start_daemon()
    assert protocol.call(house.home.daemon_socket, "watch", {}, timeout_s=60) == {"overflows": 0}


def test_a_mode_that_lets_others_in_is_mended(machine: Machine, home: Path) -> None:
    assert checks.directory(machine.place()).state is State.OK
    home.chmod(0o755)
    found = checks.directory(machine.place())
    assert found.state is State.WARN and "has mode 0755" in found.seen and found.mend is not None
    found.mend()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.chmod(0o500)
    found = checks.directory(machine.place())
    assert found.state is State.FAIL and found.mend is not None
    found.mend()
    assert checks.directory(machine.place()).state is State.OK


def test_a_link_or_a_file_in_its_place_is_not_touched(machine: Machine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    state = machine.root / "state"
    makes: list[Callable[[], None]] = [lambda: state.symlink_to(elsewhere), state.touch]
    for make in makes:
        make()
        found = checks.directory(machine.place())
        assert found.state is State.FAIL and "not a directory but a link or a file" in found.seen and found.mend is None
        state.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_directory_of_somebody_else(machine: Machine, home: Path) -> None:
    os.chown(home, 12345, -1)
    found = checks.directory(machine.place())
    assert found.state is State.FAIL and "belongs to uid 12345" in found.seen and found.mend is None


@ordinary
def test_a_directory_that_cannot_be_made(machine: Machine, unlocked: Callable[[Path], Path]) -> None:
    unlocked(machine.root)
    assert "cannot be made" in checks.directory(machine.place()).seen


@pytest.mark.parametrize(
    ("kind", "options", "state"),
    [
        ("ext4", "rw", State.OK),
        ("nfs4", "rw", State.WARN),
        ("fuse.sshfs", "rw", State.WARN),
        ("tmpfs", "rw", State.WARN),
        ("xfs", "rw,noexec", State.WARN),
    ],
)
def test_what_the_state_lies_on(machine: Machine, kind: str, options: str, state: State) -> None:
    point = str(machine.root)
    hidden, other = ("/dev/sdb", point, "vfat", "rw"), ("s:/", f"{point}x", "nfs4", "rw")
    machine.mounts = [("/dev/sda1", "/", "btrfs", "rw"), hidden, ("server:/x", point, kind, options), other]
    found = checks.file_system(machine.place())
    assert found.state is state and found.seen.startswith(f"{kind} on {machine.root}")
    machine.mounts = []
    assert checks.file_system(machine.place()).state is State.UNKNOWN


def test_the_disk(machine: Machine, home: Path) -> None:
    assert checks.disk(machine.place()).state is State.OK
    free = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
    found = checks.disk(machine.place(Settings(disk_free_min=2 * free)))
    assert found.state is State.FAIL and "nothing new starts" in found.why


def test_the_ledger(machine: Machine, home: Path) -> None:
    found = checks.ledger(machine.place())
    assert found.state is State.OK and found.seen.startswith(f"whole, schema {sqlite.SCHEMA}; runs: 0, tasks: 0")
    data = bytearray((home / "ledger.db").read_bytes())
    data[4096:8192] = b"\xff" * 4096
    (home / "ledger.db").write_bytes(data)
    found = checks.ledger(machine.place())
    assert found.state is State.FAIL and "doctor --recover-ledger" in found.fix
    (home / "ledger.db").write_bytes(b"")
    assert "zero bytes" in checks.ledger(machine.place()).seen
    (home / "ledger.db").unlink()
    with sqlite3.connect(home / "ledger.db") as db:
        db.execute("CREATE TABLE task (id)")
        db.execute("PRAGMA user_version = 99")
    assert "the ledger is newer" in checks.ledger(machine.place()).seen


def test_the_settings(machine: Machine) -> None:
    assert checks.settings(machine.place()).seen.startswith("none, so the defaults hold")
    machine.file("config.toml", "slot = 3\n")
    found = checks.settings(machine.place())
    assert found.state is State.FAIL and "config.toml:1 slot: did you mean slots?" in found.seen


def test_the_repository_and_its_project_file(machine: Machine) -> None:
    machine.environ = {"PATH": os.environ["PATH"]}
    assert checks.repository(machine.place()).seen == "not in a repository"
    git(machine.root, "init", "-q")
    assert checks.repository(machine.place()).state is State.WARN, "it has no commit"
    (machine.root / ".git" / "HEAD").unlink()
    make_repository(machine.root / "repo")
    place = machine.place()
    inside = type(place)(home=place.home, config=place.config, cwd=machine.root / "repo", environ=place.environ)
    assert "nightcrew init writes one" in checks.repository(inside).seen
    file = machine.root / "repo" / "nightcrew.toml"
    file.write_text("base = 'main'\n")
    assert "(nightcrew.toml)" in checks.repository(inside).seen
    file.write_text("bas = 'main'\n")
    found = checks.repository(inside)
    assert found.state is State.FAIL and "nightcrew.toml:1 bas: did you mean base?" in found.seen
    assert not place.home.root.exists()
