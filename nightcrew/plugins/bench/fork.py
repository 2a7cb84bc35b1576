"""`nightcrew bench fork`: what a warm start saves, beside what it replaces."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nightcrew.plugins.bench.crews import (
    GIT_ENV,
    MB,
    Agent,
    Say,
    SupervisedRun,
    by_hand,
    commit_all,
    in_turns,
    make_files,
)
from nightcrew.plugins.bench.figures import Aim, median_ms, milli, quantile, rows
from supervisor.host import files, scratch, usage
from supervisor.kernel.errors import HostError, ToolFailed
from supervisor.kernel.snapshots import SnapshotKind, SnapshotSpec
from supervisor.kernel.spec import TaskSpec
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from worktrees import backends, collect_work, environments, private_repository, templates
from worktrees.environments import Confined, Environment, Warm
from worktrees.git import Git, Place
from worktrees.private_repository import beside
from worktrees.repository import Repository, discover


@dataclass(frozen=True, slots=True)
class Size:
    """How much is generated."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured. The same seed gives the same files."""

    repository: Size = field(default=Size(2000, 31_000_000))
    dependencies: Size = field(default=Size(11_000, 286_000_000))
    turns: int = 5
    """Of environments: each makes ten of ours, two with linked dependencies and one with copied ones."""
    attempts: int = 15
    """With a repository of their own, and as many without."""
    leftover: int = 50_000
    """Files that one attempt leaves behind."""
    rounds: int = 15
    """Agents of each kind, one at a time."""
    crew: int = 50
    """Agents at once."""
    bursts: int = 3
    seed: int = 1


QUICK = Options(Size(500, 7_000_000), Size(1100, 28_000_000), turns=1, attempts=3, leftover=5000, rounds=3, crew=10, bursts=1)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises what a tool or a task raises."""
    source = root / "source"
    repository(source, options.seed, options.repository)
    say("environments, beside copied and linked dependencies")
    found = measure_environment(root / "env", source, options)
    say("repositories of attempts")
    own = measure_private_git(root / "private", source, options.attempts, options.leftover)
    say("agents of each kind, one at a time and at once")
    with SupervisedRun(root / "home", options.crew) as side:
        return {"environment": found, "private_git": own, "spawn": measure_spawns(side, source, options)}


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# Fixtures
# --------
# What is measured on: a generated repository and generated dependencies.


DEPENDENCIES = "node_modules"
AGENT = "agent.py"
PRELOAD = ("bandit.core.manager", "libtmux", "pydantic", "radon.complexity")
"""What the agent imports, and the memory snapshot for it."""
_AGENT = f"""\
import os
import sys
import time
warm = "{PRELOAD[0]}" in sys.modules
{"".join(f"import {name}{chr(10)}" for name in PRELOAD)}
print("up", flush=True)
born = time.time()
out = os.environ["NIGHTCREW_OUT"]
os.mkfifo(f"{{out}}/go")
with open(f"{{out}}/up.part", "w") as file:
    file.write(f"{{born!r}} {{int(warm)}}")
os.rename(f"{{out}}/up.part", f"{{out}}/up")
with open(f"{{out}}/go") as file:
    file.read()
