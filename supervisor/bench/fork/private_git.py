"""What a git repository of its own costs a confined attempt: making it, securing what was left, and taking a commit of a living agent over.

Attempts with one of their own and attempts without take turns. The agent's commits are made by git itself, on the attempt's repository.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.bench.figures import milli
from supervisor.bench.workspace import GIT_ENV, by_hand
from supervisor.core.errors import HostError
from supervisor.host import files
from worktrees import environments, private_repository, securing
from worktrees.environment import Environment
from worktrees.environments import Confined
from worktrees.git import Git
from worktrees.repository import Repository, discover

REFS = 2000
KEYS = ("setup_ms_p50", "import_ms_p50", "secure_ms_p50", "secure_more_ms_p50", "secure_50k_files_s")


def measure(root: Path, source: Path, rounds: int, leftover: int) -> dict[str, float | None]:
    """The figures of `private_git` for a clone of the repository `source` with 2,000 tags, all below the new directory `root`; each None
    where no sandbox works. `leftover` files are secured once. Raises what tools raise."""
    files.private_dir(root)
    by_hand(["git", "clone", "-q", os.fspath(source), os.fspath(root / "repo")], root)
    repo = discover(Git(files.private_dir(root / "state") / "git"), root / "repo")
    tags = "".join(f"create refs/tags/bench-{number} {repo.head}\n" for number in range(REFS))
    repo.git.run(repo.store, "update-ref", "--stdin", stdin=tags.encode())
    repo.git.run(repo.store, "pack-refs", "--all")
    work = _Work(repo, root / "state" / "work")
    try:
        work.secured(0, confined=True)  # not counted: it starts the warm process and reads everything from the disk
    except HostError:
        return dict.fromkeys(KEYS)
    turns = [(work.secured(2 * turn + 1, confined=True), work.secured(2 * turn + 2, confined=False)) for turn in range(rounds)]
    own = [one for one, _ in turns]
    return {
        "setup_ms_p50": milli(statistics.median(times["setup"] for times in own)),
        "import_ms_p50": milli(statistics.median(times["import"] for times in own)),
        "secure_ms_p50": milli(statistics.median(times["secure"] for times in own)),
        "secure_more_ms_p50": milli(statistics.median(one["secure"] - other["secure"] for one, other in turns)),
        "secure_50k_files_s": round(work.secured_many(leftover), 2),
    }


class _Work:
    """Attempts of one repository, each used once."""

    def __init__(self, repo: Repository, root: Path) -> None:
        self._repo = repo
        self._root = root

    def _made(self, number: int, *, confined: bool) -> Environment:
        return environments.create(
            self._repo, f"bench/p{number}", 1, self._repo.head, self._root, confined=Confined() if confined else None
        )

    def secured(self, number: int, *, confined: bool) -> dict[str, float]:
        """Seconds: `setup` of its repository, `import` of a commit while the agent lives, `secure` of another one and a leftover file."""
        times = {"setup": 0.0, "import": 0.0}
        env = self._made(number, confined=False)
        if confined:
            times["setup"] = _timed(lambda: private_repository.make(self._repo, env.path, env.admin_dir, env.branch, env.base))
            _commit(env, "first")
            times["import"] = _timed(lambda: securing.publish(env))
        _commit(env, "second")
        (env.path / "leftover").write_text("left\n")
        times["secure"] = _timed(lambda: securing.secure(env, "bench", always=True))
        return times

    def secured_many(self, count: int) -> float:
        env = self._made(10**6, confined=True)
        for number in range(count):
            directory = env.path / "many" / str(number // 500)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{number}.txt").write_text(f"leftover {number}\n")
        return _timed(lambda: securing.secure(env, "bench", always=True))


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _commit(env: Environment, name: str) -> None:
    """As the agent's git does, on its own repository where it has one."""
    own = env.private
    where = {"GIT_DIR": str(env.admin_dir)} if own is None else {
        "GIT_DIR": str(own / "worktrees" / env.admin_dir.name),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(env.repo.common_dir / "objects"),
    }  # fmt: skip
    (env.path / name).write_text(f"{name}\n")
    for verb in (["add", name], ["commit", "-q", "-m", name]):
        variables = {**GIT_ENV, **where, "PATH": os.environ["PATH"], "GIT_WORK_TREE": str(env.path)}
        subprocess.run(["git", *verb], cwd=env.path, env=variables, check=True, capture_output=True)
