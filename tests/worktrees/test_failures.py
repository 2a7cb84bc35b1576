"""git's words for a full disk, and a full disk for which git has no words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.kernel.errors import DiskFull, ToolFailed
from tests import support
from worktrees.git import failure

SAID = {
    "an object": "error: unable to write loose object file: No space left on device\nfatal: adding files failed\n",
    "an index": "fatal: sha1 file '/r/.git/worktrees/w/index.lock' write error. Out of diskspace\n",
    "a quota": "fatal: write error: Disk quota exceeded\n",
    "packed refs": "fatal: unable to write new packed-refs: error closing file /r/.git/packed-refs.new: No space left on device\n",
    "a log": "fatal: cannot update the ref 'refs/heads/x': unable to append to '.git/logs/refs/heads/x': No space left on device\n",
    "a worktree": "fatal: could not create leading directories of '.git/worktrees/w': No space left on device\n",
    "a pack": "fatal: write error: No space left on device\nfatal: index-pack failed\n",
}
"""As git 2.39 said it on small file systems, tmpfs and ext4."""
SILENT = {
    "a directory": "fatal: cannot lock ref 'refs/heads/x/y': unable to create directory for .git/refs/heads/x/y\n",
    "a ref": "fatal: cannot update ref 'refs/heads/x': couldn't write '/r/.git/refs/heads/x.lock'\n",
    "a checkout": "error: unable to write file big\n",
}
"""As it said there with no reason."""


@pytest.mark.parametrize("what", SAID)
def test_git_says_that_a_disk_is_full(what: str, tmp_path: Path) -> None:
    found = failure("verb", "/r", 128, SAID[what], [tmp_path])
    assert isinstance(found, DiskFull), SAID[what]
    assert found.on == str(tmp_path) and found.why.endswith(" bytes free)") and found.hint, found.line()


@pytest.mark.parametrize("what", SILENT)
def test_the_disk_is_asked_when_git_gives_no_reason(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HARDLY_ANY", 2**62)
    found = failure("verb", "/r", 128, SILENT[what], [tmp_path])
    assert isinstance(found, DiskFull) and found.on == str(tmp_path)
    monkeypatch.setattr(files, "HARDLY_ANY", 0)
    monkeypatch.setattr(files, "free_bytes", lambda _: 2**40)
    assert type(failure("verb", "/r", 128, SILENT[what], [tmp_path])) is ToolFailed


def test_another_failure_is_none_of_a_disk(tmp_path: Path) -> None:
    found = failure("update-ref", "/r", 128, "fatal: cannot lock ref 'refs/heads/x': is at 12 but expected 34\n", [tmp_path])
    assert type(found) is ToolFailed and (found.on, found.why) == ("/r", "fatal: cannot lock ref 'refs/heads/x': is at 12 but expected 34")
    assert failure("log", "/r", 3, "", [tmp_path]).why == "exit status 3"


@pytest.mark.root
def test_a_place_that_cannot_be_written_at_all_is_not_full(tmp_path: Path) -> None:
    assert not files.is_full(tmp_path / "absent")
    with support.small_disk(tmp_path / "disk", "size=900k") as place:
        assert files.is_full(place)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        assert not files.is_full(place), "read-only is another fault"


@pytest.mark.root
def test_a_disk_without_a_file_left_is_full(tmp_path: Path) -> None:
    with support.small_disk(tmp_path / "disk", "size=8m,nr_inodes=2") as place:
        (place / "last").touch()
        assert files.is_full(place) and "bytes free" in files.disk_full("cannot write", place, "no inode").line()