"""
"""The agent: its imports, its first line, the moment of it and whether it was warm written down; then it waits to be let go."""


def repository(path: Path, seed: int, size: Size) -> int:
    """Make a repository of one commit with text files, the agent among them. Returns the bytes of its files."""
    written = make_files(path, seed, size.files, size.bytes)
    (path / AGENT).write_text(_AGENT)
    (path / ".gitignore").write_text(f"{DEPENDENCIES}\n")  # without a slash it holds for a link of that name too
    commit_all(path)
    return written


def dependencies(path: Path, seed: int, size: Size) -> None:
    """Write files such as an installer leaves below the new directory `path`."""
    make_files(path, seed, size.files, size.bytes, text=False)


# Environment
# -----------
# Making an environment from a template, in turns with what a script does instead: a worktree with its dependencies copied, or
# linked.


OURS_A_TURN, LINKED_A_TURN = 10, 2
"""Of each turn; a copy of the dependencies is made once, since it takes seconds."""


class _Making:
    """Environments of one repository and worktrees beside them. They stay until the end: a crew's stand beside each other."""

    def __init__(self, root: Path, source: Path, options: Options, stack: ExitStack) -> None:
        self._repo = discover(Git(files.private_dir(root) / "git"), source)
        fill = partial(dependencies, seed=options.seed, size=options.dependencies)
        template = templates.build(self._repo, self._repo.head, root / "template", lambda tree: fill(tree / DEPENDENCIES))
        self.backend = backends.best(files.private_dir(root / "environments"), template)
        self._warm = Warm(template, self.backend)
        self._frozen = template.files / DEPENDENCIES
        self._root, self._plain, self._stack = root, files.private_dir(root / "plain"), stack
        scratch.spread(self._plain)  # as environments lie, so that what is compared is not the places
        self._numbers = itertools.count()
        self.times: dict[str, list[float]] = defaultdict(list)
        """Seconds of each making (`ours`, `copied`, `linked`) and first `git status` (`status`, `plain_status`), and bytes (`disk`)."""

    @contextmanager
    def made(self) -> Iterator[Environment]:
        """Make one of ours, and take it away at the end."""
        place = self._root / "environments"
        env = environments.create(self._repo, f"bench/e{next(self._numbers)}", 1, self._repo.head, place, warm=self._warm)
        try:
            yield env
        finally:
            environments.release(env)
            environments.take_away(env, force=True)

    def ours(self) -> None:
        """Make some of ours."""
        for _ in range(OURS_A_TURN):
            began = time.monotonic()
            env = self._stack.enter_context(self.made())
            self.times["ours"].append(time.monotonic() - began)
            own = [env.admin_dir, beside(env.path)]
            visible = env.layers is None or not env.layers.upper  # its files are in the worktree's own directory
            self.times["disk"].append(usage.used([*own, env.path] if visible else own).bytes)
            with environments.open_env(env) as seen:
                self.times["status"].append(_status(self._repo, seen.place))

    def by_hand(self) -> None:
        """Make some as a script does."""
        for _ in range(LINKED_A_TURN):
            began = time.monotonic()
            tree = self._worktree()
            (tree / DEPENDENCIES).symlink_to(self._frozen)
            self.times["linked"].append(time.monotonic() - began)
            place = Place(self._repo.common_dir / "worktrees" / tree.name, self._repo.common_dir, tree)
            self.times["plain_status"].append(_status(self._repo, place))
        began = time.monotonic()
        by_hand(["cp", "-a", os.fspath(self._frozen), os.fspath(self._worktree())], self._plain)
        self.times["copied"].append(time.monotonic() - began)

    def _worktree(self) -> Path:
        path = self._plain / f"plain{next(self._numbers)}"
        by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{path.name}", os.fspath(path), "HEAD"], self._repo.root)
        return path


def measure_environment(root: Path, source: Path, options: Options) -> dict[str, Any]:
    """Return the figures of `environment` for the repository `source`, all below the new directory `root`.

    Raises ToolFailed when an environment is not clean, which no figure would say; what tools raise. No mount stays.
    """
    with ExitStack() as stack:
        making = _Making(root, source, options, stack)
        with making.made():
            pass  # not counted: the first one reads everything from the disk
        in_turns({"ours": making.ours, "plain": making.by_hand}, options.turns)
    p50 = {name: statistics.median(times) for name, times in making.times.items()}
    return {
        "backend": making.backend.name,
        "ms_p50": milli(p50["ours"]),
        "ms_p99": milli(quantile(making.times["ours"], 0.99)),
        "disk_mb": round(p50["disk"] / MB, 3),
        "first_status_ratio": round(p50["status"] / p50["plain_status"], 2),
        "vs_copied_deps": round(p50["copied"] / p50["ours"], 1),
        "vs_linked_deps": round(p50["linked"] / p50["ours"], 1),
    }


def _status(repo: Repository, place: Place) -> float:
    began = time.monotonic()
    said = repo.git.run(place, "status", "--porcelain").text
    took = time.monotonic() - began
    if said:
        raise ToolFailed("a new worktree is not clean", on=str(place.work_tree), why=said.splitlines()[0])
    return took


# Private git
# -----------
# What a git repository of its own costs a confined attempt: making it, securing what was left, and taking a commit of a living
# agent over.
#
# Attempts with one of their own and attempts without take turns. The agent's commits are made by git itself, on the attempt's
# repository.


REFS = 2000
KEYS = ("setup_ms_p50", "import_ms_p50", "secure_ms_p50", "secure_more_ms_p50", "secure_50k_files_s")


