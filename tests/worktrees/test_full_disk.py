"""Work is secured whole or the disk is called full, however little room there is; and no name that an agent chose calls one full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.kernel.errors import DiskFull
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from tests import support
from tests.worktrees.conftest import World, make_world
from worktrees import collect_work, commit_work
from worktrees.environments import Environment

LEFT = os.urandom(40_000)
PAGE = 4096


@pytest.fixture(params=["shared", "confined"])
def small(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Repository, worktrees and state on one disk of 8 MB."""
    with support.small_disk(tmp_path / "disk", "size=8m") as place:
        made = make_world(place, monkeypatch)
        made.confined = request.param == "confined"
        if made.confined and not executors.known().works[Executor.NAMESPACES]:
            pytest.skip("no sandbox of our own works here")
        yield made


def fill(place: Path, leave: int) -> None:
    with (place / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, files.free_bytes(place) - leave)


def secure(env: Environment) -> commit_work.Secured:
    """Past the first look at the disk, which would end each of these at once."""
    return collect_work._secure(
        env, commit_work.full_message("leftover work", {}), onto_branch=True, always=True, most=commit_work.KEPT_MAX
    )


@pytest.mark.root
def test_however_little_room_there_is(small: World) -> None:
    env = small.env(small.repo())
    (env.path / "left.bin").write_bytes(LEFT)
    (env.path / "more.txt").write_text("more\n")
    met: set[DiskFull] = set()
    for pages in (0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28):
        fill(small.tmp, pages * PAGE)
        try:
            done = secure(env)
        except DiskFull as error:
            met.add(error)
        else:
            assert small.blobs(env.repo, done.tip)["left.bin"] and done.notes == (), f"{pages} pages: {done}"
        (small.tmp / "filler").unlink()
    assert met and all(" bytes free)" in error.why and error.on.startswith(str(small.tmp)) for error in met), met
    done = secure(env)
    shown = small.git.run(env.repo.store, "cat-file", "blob", f"{done.rescue}:left.bin").out
    assert (shown, done.notes, done.files) == (LEFT, (), 2)
    objects = small.own(env, env.repo.common_dir / "objects")
    assert not [path for path in objects.rglob("*") if path.name.startswith(("tmp_obj_left", "nightcrew-incoming-"))]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_name_cannot_call_a_disk_full(both: World) -> None:
    """git says the name of a file that it cannot read, at the end of its last line."""
    env = both.env(both.repo())
    for name in ("x: No space left on device", "y\nfatal: write error. Out of diskspace"):
        (env.path / name).write_text("closed\n")
        (env.path / name).chmod(0)
    (env.path / "left.txt").write_text("left\n")
    done = collect_work.secure(env, "leftover work")
    assert "left.txt" in both.names(env.repo, done.tip)
    assert len([note for note in done.notes if "could not be stored" in note]) == 2, done.notes
