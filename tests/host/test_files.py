"""Files that must be whole, private, or may hold a trap."""

from __future__ import annotations

import os
import random
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.kernel.errors import Refused, ToolFailed
from tests import support


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_what_we_make_is_private_under_any_umask(tmp_path: Path) -> None:
    """X13."""
    made = files.private_dir(tmp_path / "a" / "b")
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)
    files.atomic_write(made / "secret", b"x")
    assert mode(made / "secret") == 0o600
    files.atomic_write(made / "secret", b"y", mode=0o644)
    assert mode(made / "secret") == 0o644


def test_a_wrong_mode_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    assert mode(files.private_dir(tmp_path / "run")) == 0o700


@pytest.mark.parametrize("trap", ["link", "dangling", "file"])
def test_a_directory_that_somebody_else_prepared_is_refused(tmp_path: Path, trap: str) -> None:
    path = tmp_path / "run"
    (tmp_path / "theirs").mkdir(mode=0o755)
    match trap:
        case "link":
            path.symlink_to(tmp_path / "theirs")
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case _:
            path.write_text("")
    with pytest.raises(Refused, match="not a directory but a link or a file") as caught:
        files.private_dir(path)
    assert all((caught.value.what, caught.value.on, caught.value.why, caught.value.kept, caught.value.hint))
    assert mode(tmp_path / "theirs") == 0o755


def test_a_directory_of_another_owner_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        path = tmp_path / "run"
        path.mkdir()
        os.chown(path, 65534, 65534)
    else:
        path = Path("/")
        if path.stat().st_uid == os.geteuid():
            pytest.skip("in this user namespace everybody is the same user")  # what is tested would change the root directory
    before = mode(path)
    with pytest.raises(Refused, match="belongs to uid"):
        files.private_dir(path)
    assert mode(path) == before


@pytest.mark.root
def test_a_mode_on_a_read_only_file_system_is_refused(tmp_path: Path) -> None:
    with support.small_disk(tmp_path / "small", "size=1m,mode=0755") as place:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(ToolFailed, match="Read-only file system"):
            files.private_dir(place)


def test_an_atomic_write_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("theirs")
    (tmp_path / "link").symlink_to("target")
    files.atomic_write(tmp_path / "link", b"ours")
    assert (tmp_path / "target").read_text() == "theirs"
    assert (tmp_path / "link").read_text() == "ours"
    assert not (tmp_path / "link").is_symlink()


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing(tmp_path: Path) -> None:
    """S04, with the largest file size as the full disk."""
    files.atomic_write(tmp_path / "memory", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ToolFailed, match="kept: the old content"):
            files.atomic_write(tmp_path / "memory", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "memory").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]


def test_a_write_into_nowhere_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="No such file or directory"):
        files.atomic_write(tmp_path / "none" / "x", b"")


def test_whenever_the_writer_is_killed_the_file_is_whole(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    program = """
import sys
from pathlib import Path
from supervisor.host.files import atomic_write
print(flush=True)
for letter in iter(lambda: None, 0):
    for letter in b"ab":
        atomic_write(Path(sys.argv[1]), bytes([letter]) * 100_000)
"""
    path = tmp_path / "file"
    files.atomic_write(path, b"a" * 100_000)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(dice.randrange(2, 20)):
                inode = path.stat().st_ino
                while path.stat().st_ino == inode:
                    pass
            writer.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (b"a" * 100_000, b"b" * 100_000)


def test_free_bytes_are_what_an_ordinary_user_has_left(tmp_path: Path) -> None:
    space = os.statvfs(tmp_path)
    assert 0 < files.free_bytes(tmp_path) <= space.f_bfree * space.f_frsize