def measure_private_git(root: Path, source: Path, rounds: int, leftover: int) -> dict[str, float | None]:
    """Return the figures of `private_git` for a clone of the repository `source` with 2,000 tags, all below the new directory `root`; each
    None where no sandbox works. `leftover` files are secured once. Raises what tools raise."""
    files.private_dir(root)
    by_hand(["git", "clone", "-q", os.fspath(source), os.fspath(root / "repo")], root)
    repo = discover(Git(files.private_dir(root / "state") / "git"), root / "repo")
    tags = "".join(f"create refs/tags/bench-{number} {repo.head}\n" for number in range(REFS))
    repo.git.run(repo.store, "update-ref", "--stdin", stdin=tags.encode())
    repo.git.run(repo.store, "pack-refs", "--all")
    numbers = itertools.count()

    def made(confined: bool) -> Environment:
        kept = Confined() if confined else None
        return environments.create(repo, f"bench/p{next(numbers)}", 1, repo.head, root / "state" / "work", confined=kept)

    try:
        _secured(made(False), confined=True)  # not counted: it starts the warm process and reads everything from the disk
    except HostError:
        return dict.fromkeys(KEYS)
    turns = [(_secured(made(False), confined=True), _secured(made(False), confined=False)) for _ in range(rounds)]
    many = made(True)
    make_files(many.path / "many", 1, leftover, leftover * 16)
    return {
        "setup_ms_p50": median_ms(own["setup"] for own, _ in turns),
        "import_ms_p50": median_ms(own["import"] for own, _ in turns),
        "secure_ms_p50": median_ms(own["secure"] for own, _ in turns),
        "secure_more_ms_p50": median_ms(own["secure"] - other["secure"] for own, other in turns),
        "secure_50k_files_s": round(_timed(lambda: collect_work.secure(many, "bench", always=True)), 2),
    }


def _secured(env: Environment, *, confined: bool) -> dict[str, float]:
    """Return the seconds: `setup` of its repository, `import` of a commit while the agent lives, `secure` of another one and a leftover
    file."""
    times = {}
    if confined:
        times["setup"] = _timed(lambda: private_repository.make(env.repo, env.path, env.admin_dir, env.branch, env.base))
        _commit(env, "first")
        times["import"] = _timed(lambda: collect_work.publish(env))
    _commit(env, "second")
    (env.path / "leftover").write_text("left\n")
    return {**times, "secure": _timed(lambda: collect_work.secure(env, "bench", always=True))}


