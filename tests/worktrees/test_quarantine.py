"""Objects wait in a quarantine and get into the store, while a person's own git works there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.worktrees.conftest import World
from worktrees import pack_import

SHARD, NAME = "ab", "c" * 38


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A quarantine with one object."""
    (tmp_path / "held" / SHARD).mkdir(parents=True)
    (tmp_path / "held" / SHARD / NAME).write_bytes(b"object")
    return tmp_path / "held"


def test_a_persons_gc_takes_no_quarantine_away(world: World) -> None:
    repo = world.repo()
    with pack_import.quarantine(repo.common_dir / "objects") as place:
        (place / "draft").touch()
        world.sh(repo.root, "gc", "-q", "--prune=now")
        assert (place / "draft").exists()
    assert not place.exists()


@pytest.mark.parametrize("links", [True, False])
def test_a_directory_that_a_persons_gc_removes_before_it_has_an_object_is_made_again(
    store: Path, held: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    removed, link = list[Path](), Path.hardlink_to

    def after_a_prune(target: Path, file: Path) -> None:
        if len(removed) < 2:
            removed.append(target.parent)
            target.parent.rmdir()
        if not links:
            raise OSError("no links here")
        link(target, file)

    monkeypatch.setattr(Path, "hardlink_to", after_a_prune)
    pack_import.migrate(held, store)
    assert (store / SHARD / NAME).read_bytes() == b"object" and len(removed) == 2


def test_a_directory_whose_objects_a_persons_gc_packed_meanwhile_needs_no_flush(
    store: Path, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def packed(handle: int) -> None:
        shutil.rmtree(store / SHARD, ignore_errors=True)
        flush(handle)

    monkeypatch.setattr(os, "fsync", packed)
    pack_import.migrate(held, store)
    assert not (store / SHARD).exists()


def test_an_object_that_is_gone_from_the_quarantine_is_said(store: Path, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (held / SHARD / NAME).unlink()
    monkeypatch.setattr(pack_import, "_files", lambda shard: [shard / NAME])
    with pytest.raises(FileNotFoundError):
        pack_import.migrate(held, store)
