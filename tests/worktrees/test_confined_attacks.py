"""What a confined agent can leave in its own repository and worktree against those who collect its work (battery X05, X08, X13).

Each thing is planted as the agent could have written it, and then the attempt lives on as any other: its commits are handed out, its work
is secured, both are looked at, the worktree is removed. No program of the agent's runs, no file of the person's changes, the next attempt's
work comes out, and the work is on refs or the reason says why it is not.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.worktrees.attack_kit import Alive, Attempt, attempt, sparse

__all__ = ["attempt"]
pytestmark = pytest.mark.timeout(200)


# Things that are no files, wherever git opens one ----------------------------------------------------------------------------------------

OBJECT = f"objects/ab/{'c' * 38}"
OWN = ["its ref", "its log"]


def place(attempt: Attempt, name: str) -> Path:
    if name in OWN:
        return attempt.ref if name == "its ref" else attempt.top / "logs" / attempt.env.branch_ref
    top, _, below = name.partition("/")
    return {"common": attempt.top, "admin": attempt.admin, "tree": attempt.tree}[top] / below


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        handle = os.open(path.parent, os.O_PATH)
        door.bind(f"/proc/self/fd/{handle}/{path.name}")
        os.close(handle)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def standard_input(path: Path) -> None:
    path.symlink_to("/proc/self/fd/0")


def directory(path: Path) -> None:
    path.mkdir()


WHOLE = [
    "common/HEAD", "common/config", "common/packed-refs", "common/shallow", "common/commondir", "common/objects/info/alternates",
    f"common/{OBJECT}", "common/objects/pack/multi-pack-index", f"common/objects/pack/pack-{'a' * 40}.idx", "admin/HEAD", "admin/index",
    "tree/.gitignore", *OWN,
]  # fmt: skip
"""What git reads as a whole."""
FIRST = ["common/HEAD", "common/config", "common/packed-refs", "common/objects/info/alternates", "admin/index", "its ref"]
TOGETHER = [
    ["common/refs/heads/main", "common/refs/heads/new", "common/refs/stash", "common/refs/tags/new", "common/refs/notes/commits",
     "common/refs/remotes/origin/HEAD", f"common/refs/replace/{'d' * 40}", "common/logs/HEAD", "common/logs/refs/stash",
     "common/logs/refs/heads/new"],
    ["common/objects/info/packs", "common/objects/info/commit-graph", "common/objects/info/commit-graphs/commit-graph-chain",
     f"common/objects/pack/pack-{'a' * 40}.pack"],
    ["common/index", "common/gitdir", "common/FETCH_HEAD", "common/config.worktree"],
    ["common/modules/x/HEAD", "common/modules/x/config", "common/worktrees/other/HEAD", "common/worktrees/other/gitdir",
     "common/worktrees/other/commondir", "common/worktrees/other/logs/HEAD"],
    ["admin/config.worktree", "admin/FETCH_HEAD", "admin/info/sparse-checkout", "tree/deep/.gitattributes"],
]  # fmt: skip
"""None of these keeps git from opening another one of its group when it is put aside."""
ALONE = [
    "common/refs",
    "common/refs/heads",
    "common/objects/ab",
    "common/packed-refs.lock",
    "admin/index.lock",
    "admin/HEAD.lock",
    "tree/sub/.git",
]
CASES = [
    *((names, pipe) for names in TOGETHER),
    *(([name], pipe) for name in (*WHOLE, *ALONE)),
    *(([name], sparse) for name in WHOLE),
    *(([name], kind) for name in FIRST for kind in (bound_socket, endless, loop, standard_input, directory)),
]


@pytest.mark.one_in(13)
@pytest.mark.parametrize(("names", "kind"), CASES, ids=lambda each: each[0] if isinstance(each, list) else each.__name__)
def test_what_is_no_file(attempt: Attempt, nobody_alive: Alive, names: Sequence[str], kind: Callable[[Path], None]) -> None:
    """What a worktree's administration has besides, and links to pipes, are in `test_planted`."""
    for path in (place(attempt, name) for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        kind(path)
    attempt.live_on(nobody_alive)