def _commit(env: Environment, name: str) -> None:
    """Commit as the agent's git does, on its own repository where it has one."""
    where = {"GIT_DIR": str(env.admin_dir)}
    if env.private is not None:
        where["GIT_DIR"] = str(env.private / "worktrees" / env.admin_dir.name)
        where["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(env.repo.common_dir / "objects")
    (env.path / name).write_text(f"{name}\n")
    for verb in (["add", name], ["commit", "-q", "-m", name]):
        variables = {**GIT_ENV, **where, "PATH": os.environ["PATH"], "GIT_WORK_TREE": str(env.path)}
        subprocess.run(["git", *verb], cwd=env.path, env=variables, check=True, capture_output=True)


# Spawns
# ------
# From an admitted task to the first line of its agent: forked from a memory snapshot, by either client, and started cold, in turns.
#
# Everything takes the real path of a supervisor. All agents get their files from a snapshot, so what differs is how the process
# starts.


WARM, COLD = "warm", "files"
"""The snapshots: of memory and files, and of files alone."""


@dataclass(frozen=True, slots=True)
class _Variant:
    side: SupervisedRun
    repo: Repository
    task: TaskSpec

    def up(self, count: int = 1) -> list[Agent]:
        """Have agents come up. Raises ToolFailed when one that was to be warm was not, or the other way round."""
        agents = self.side.agents(self.repo, self.task, count)
        for agent in agents:
            if agent.warm is not (self.task.snapshot == WARM):
                raise ToolFailed("an agent started warm that was to start cold, or the other way round", on=agent.task)
        return agents

    def one(self) -> Agent:
        """Run one agent, alone, from its order to its end."""
        agents = self.up()
        self.side.finish(agents)
        return agents[0]


def measure_spawns(fast: SupervisedRun, source: Path, options: Options) -> dict[str, Any]:
    """Return the figures of `spawn` for agents in the repository `source`.

    Agents of each kind come one at a time; then a crew of them at once. Raises what tasks raise.
    """
    root = fast.home.root.parent
    with SupervisedRun(root / "python", options.crew, _without_compiler(root / "blind")) as slow:
        variants = _variants(fast, slow, source)
        for variant in variants.values():
            variant.one()  # not counted: it compiles the client, and reads everything from the disk
        seen = in_turns({name: variant.one for name, variant in variants.items()}, options.rounds)
        ups, unshared = _bursts(variants["memory_tier0"], options)
    p50 = {name: median_ms(agent.up - agent.admitted for agent in agents) for name, agents in seen.items()}
    return {
        "memory_tier0_ms_p50": p50["memory_tier0"],
        "memory_tier2_ms_p50": p50.get("memory_tier2"),
        "python_client_ms_p50": p50["python_client"],
        "cold_ms_p50": p50["cold"],
        "ratio": round(p50["cold"] / p50["memory_tier0"], 1),
        "all_50_s": round(statistics.median(ups), 3),
        "unshared_mb": round(statistics.median(unshared) / MB, 2),
        "client": "C" if list((fast.home.root / "bin").glob("client-*")) else "Python: there is no C compiler here",
    }


def _variants(fast: SupervisedRun, slow: SupervisedRun, source: Path) -> dict[str, _Variant]:
    repos = {side: side.repository(source) for side in (fast, slow)}
    for side, repo in repos.items():
        side.snapshot(repo, SnapshotSpec(WARM, kind=SnapshotKind.MEMORY, preload=PRELOAD))
    fast.snapshot(repos[fast], SnapshotSpec(COLD))
    agent = TaskSpec("agent", "agent", "shell", (sys.executable, "-I", AGENT), snapshot=WARM)
    tasks = {
        "memory_tier0": replace(agent, name="memory-tier0"),
        "memory_tier2": replace(agent, name="memory-tier2", sandbox=int(Tier.OFFLINE)),
        "python_client": replace(agent, name="python-client"),
        "cold": replace(agent, name="cold", snapshot=COLD),
    }
    if Tier.OFFLINE not in executors.probe().tiers:
        del tasks["memory_tier2"]
    sides = {name: slow if name == "python_client" else fast for name in tasks}
    return {name: _Variant(sides[name], repos[sides[name]], task) for name, task in tasks.items()}


def _bursts(variant: _Variant, options: Options) -> tuple[list[float], list[int]]:
    """Return the seconds from the first one's admission to the last one's first line, of each burst; and the bytes that each agent and its
    runner share with nobody."""
    ups, unshared = [], []
    for _ in range(options.bursts):
        agents = variant.up(options.crew)
        ups.append(max(agent.up for agent in agents) - min(agent.admitted for agent in agents))
        for agent in agents:
            runner = psutil.Process(agent.started.identity.pid)
            unshared.append(sum(process.memory_full_info().uss for process in (runner, *runner.children(recursive=True))))
        variant.side.finish(agents)
    return ups, unshared


def _without_compiler(directory: Path) -> str:
    """Return a PATH on which `cc` fails, as on a machine without one."""
    files.private_dir(directory)
    (directory / "cc").write_text("#!/bin/sh\nexit 1\n")
    (directory / "cc").chmod(0o700)
    return os.pathsep.join((str(directory), os.environ.get("PATH", os.defpath)))


# Report
# ------

AIMS = (
    Aim("environment.ms_p50", 15, name="environment, p50", unit="ms"),
    Aim("environment.ms_p99", name="environment, p99", unit="ms"),
    Aim("environment.disk_mb", 1, name="its disk", unit="MB"),
    Aim("environment.first_status_ratio", 1.3, name="first git status, to a plain worktree's", unit="x"),
    Aim("environment.vs_copied_deps", 50, at_least=True, name="faster than with copied dependencies", unit="x"),
    Aim("environment.vs_linked_deps", 5, at_least=True, name="faster than with linked dependencies", unit="x"),
    Aim("private_git.setup_ms_p50", 5, name="a repository of its own, p50", unit="ms"),
    Aim("private_git.import_ms_p50", name="taking a living agent's commit over, p50", unit="ms"),
    Aim("private_git.secure_ms_p50", name="securing a commit and a file, p50", unit="ms"),
    Aim("private_git.secure_more_ms_p50", 90, name="that above an attempt without, p50", unit="ms"),
    Aim("private_git.secure_50k_files_s", 20, name="securing 50,000 files (a quick run: 5,000)", unit="s"),
    Aim("spawn.memory_tier0_ms_p50", 40, name="memory fork, C client, tier 0, p50", unit="ms"),
    Aim("spawn.memory_tier2_ms_p50", 60, name="the same in tier 2, p50", unit="ms"),
    Aim("spawn.python_client_ms_p50", 80, name="the same by the Python client, tier 0, p50", unit="ms"),
    Aim("spawn.cold_ms_p50", name="the same agent started cold, p50", unit="ms"),
    Aim("spawn.ratio", 10, at_least=True, name="cold, to a memory fork in tier 0", unit="x"),
    Aim("spawn.all_50_s", 1, name="a crew at once, all up", unit="s"),
    Aim("spawn.unshared_mb", 5, name="unshared memory of agent and runner", unit="MB"),
)
"""The full run's aims, on two quiet cores; a quick run is smaller and says so."""


def table(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    used = f"files by {report['environment']['backend']}, client in {report['spawn']['client']}"
    return "\n".join([used, *rows(AIMS, report)])
