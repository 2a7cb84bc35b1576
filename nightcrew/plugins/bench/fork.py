"""`nightcrew bench fork`: what a warm start saves, beside what it replaces."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agents.kinds import kinds
from nightcrew.plugins.analyze.findings import Perspective
from nightcrew.plugins.analyze.results import Wanted, crew, shards
from nightcrew.plugins.bench import analyst_pool
from nightcrew.plugins.bench.crews import GIT_ENV, Agent, SupervisedRun, by_hand, commit_all, in_turns, machine, private_place
from nightcrew.plugins.bench.figures import Aim, milli, quantile, rows
from supervisor.features.snapshots.rules import Snapshot, SnapshotKind, SnapshotSpec, Times, break_even
from supervisor.host import cores, files, scratch, usage
from supervisor.kernel.errors import HostError, NotFound, ToolFailed
from supervisor.kernel.spec import Settings, TaskSpec
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from worktrees import backends, collect_work, environments, private_repository, templates
from worktrees.environments import Confined, Environment, Warm
from worktrees.git import Git, Place
from worktrees.private_repository import beside
from worktrees.repository import Repository, discover

# Fixtures
# --------
# What is measured on: a generated repository, generated dependencies, and Python files of this very Python.


DEPENDENCIES = "node_modules"
AGENT = "agent.py"
PRELOAD = ("bandit.core.manager", "libtmux", "pydantic", "radon.complexity")
"""What the agent imports, and the memory snapshot for it."""
_CORPUS_SIZES = range(500, 16_001)
"""Bytes of a Python file that is taken: no empty ones, and none that would take a minute of the whole run by itself."""
_PIECES = 512
_PER_DIRECTORY = 40

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


@dataclass(frozen=True, slots=True)
class Size:
    """Of generated files: the same seed gives the same ones."""

    files: int
    bytes: int


def repository(path: Path, seed: int, size: Size) -> int:
    """A repository of one commit with text files, the agent among them. Returns the bytes of its files."""
    draw = random.Random(seed)  # noqa: S311 - text to fill files with, not a secret
    words = [draw.randbytes(draw.randint(2, 5)).hex() for _ in range(2000)]
    pieces = [" ".join(draw.choices(words, k=12)) + "\n" for _ in range(_PIECES)]
    written = 0
    for number, wanted in enumerate(_sizes(draw, size)):
        text = "".join(draw.choices(pieces, k=max(1, wanted * _PIECES // sum(map(len, pieces)))))
        written += _write(path / f"part{number // _PER_DIRECTORY:03d}" / f"file{number:05d}.txt", text.encode())
    written += _write(path / AGENT, _AGENT.encode())
    written += _write(path / ".gitignore", f"{DEPENDENCIES}\n".encode())  # without a slash it holds for a link of that name too
    commit_all(path)
    return written


def dependencies(path: Path, seed: int, size: Size) -> None:
    """Files such as an installer leaves, that nobody can compress, below the new directory `path`."""
    draw = random.Random(seed)  # noqa: S311 - as above
    for number, wanted in enumerate(_sizes(draw, size)):
        _write(path / f"package{number // _PER_DIRECTORY:03d}" / f"file{number:05d}", draw.randbytes(wanted))


def corpus(path: Path, files: int) -> int:
    """A repository of one commit with `files` Python files of this Python's own library and of the packages beside it, in the order of
    their names. Returns how many bytes. Raises NotFound when there are not so many."""
    sources = list(itertools.islice(_python_files(), files))
    if len(sources) < files:
        raise NotFound("not enough Python files on this machine", on=str(files), why=f"there are {len(sources)}")
    size = 0
    for number, source in enumerate(sources):
        target = path / f"part{number // _PER_DIRECTORY:03d}" / f"file{number:05d}_{source.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        size += target.stat().st_size
    commit_all(path)
    return size


def _python_files() -> Iterator[Path]:
    packages = sysconfig.get_path("purelib")
    for top in (sysconfig.get_path("stdlib"), packages):
        for directory, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if top == packages or name != "site-packages")
            paths = (Path(directory, name) for name in sorted(names) if name.endswith(".py"))
            yield from (path for path in paths if path.is_file() and path.stat().st_size in _CORPUS_SIZES)


def _sizes(draw: random.Random, size: Size) -> list[int]:
    """Most are small, some ten times that, as in a library of source code; together about `size.bytes`."""
    weights = [min(20.0, draw.lognormvariate(0.0, 1.0)) for _ in range(size.files)]
    return [max(1, int(size.bytes * weight / sum(weights))) for weight in weights]


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)


# Analysts
# --------
# The analysts, split by files: cold and warm, one after another and at once, beside a pool of this Python's own.


FILES = "files"
_AT_ONCE = {"cold": "cold_par_s", "fork": "fork_par_s", "pool": "pool_s"}


def measure_analysts(side: SupervisedRun, files: int, analysts: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of so many `analysts` over `files` Python files, medians of `rounds`; and how much there was, in how many pieces, and the
    seconds of each round.

    A crew's seconds count from the first one's admission to the last one's end: worktrees, starts and all but the securing of the last. Its
    processor time is that of the analysts alone.
    """
    source = side.home.root.parent / "corpus"
    size = corpus(source, files)
    usable = cores.for_agents(None)
    tasks = _tasks(tuple(Perspective)[:analysts], files, size, len(usable))
    repo = side.repository(source)
    side.snapshot(repo, SnapshotSpec(FILES))
    cold = tuple(replace(task, kind="shell", snapshot="") for task in tasks)
    for first in (cold[-1], tasks[-1]):  # not counted: it starts the warm process, and reads everything from the disk
        _crew(side, repo, (first,))
    jobs = [{name: text for name, text in task.params.items() if name.startswith("ANALYST")} for task in tasks]
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "cold_seq_s": lambda: _crew(side, repo, _chain(cold)),
        "cold_par_s": lambda: _crew(side, repo, cold),
        "fork_seq_s": lambda: _crew(side, repo, _chain(tasks)),
        "fork_par_s": lambda: _crew(side, repo, tasks),
        "pool_s": lambda: analyst_pool.run(source, jobs, len(usable)),
    }
    found = in_turns(ways, rounds)
    p50 = {key: statistics.median(took for took, _ in times) for key, times in found.items()}
    cpu = {f"{way}_cpu_s": statistics.median(cpu for _, cpu in found[key]) for way, key in _AT_ONCE.items()}
    figures = {"files": files, **{key: round(took, 3) for key, took in (p50 | cpu).items()}}
    figures["efficiency"] = round(p50["pool_s"] / p50["fork_par_s"], 3)
    return figures, {
        "bytes": size,
        "pieces": len(tasks),
        "cores": len(usable),
        "rounds": {key: [took for took, _ in times] for key, times in found.items()},
    }


