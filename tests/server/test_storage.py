"""A full disk, a directory nobody may write to, and a ledger that is not what we wrote."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.store import sqlite
from tests import support
from tests.support import House, make_repository, wait_until

root_only = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which needs root"),
]
user_only = pytest.mark.skipif(os.geteuid() == 0, reason="permissions mean nothing to root")


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    match how:
        case "truncated":
            path.write_bytes(raw[: len(raw) // 2])
        case "garbage page":
            path.write_bytes(raw[:4096] + os.urandom(4096) + raw[8192:])
        case "garbage":
            path.write_bytes(os.urandom(8192))
        case "zero bytes":
            path.write_bytes(b"")
        case "newer":
            db = sqlite3.connect(path)
            db.execute("PRAGMA user_version=99")
            db.commit()
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.close()
        case "another":
            path.unlink()
            db = sqlite3.connect(path)
            db.execute("CREATE TABLE strange (a)")
            db.commit()
            db.close()


def test_a_ledger_that_is_not_ours_is_refused_and_kept(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo kept > kept")
    house.ok("down")
    whole = house.home.ledger.read_bytes()
    for how in ("truncated", "garbage page", "garbage", "zero bytes", "newer", "another"):
        for name in ("ledger.db-wal", "ledger.db-shm"):
            (house.home.root / name).unlink(missing_ok=True)
        house.home.ledger.write_bytes(whole)
        damage(house.home.ledger, how)
        before = house.home.ledger.read_bytes()
        assert_refused(house, how, [["up"], ["up", "-d"], ["add", "true"]] if how in ("garbage page", "newer") else [["up"]])
        assert_nothing_shown(house, how)
        assert house.home.ledger.read_bytes() == before, f"{how}: the original was touched"
        assert not list(house.home.root.glob("ledger.db.new*")), how
    work = subprocess.run(["git", "-C", str(house.repo), "branch", "--list", "nightcrew/*"], capture_output=True, text=True, check=True)
    assert "/work/work" in work.stdout, "branches are where they were"


def assert_refused(house: House, how: str, commands: list[list[str]]) -> None:
    """By what would write it. Those that start a supervisor in the background do so with a new interpreter."""
    for words in commands:
        done = house.run(*words)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("nightcrew: starting")]
        assert done.returncode == 1 and len(lines) == 1, (how, words, done.stderr)
        assert str(house.home.ledger) in lines[0] and "kept: the file as it was" in lines[0] and "; next: " in lines[0], (how, lines)
        assert ("schema 99" in lines[0] and f"up to {sqlite.SCHEMA}" in lines[0]) if how == "newer" else "damaged" in lines[0], (how, lines)
        assert "Traceback" not in done.stderr, how


def assert_nothing_shown(house: House, how: str) -> None:
    """Or what is right, by what reads it."""
    for words in (["status"], ["status", "--json"], ["status", "work"], ["wait", "work"], ["logs", "work"]):
        done = house.run(*words)
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1, (how, words, done.stderr)
        assert done.returncode == 0 or str(house.home.ledger) in done.stderr, (how, words, done.stderr)


def test_a_ledger_with_a_table_in_pieces_is_told_while_it_is_read(house: House) -> None:
    """`status` opens it without a full check, so it meets the damage in the middle of a question."""
    house.start_daemon()
    for number in range(3):
        house.ok("add", "-f", "--id", f"work{number}", f"echo {'x' * 3000}; true")
    house.ok("down")
    raw = bytearray(house.home.ledger.read_bytes())
    for page in range(1, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 200] = os.urandom(200)
    house.home.ledger.write_bytes(raw)
    done = house.run("status", "--all")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith("nightcrew: the ledger is damaged ") and "; next: " in line, line


@user_only
def test_a_state_directory_that_cannot_be_written(house: House) -> None:
    house.home.root.parent.chmod(0o500)
    try:
        for words in (["add", "true"], ["up", "-d"], ["up"]):
            done = house.run(*words)
            (line,) = done.stderr.splitlines()
            assert (
                done.returncode != 0 and line.startswith("nightcrew: cannot write ") and str(house.home.root) in line and "; next: " in line
            )
    finally:
        house.home.root.parent.chmod(0o700)


@user_only
def test_a_ledger_that_cannot_be_written(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "true")
    house.ok("down")
    house.home.ledger.chmod(0o400)
    try:
        assert house.run("status").returncode == 0, "looking goes on"
        done = house.run("up")
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and "the ledger" in line and str(house.home.ledger) in line
    finally:
        house.home.ledger.chmod(0o600)


def test_modes_that_somebody_loosened_are_mended(house: House) -> None:
    house.start_daemon()
    house.ok("down")
    house.home.root.chmod(0o755)
    house.home.run_dir.mkdir()
    house.home.run_dir.chmod(0o777)
    house.start_daemon()
    assert [path.stat().st_mode & 0o777 for path in (house.home.root, house.home.run_dir)] == [0o700, 0o700]


# A full disk ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[House]:
    """A house whose state lies on a file system of its own, of 24 MB."""
    with support.small_disk(tmp_path / "small", "size=24m,mode=0700") as place:
        made = House(place, make_repository(tmp_path / "repo"))
        try:
            yield made
        finally:
            made.reap()


def fill(house: House, leave: int) -> Path:
    """Take all free space but `leave` bytes."""
    filler = house.home.root.parent / "filler"
    with filler.open("wb") as file:

        def taken() -> bool:
            """The supervisor writes meanwhile: what was free a moment ago may be less by now."""
            free = os.statvfs(filler.parent).f_bavail * os.statvfs(filler.parent).f_frsize
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, free - leave))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False
            return True

        wait_until(taken, "the disk to be full")
    return filler


class TestFullDisk:
    pytestmark = root_only

    def test_nothing_is_lost_and_work_goes_on_when_there_is_room_again(self, small: House) -> None:
        daemon = small.start_daemon()
        small.ok("add", "--id", "live", "while [ ! -e ../../../../../go ]; do sleep 0.1; done; echo finished > /dev/shm/$$; rm /dev/shm/$$")
        wait_until(lambda: small.task("live").attempt_state == "running", "it to run")
        filler = fill(small, 0)
        refused = small.run("add", "--id", "refused", "true")
        (line,) = refused.stderr.splitlines()
        assert refused.returncode == 1 and line.startswith("nightcrew: cannot write") and "; next: free" in line, line
        assert small.run("status").returncode == 0
        assert daemon.poll() is None
        filler.unlink()
        small.ok("add", "--id", "later", "true")
        wait_until(lambda: small.state("later") == "done", "new work to be done")
        (small.home.root.parent / "go").touch()
        wait_until(lambda: small.state("live") == "done", "what ran all the time to end well")
        assert {view.name: view.epoch for view in small.tasks()} == {"live": 1, "later": 1}, "the refused one is not known"
        assert daemon.poll() is None

    def test_an_agent_that_fills_the_disk_harms_only_itself(self, small: House) -> None:
        daemon = small.start_daemon()
        small.ok("add", "--id", "glutton", "dd if=/dev/zero of=big bs=1M; echo full; rm big; exit 9")
        wait_until(lambda: small.task("glutton").final, "it to end")
        assert small.state("glutton") == "failed"
        small.ok("add", "-f", "--id", "next", "true")
        assert daemon.poll() is None

    def test_nothing_starts_below_the_limit_and_it_is_said_once(self, small: House) -> None:
        small.config.write_text('sandbox = 0\n[limits]\ndisk_free_min = "12MB"\n')
        small.start_daemon()
        filler = fill(small, 8 * 2**20)
        small.ok("add", "--id", "held", "true")
        wait_until(lambda: "disk_free_min" in small.daemon_output(), "the supervisor to say so")
        assert small.run("wait", "--timeout", "2", "held").returncode == 124
        assert small.daemon_output().count("disk_free_min") == 1
        filler.unlink()
        small.ok("wait", "held")


# Who may look ------------------------------------------------------------------------------------------------------------------------


def test_nobody_else_may_read_what_we_write_whatever_the_umask_is(house: House) -> None:
    before = os.umask(0)
    try:
        house.ok("add", "-f", "--id", "work", "echo x > made; mkdir folder", env={"MY_OWN": "x"})
        house.ok("up", "-d")
    finally:
        os.umask(before)
    places = (*house.home.root.rglob("*"), *house.home.run_dir.rglob("*"))  # the sockets lie elsewhere when the path is long
    seen = {path: path.lstat().st_mode & 0o777 for path in places if not path.is_relative_to(house.home.worktrees)}
    loose = {str(path): oct(mode) for path, mode in seen.items() if mode & 0o077}
    assert loose == {}
    assert house.home.root.stat().st_mode & 0o777 == 0o700
    assert house.home.worktrees.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in seen} >= {
        "ledger.db",
        "daemon.sock",
        "tmux.sock",
        "daemon.lock",
        "launch.spec",
        "exit.json",
        "stdout.log",
    }


def test_a_long_path_uses_a_private_directory_and_refuses_one_made_by_somebody_else(repo: Path, tmp_path: Path) -> None:
    """Anybody can compute where the sockets of a state directory with a long path will lie."""
    long = tmp_path / ("x" * 80) / ("y" * 40)
    long.mkdir(parents=True)
    house = House(long, repo)
    try:
        run_dir = house.home.run_dir
        assert run_dir.parent == Path("/tmp")
        victim = tmp_path / "victim"
        victim.mkdir()
        run_dir.symlink_to(victim)
        for words in (["up"], ["up", "-d"]):
            refused = house.run(*words)
            (line,) = refused.stderr.splitlines()
            assert refused.returncode == 6 and str(run_dir) in line and "not a directory but a link" in line
        assert list(victim.iterdir()) == []
        run_dir.unlink()
        house.ok("add", "-f", "true")
        assert run_dir.stat().st_mode & 0o777 == 0o700
        assert {path.name for path in run_dir.iterdir()} >= {"daemon.sock", "tmux.sock"}
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        house.ok("add", "-f", "true", env={"TMPDIR": str(elsewhere)})
        assert list(elsewhere.iterdir()) == [], "whoever calls it, from wherever: it is one supervisor"
    finally:
        house.reap()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user, which needs root")
def test_a_directory_of_another_user_is_refused(house: House, tmp_path: Path) -> None:
    house.home.root.mkdir(mode=0o777)
    shutil.chown(house.home.root, 65534)
    done = house.run("up", "-d")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 6 and "belongs to uid 65534, not to us" in line and list(house.home.root.iterdir()) == []
