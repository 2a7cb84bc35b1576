"""The index is rewritten as git itself would have written it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import HostError
from worktrees.backends import entries, fitted

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

LONG_AGO_NS = 1_500_000_000_123_456_789


def _copied(world: World, form: str, *settings: str) -> tuple[Path, Path]:
    """A repository with odd names and an extended entry, and a copy of its files with the same times."""
    path = world.tmp / "repo"
    path.mkdir()
    world.sh(path, "init", "-q", f"--object-format={form}")
    for name in ("a", "bb", "long/" * 8 + "x" * 200, "d/e\xff", "exec"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name!r}\n")
        os.utime(path / name, ns=(LONG_AGO_NS, LONG_AGO_NS))
    (path / "deep" / ("y" * 200) / ("z" * 200)).mkdir(parents=True)
    for number in range(10):
        folder = path / "deep" / ("y" * 200) / ("z" * 200) / ("w" * 200) / ("v" * 200) / ("u" * 200) / ("t" * 200)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{'s' * 200}{number}").touch()  # longer than the 4,095 bytes are not possible; 1,400 are
    (path / "exec").chmod(0o755)
    (path / "link").symlink_to("a")
    for setting in settings:
        world.sh(path, "config", *setting.split("="))
    world.sh(path, "add", "-A")
    world.sh(path, "commit", "-qm", "start")
    (path / "later").touch()
    world.sh(path, "add", "-N", "later")  # needs the extended flags of form 3
    copy = world.tmp / "copy"
    shutil.copytree(path, copy, symlinks=True)
    return path, copy


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_git_believes_it_and_it_is_the_index_that_git_writes(world: World, form: str) -> None:
    path, copy = _copied(world, form)
    index = copy / ".git" / "index"
    assert world.sh(copy, "diff-files", "--name-only").count("\n") > 3, "the copy fits without being made to"
    index.write_bytes(fitted((path / ".git" / "index").read_bytes(), copy, 20 if form == "sha1" else 32))
    ours = world.sh(copy, "ls-files", "--debug")
    assert world.sh(copy, "diff-files", "--name-only") == "later"
    assert world.sh(copy, "fsck") == ""
    index.unlink()
    world.sh(copy, "read-tree", "HEAD")
    world.sh(copy, "add", "-N", "later")
    world.sh(copy, "update-index", "-q", "--refresh")
    theirs = world.sh(copy, "ls-files", "--debug")
    assert [line for line in ours.splitlines() if "flags" not in line] == [line for line in theirs.splitlines() if "flags" not in line]


def test_a_file_of_another_time_is_left_for_git_to_look_at(world: World) -> None:
    path, copy = _copied(world, "sha1")
    os.utime(copy / "a", (1, 1))
    (copy / "a").write_text("other text, and longer\n")
    (copy / "bb").unlink()
    (copy / ".git" / "index").write_bytes(fitted((path / ".git" / "index").read_bytes(), copy, 20))
    assert world.sh(copy, "diff-files", "--name-only").split() == ["a", "bb", "later"]


def test_an_unknown_form_is_refused(world: World) -> None:
    path, copy = _copied(world, "sha1", "index.version=4")
    with pytest.raises(HostError, match="version 4"):
        fitted((path / ".git" / "index").read_bytes(), copy, 20)


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_entries_are_those_that_git_lists(world: World, form: str) -> None:
    path, _ = _copied(world, form)
    world.sh(path, "update-index", "--assume-unchanged", "a", "link")
    world.sh(path, "update-index", "--skip-worktree", "bb", "link")
    world.sh(path, "update-index", "--add", "--cacheinfo", f"160000,{world.sh(path, 'rev-parse', 'HEAD')},sub")
    blob = world.sh(path, "rev-parse", ":exec")
    world.run(path, "sh", "-c", f"printf '0 {'0' * len(blob)}\\texec\\n100755 {blob} 2\\texec\\n' | git update-index --index-info")
    rows = world.sh(path, "ls-files", "-v", "--stage", "-z").encode("utf-8", "surrogateescape").split(b"\0")[:-1]
    facts = [(row.partition(b"\t")[0].split(), row.partition(b"\t")[2]) for row in rows]
    theirs = [(name, int(mode, 8), tag.islower(), tag in b"Ss") for (tag, mode, _, _), name in facts]
    found = entries((path / ".git" / "index").read_bytes(), 20 if form == "sha1" else 32)
    assert [(entry.path, entry.mode, entry.is_valid, entry.is_skipped) for entry in found] == theirs
    assert {tag for (tag, *_), _ in facts} == {b"H", b"h", b"S", b"s", b"M"}


@pytest.mark.parametrize("setting", ["index.version=4", "core.splitIndex=true"])
def test_a_form_that_takes_git_is_said_to_be_one(world: World, setting: str) -> None:
    path, _ = _copied(world, "sha1", setting)
    index = (path / ".git" / "index").read_bytes()
    for data in (index, index[:40], index[:-30], b""):
        with pytest.raises(ValueError, match=r"version|extension|short|requires|subsection"):
            list(entries(data, 20))
