"""Making an environment from a template, in turns with what a script does instead: a worktree with its dependencies copied, or linked."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.bench.figures import milli, quantile
from supervisor.bench.fork import fixtures
from supervisor.bench.fork.fixtures import DEPENDENCIES, Size
from supervisor.bench.workspace import by_hand
from supervisor.core.errors import ToolFailed
from supervisor.host import disk, files, placement
from worktrees import backends, environments, templates
from worktrees.environment import Environment
from worktrees.environments import Warm
from worktrees.git import Git, Place
from worktrees.layers import beside
from worktrees.repository import Repository, discover

MB = 1e6
OURS_A_TURN, LINKED_A_TURN = 10, 2
"""Of each turn; a copy of the dependencies is made once, since it takes seconds."""


_Times = defaultdict[str, list[float]]
"""Seconds of each making (`ours`, `copied`, `linked`), of each first `git status` (`status`, `plain_status`), and bytes (`disk`)."""


def measure(root: Path, source: Path, seed: int, size: Size, turns: int) -> dict[str, Any]:
    """The figures of `environment` for the repository `source` and generated dependencies of `size`, all below the new directory `root`.

    Raises ToolFailed when an environment is not clean, which no figure would say; what tools raise. No mount stays.
    """
    repo = discover(Git(files.private_dir(root) / "git"), source)
    template = templates.build(repo, repo.head, root / "template", lambda tree: fixtures.dependencies(tree / DEPENDENCIES, seed, size))
    warm = Warm(template, backends.best(files.private_dir(root / "environments"), template))
    times = _Times(list)
    plain = files.private_dir(root / "plain")
    placement.spread(plain)  # as environments lie, so that what is compared is not the places
    with ExitStack() as stack:
        with _made(repo, root, 0, warm):
            pass  # not counted: the first one reads everything from the disk
        for turn in range(turns):
            halves = (partial(_ours, repo, root, turn, warm, times, stack), partial(_by_hand, repo, plain, turn, template.files, times))
            for half in halves if turn % 2 else reversed(halves):
                half()
    return _figures(warm.backend.name, times)


def _figures(backend: str, times: _Times) -> dict[str, Any]:
    ours = statistics.median(times["ours"])
    return {
        "backend": backend,
        "ms_p50": milli(ours),
        "ms_p99": milli(quantile(times["ours"], 0.99)),
        "disk_mb": round(statistics.median(times["disk"]) / MB, 3),
        "first_status_ratio": round(statistics.median(times["status"]) / statistics.median(times["plain_status"]), 2),
        "vs_copied_deps": round(statistics.median(times["copied"]) / ours, 1),
        "vs_linked_deps": round(statistics.median(times["linked"]) / ours, 1),
    }


@contextmanager
def _made(repo: Repository, root: Path, number: int, warm: Warm) -> Iterator[Environment]:
    env = environments.create(repo, f"bench/e{number}", 1, repo.head, root / "environments", warm=warm)
    try:
        yield env
    finally:
        environments.release(env)
        environments.take_away(env, force=True)


def _ours(repo: Repository, root: Path, turn: int, warm: Warm, times: _Times, stack: ExitStack) -> None:
    """They stay until the end: a crew's environments stand beside each other."""
    for number in range(OURS_A_TURN):
        began = time.monotonic()
        env = stack.enter_context(_made(repo, root, 1 + turn * OURS_A_TURN + number, warm))
        times["ours"].append(time.monotonic() - began)
        own = [env.admin_dir, beside(env.path)]
        visible = env.layers is None or not env.layers.upper  # its files are in the worktree's own directory
        times["disk"].append(disk.used([*own, env.path] if visible else own).bytes)
        with environments.open_env(env) as seen:
            times["status"].append(_status(repo, seen.place))


def _by_hand(repo: Repository, plain: Path, turn: int, frozen: Path, times: _Times) -> None:
    for number in range(LINKED_A_TURN):
        began = time.monotonic()
        tree = _worktree(repo, plain / f"linked{turn}-{number}")
        (tree / DEPENDENCIES).symlink_to(frozen / DEPENDENCIES)
        times["linked"].append(time.monotonic() - began)
        times["plain_status"].append(_status(repo, Place(repo.common_dir / "worktrees" / tree.name, repo.common_dir, tree)))
    began = time.monotonic()
    tree = _worktree(repo, plain / f"copied{turn}")
    by_hand(["cp", "-a", os.fspath(frozen / DEPENDENCIES), os.fspath(tree)], plain)
    times["copied"].append(time.monotonic() - began)


def _worktree(repo: Repository, path: Path) -> Path:
    by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{path.name}", os.fspath(path), "HEAD"], repo.root)
    return path


def _status(repo: Repository, place: Place) -> float:
    began = time.monotonic()
    said = repo.git.run(place, "status", "--porcelain").text
    took = time.monotonic() - began
    if said:
        raise ToolFailed("a new worktree is not clean", on=str(place.work_tree), why=said.splitlines()[0])
    return took