def _tasks(perspectives: tuple[Perspective, ...], files: int, size: int, usable: int) -> tuple[TaskSpec, ...]:
    """As `nightcrew analyze` splits them, the lead left out; what takes longest comes first. Warm: their kind has a warm process, and their
    files come from a snapshot."""
    command = kinds()["analyst"].program
    pieces = shards(perspectives, files, size, usable, Settings().slots)
    analysts = crew(Wanted(tuple(pieces)), pieces, usable, {"analyst": command, "lead": command})[:-1]
    return tuple(replace(task, snapshot=FILES) for task in analysts)


def _chain(tasks: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
    return tuple(replace(task, after=tuple(before.name for before in tasks[max(0, at - 1) : at])) for at, task in enumerate(tasks))


def _crew(side: SupervisedRun, repo: Repository, tasks: Sequence[TaskSpec]) -> tuple[float, float]:
    """Return the seconds that `tasks` take, and their processor time."""
    views = side.ended(side.submit(repo, tasks))
    exits = side.exits(views)
    return max(one.ended for one in exits) - min(view.created or 0.0 for view in views), sum(one.cpu_s for one in exits)


# Break even
# ----------
# Whether a snapshot pays: a real set-up, frozen once, and the first task that starts from it.


PACKAGE = "iniconfig"
"""A small one without dependencies: what is measured is an installer at work, and the index of whoever runs this serves it."""
NAME = "deps"


def measure_break_even(side: SupervisedRun, source: Path, seed: int, fallback: Size, index: bool) -> tuple[dict[str, Any], str]:
    """The figures of `snapshot` for the repository `source`, and in words what its set-up was.

    That is a virtual environment with one package from the package index where that answers (and `index` allows to ask); where it does
    not, a copy of generated files of size `fallback`.
    """
    repo = side.repository(source)
    row, command, words = _made_break_even(side, repo, seed, fallback, index)
    before = time.time()
    run = side.submit(repo, [TaskSpec("first", "first", "shell", ("sh", "-c", command), snapshot=NAME)])
    (exit_,) = side.exits(side.ended(run))
    taken = side.measured(row)
    times = Times(row.setup_s, row.freeze_s, taken.fork_s or 0.0, taken.work_s or 0.0)
    figures = {
        "setup_s": round(row.setup_s, 3),
        "freeze_s": round(row.freeze_s, 3),
        "first_run_s": round(exit_.ended - before, 3),
        "break_even_runs": break_even(times),
    }
    return figures, words


def _made_break_even(side: SupervisedRun, repo: Repository, seed: int, fallback: Size, index: bool) -> tuple[Snapshot, str, str]:
    """The snapshot, the command of a task that uses what it holds, and what its set-up was."""
    why = "not asked"
    if index:
        venv = f"{shlex.quote(sys.executable)} -m venv .venv"
        setup = (venv, f".venv/bin/python -m pip install --quiet {PACKAGE}")
        check = f".venv/bin/python -c 'import {PACKAGE}'"
        try:
            row = side.snapshot(repo, SnapshotSpec(NAME, setup=setup, verify=(check,)))
        except ToolFailed as error:
            why = error.why or error.line()
        else:
            return row, check, f"a virtual environment and pip install {PACKAGE}"
    generated = side.home.root.parent / "generated"
    dependencies(generated, seed, fallback)
    row = side.snapshot(repo, SnapshotSpec(NAME, setup=(f"cp -a {shlex.quote(str(generated))} {DEPENDENCIES}",)))
    return row, f"test -d {DEPENDENCIES}/package000", f"a copy of {fallback.files} generated files (package index: {why})"


# Environment
# -----------
# Making an environment from a template, in turns with what a script does instead: a worktree with its dependencies copied, or
# linked.


MB = 1e6
OURS_A_TURN, LINKED_A_TURN = 10, 2
"""Of each turn; a copy of the dependencies is made once, since it takes seconds."""


_Times = defaultdict[str, list[float]]
"""Seconds of each making (`ours`, `copied`, `linked`), of each first `git status` (`status`, `plain_status`), and bytes (`disk`)."""


def measure_environment(root: Path, source: Path, seed: int, size: Size, turns: int) -> dict[str, Any]:
    """The figures of `environment` for the repository `source` and generated dependencies of `size`, all below the new directory `root`.

    Raises ToolFailed when an environment is not clean, which no figure would say; what tools raise. No mount stays.
    """
    repo = discover(Git(files.private_dir(root) / "git"), source)
    template = templates.build(repo, repo.head, root / "template", lambda tree: dependencies(tree / DEPENDENCIES, seed, size))
    warm = Warm(template, backends.best(files.private_dir(root / "environments"), template))
    times = _Times(list)
    plain = files.private_dir(root / "plain")
    scratch.spread(plain)  # as environments lie, so that what is compared is not the places
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
        times["disk"].append(usage.used([*own, env.path] if visible else own).bytes)
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
            times["import"] = _timed(lambda: collect_work.publish(env))
        _commit(env, "second")
        (env.path / "leftover").write_text("left\n")
        times["secure"] = _timed(lambda: collect_work.secure(env, "bench", always=True))
        return times

    def secured_many(self, count: int) -> float:
        env = self._made(10**6, confined=True)
        for number in range(count):
            directory = env.path / "many" / str(number // 500)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{number}.txt").write_text(f"leftover {number}\n")
        return _timed(lambda: collect_work.secure(env, "bench", always=True))


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


# Report
# ------
# The report for people: each figure beside what we want of it. Pure.


ROWS = (
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
    Aim("snapshot.setup_s", name="set-up of a snapshot", unit="s"),
    Aim("snapshot.freeze_s", name="freezing it", unit="s"),
    Aim("snapshot.first_run_s", name="its first run", unit="s"),
    Aim("snapshot.break_even_runs", name="pays from run"),
    Aim("analysts.cold_seq_s", name="analysts, cold, one after another", unit="s"),
    Aim("analysts.cold_par_s", name="analysts, cold, at once", unit="s"),
    Aim("analysts.fork_seq_s", name="analysts, forked, one after another", unit="s"),
    Aim("analysts.fork_par_s", name="analysts, forked, at once", unit="s"),
    Aim("analysts.pool_s", name="the same pieces in a multiprocessing.Pool", unit="s"),
    Aim("analysts.cold_cpu_s", name="processor time of cold analysts", unit="s"),
    Aim("analysts.fork_cpu_s", name="processor time of forked analysts", unit="s"),
    Aim("analysts.pool_cpu_s", name="processor time of the pool", unit="s"),
    Aim("analysts.efficiency", 0.85, at_least=True, name="pool, to forked at once", unit="x"),
)
"""The full run's aims, on two quiet cores; a quick run is smaller and says so."""


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    used, load, size = report["material"], report["load_average"], report["options"]
    lines = [
        f"files by {report['environment']['backend']}, client in {used['spawn']['client']}, set-up: {used['setup']}",
        f"repository of {size['repository']['files']:,} files, {used['repository_bytes'] / 1e6:.0f} MB; dependencies of "
        f"{size['dependencies']['files']:,} files, {size['dependencies']['bytes'] / 1e6:.0f} MB; "
        f"{report['analysts']['files']:,} Python files",
        f"a memory fork in tier 0, median ms of each stage: {_stages(used['spawn']['stages_ms']['memory_tier0'])}",
        f"a crew is {used['spawn']['at_once']} agents",
        f"load average {load['before']:g} before, {load['after']:g} after",
        "",
    ]
    return "\n".join([*lines, *rows(ROWS, report)])


def _stages(found: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in found.items())


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


def measure_spawns(fast: SupervisedRun, source: Path, rounds: int, crew: int, bursts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of `spawn` for agents in the repository `source`, and what was used: the client.

    `rounds` agents of each kind one at a time; `bursts` times `crew` of them at once. Raises ToolFailed when one that was to be warm was
    not, or the other way round; what tasks raise.
    """
    root = fast.home.root.parent
    with SupervisedRun(root / "python", crew, _without_compiler(root / "blind")) as slow:
        variants = _variants(fast, slow, source)
        for variant in variants.values():
            _one(variant)  # not counted: it compiles the client, and reads everything from the disk
        seen = in_turns({name: partial(_one, variant) for name, variant in variants.items()}, rounds)
        ups, unshared = _bursts(variants["memory_tier0"], crew, bursts)
        client = "C" if list((fast.home.root / "bin").glob("client-*")) else "Python: there is no C compiler here"
    p50 = {name: milli(statistics.median(agent.up - agent.admitted for agent in agents)) for name, agents in seen.items()}
    figures = {
        "memory_tier0_ms_p50": p50["memory_tier0"],
        "memory_tier2_ms_p50": p50.get("memory_tier2"),
        "python_client_ms_p50": p50["python_client"],
        "cold_ms_p50": p50["cold"],
        "ratio": round(p50["cold"] / p50["memory_tier0"], 1),
        "all_50_s": round(statistics.median(ups), 3),
        "unshared_mb": round(statistics.median(unshared) / MB, 2),
    }
    return figures, {"client": client, "at_once": crew, "stages_ms": {name: _stages_spawns(agents) for name, agents in seen.items()}}


def _variants(fast: SupervisedRun, slow: SupervisedRun, source: Path) -> dict[str, _Variant]:
    memory = SnapshotSpec(WARM, kind=SnapshotKind.MEMORY, preload=PRELOAD)
    repos = {side: side.repository(source) for side in (fast, slow)}
    for side, repo in repos.items():
        side.snapshot(repo, memory)
    fast.snapshot(repos[fast], SnapshotSpec(COLD))
    agent = TaskSpec("agent", "agent", "shell", (sys.executable, "-I", AGENT))
    wanted: list[tuple[str, SupervisedRun, dict[str, Any]]] = [
        ("memory_tier0", fast, {"snapshot": WARM}),
        ("memory_tier2", fast, {"snapshot": WARM, "sandbox": int(Tier.OFFLINE)}),
        ("python_client", slow, {"snapshot": WARM}),
        ("cold", fast, {"snapshot": COLD}),
    ]
    tiers = executors.probe().tiers
    return {
        name: _Variant(side, repos[side], _agent(agent, name, keys)) for name, side, keys in wanted if Tier(keys.get("sandbox", 0)) in tiers
    }


def _agent(agent: TaskSpec, name: str, keys: dict[str, Any]) -> TaskSpec:
    return replace(agent, name=name.replace("_", "-"), **keys)


def _stages_spawns(agents: Sequence[Agent]) -> dict[str, float]:
    parts = [agent.stages for agent in agents]
    return {name: milli(statistics.median(part[name] for part in parts)) for name in parts[0]}


def _one(variant: _Variant) -> Agent:
    """One agent, alone, from its order to its end."""
    agents = variant.side.agents(variant.repo, variant.task)
    _check(variant, agents)
    variant.side.finish(agents)
    return agents[0]


def _bursts(variant: _Variant, crew: int, bursts: int) -> tuple[list[float], list[int]]:
    """Seconds from the first one's admission to the last one's first line, of each burst; bytes that each agent and its runner share
    with nobody."""
    ups, unshared = [], []
    for _ in range(bursts):
        agents = variant.side.agents(variant.repo, variant.task, crew)
        _check(variant, agents)
        ups.append(max(agent.up for agent in agents) - min(agent.admitted for agent in agents))
        unshared += [_unshared(agent) for agent in agents]
        variant.side.finish(agents)
    return ups, unshared


def _unshared(agent: Agent) -> int:
    runner = psutil.Process(agent.started.identity.pid)
    return sum(process.memory_full_info().uss for process in (runner, *runner.children(recursive=True)))


def _check(variant: _Variant, agents: Sequence[Agent]) -> None:
    wanted = variant.task.snapshot == WARM
    for agent in agents:
        if agent.warm is not wanted:
            words = ("cold", "warm") if wanted else ("warm", "cold")
            raise ToolFailed("an agent started {} that was to start {}".format(*words), on=agent.task)


def _without_compiler(directory: Path) -> str:
    """A PATH on which `cc` fails, as on a machine without one."""
    files.private_dir(directory)
    (directory / "cc").write_text("#!/bin/sh\nexit 1\n")
    (directory / "cc").chmod(0o700)
    return os.pathsep.join((str(directory), os.environ.get("PATH", os.defpath)))


# Measure
# -------
# What is run in which order, and how much of it.


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
    python_files: int = 2000
    analysts: int = 5
    """Each of another perspective."""
    crews: int = 2
    """Times that the analysts work in each way."""
    index: bool = True
    """Whether the package index may be asked for one small package."""
    seed: int = 1


SLOTS = 16
"""At least: more than the analysts' pieces, so that none waits for a slot."""
QUICK = Options(
    Size(500, 7_000_000), Size(1100, 28_000_000), turns=1, attempts=3, leftover=5000, rounds=3, crew=10, bursts=1, python_files=200, crews=1
)


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report of `nightcrew bench fork`; docs/bench.md describes every key.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool or a
    task raises; nothing stays then either.
    """
    before = machine()
    with private_place(under) as root:
        say(f"seed {options.seed}, in {root}")
        source = root / "source"
        written = repository(source, options.seed, options.repository)
        say(f"environments: {options.turns} turns beside {options.dependencies.files:,} copied and linked files of dependencies")
        found = measure_environment(root / "env", source, options.seed, options.dependencies, options.turns)
        say(
            f"repositories of attempts: {options.attempts} with one of their own and {options.attempts} without, {options.leftover:,} files"
        )
        own = measure_private_git(root / "private", source, options.attempts, options.leftover)
        with SupervisedRun(root / "home", max(options.crew, SLOTS)) as side:
            say(f"agents: {options.rounds} of each kind, then {options.crew} at once, {options.bursts} times")
            spawn, used = measure_spawns(side, source, options.rounds, options.crew, options.bursts)
            say("a snapshot with a set-up of its own")
            snapshot, setup = measure_break_even(side, source, options.seed, options.dependencies, options.index)
            say(f"{options.analysts} analysts over {options.python_files:,} Python files: cold, forked, and in a pool")
            crew, pieces = measure_analysts(side, options.python_files, options.analysts, options.crews)
        say(f"removing {root}; its files are many")
    return {
        "environment": found,
        "private_git": own,
        "spawn": spawn,
        "snapshot": snapshot,
        "analysts": crew,
        "load_average": {"before": before["load_1m"], "after": round(os.getloadavg()[0], 2)},
        "material": {"repository_bytes": written, "setup": setup, "spawn": used, "analysts": pieces},
        "options": asdict(options),
        "machine": before,
    }
