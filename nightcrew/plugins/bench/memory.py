"""`nightcrew bench memory`: what the memory of a project costs, piece by piece."""

from __future__ import annotations

import ast
import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import re
import sqlite3
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import listing, semantic
from memory.files import Layout
from memory.note import Page, pages
from memory.search import Index
from memory.semantic import Vectors
from nightcrew.plugins.bench.crews import Busy, Say, SupervisedRun, until
from nightcrew.plugins.bench.figures import Aim, median_ms, quantiles_ms
from supervisor.client import protocol
from supervisor.host import files
from supervisor.kernel.crew import Attempt, Crew, Task
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.leases import Wait, WaitGraph, WaitKind
from supervisor.kernel.schedule import PlanWaits
from supervisor.kernel.states import AttemptState, TaskState

# A crew
# ------


class _Door:
    """The door of one agent to the supervisor."""

    def __init__(self, socket: Path, token: str) -> None:
        self._socket, self._token = socket, token

    def __call__(self, verb: str, **args: Any) -> dict[str, Any]:
        return protocol.call(self._socket, verb, args, token=self._token)


@dataclass(frozen=True, slots=True)
class _Crew:
    """Agents that sleep, in a supervisor of their own."""

    side: SupervisedRun
    run: str
    memory: Path
    doors: list[_Door]


@contextlib.contextmanager
def _crew(root: Path, count: int) -> Iterator[_Crew]:
    with SupervisedRun(root / "home", count) as side:
        repo, views, secrets = side.sleeping(root / "repo", count)
        doors = [_Door(side.home.agents_socket, secret) for secret in secrets]
        yield _Crew(side, views[0].id.partition("/")[0], side.home.memory(repo.project), doors)


# Known items
# -----------
# Notes with questions whose answer is known: what programmers wrote about functions, the first sentence being the question.
#
# Made from the Python files of this interpreter and its packages, the same each time on the same installation; nothing is imported.


NOTE_MIN, NOTE_MAX = 80, 600
"""Characters of a note."""
QUESTION_MIN, QUESTION_MAX = 20, 300
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s+(?=[A-Z`'\"(:])|\s*\n\s*\n|\s*\Z)", re.DOTALL)
_LEFT_OUT = frozenset({"test", "tests", "idlelib", "lib2to3", "__pycache__"})
_ELSEWHERE = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class KnownItems:
    """`questions`: the positions in `notes` that are asked for, each with the question."""

    notes: tuple[str, ...]
    questions: tuple[tuple[int, str], ...]


def make(notes: int, questions: int, seed: int = 1) -> KnownItems:
    """As many notes as that, or as there are. A question that stands before two notes is never asked: either would be right."""
    pairs = list(_pairs(notes * 2))
    chance = random.Random(seed)  # noqa: S311 - the same set each time
    chance.shuffle(pairs)
    chosen = pairs[:notes]
    often = Counter(question for question, _ in pairs)
    asked = [at for at, (question, _) in enumerate(chosen) if often[question] == 1]
    picked = chance.sample(asked, min(questions, len(asked)))
    return KnownItems(tuple(note for _, note in chosen), tuple((at, chosen[at][0]) for at in picked))


def _pairs(limit: int) -> Iterator[tuple[str, str]]:
    """A question and its note, of different notes; at most `limit`."""
    places = sysconfig.get_paths()
    seen: set[str] = set()
    for root, left_out in ((Path(places["stdlib"]), _LEFT_OUT | _ELSEWHERE), (Path(places["purelib"]), _LEFT_OUT)):
        for text in _documented(root, left_out):
            pair = _pair(text)
            if pair is not None and pair[1] not in seen:
                seen.add(pair[1])
                yield pair
                if len(seen) >= limit:
                    return


def _pair(text: str) -> tuple[str, str] | None:
    first = _SENTENCE.match(text)
    if first is None:
        return None
    question, note = (" ".join(part.split()) for part in (first[1], text[first.end() :]))
    return (question, note[:NOTE_MAX]) if QUESTION_MIN <= len(question) <= QUESTION_MAX and len(note) >= NOTE_MIN else None


def _documented(root: Path, left_out: frozenset[str]) -> Iterator[str]:
    for path in sorted(root.rglob("*.py")):
        if left_out.isdisjoint(path.relative_to(root).parts[:-1]):
            yield from _docstrings(path)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' code
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
            yield text


# Leases
# ------
# How long a lease takes through the socket of the agents, with eight that ask.


LEASES_AGENTS, TRIES = 8, 200
GLOBS = tuple(f"src/part{number}/**" for number in range(4))
"""Fewer than agents: half of the tries meet a holder."""
THINKS_S = 0.02
"""The longest pause between two tries. Agents ask between turns of seconds; this is far more often, and leaves the processors time."""


def measure_leases(root: Path, quick: bool) -> dict[str, Any]:
    """Return `lease_ms_p50`: of a request that was granted, its connection included."""
    tries = TRIES // 10 if quick else TRIES
    with _crew(root, LEASES_AGENTS) as crew, multiprocessing.get_context("fork").Pool(LEASES_AGENTS) as pool:
        found = pool.starmap(_take_leases, [(door, seed, tries) for seed, door in enumerate(crew.doors)], 1)
        pool.close()  # `with` ends its processes by SIGTERM, which they would take as the benchmark does: one may then wait for ever
        pool.join()
    return {"lease_ms_p50": median_ms(itertools.chain.from_iterable(found))}


def _take_leases(door: _Door, seed: int, tries: int) -> list[float]:
    """Be one agent; return the seconds of each grant."""
    luck = random.Random(seed)  # noqa: S311 - which one, not what of
    found = []
    for _ in range(tries):
        glob = luck.choice(GLOBS)
        began = time.perf_counter()
        with contextlib.suppress(NightcrewError):  # somebody holds it
            door("lease", op="take", globs=[glob])
            found.append(time.perf_counter() - began)
            time.sleep(luck.uniform(0, THINKS_S / 4))
            door("lease", op="release", globs=[glob])
        time.sleep(luck.uniform(0, THINKS_S))
    return found


AIMS = (
    Aim("wake_ms.p50", 120, name="a person's write until whoever waits is awake, p50", unit="ms"),
    Aim("wake_ms.p99", 700, name="the same, p99", unit="ms"),
    Aim("storm.files", name="files made below the watched root"),
    Aim("storm.settled_s", 30, name="quiet until all is known", unit="s"),
    Aim("storm.equal", 1, at_least=True, name="what is known is what is there"),
    Aim("index_10k_s", 0.5, name="10,000 notes indexed", unit="s"),
    Aim("search_ms_p50", 3, name="a search of them, p50", unit="ms"),
    Aim("recall_at_10", 0.57, at_least=True, name="the wanted note among ten"),
    Aim("semantic.recall_at_10", name="the same by meaning, where that is installed"),
    Aim("semantic.search_ms_p50", name="a search by meaning, p50", unit="ms"),
    Aim("lease_ms_p50", 2, name="a lease, of 8 agents that ask, p50", unit="ms"),
    Aim("wait_check_ms", 0.1, name="may this wait, beside 200 agents", unit="ms"),
    Aim("idle_cpu_percent", 0.5, name="of a core while nothing happens", unit="%"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    quick: bool = False


QUICK = Options(quick=True)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises what a part raises."""
    report: dict[str, Any] = {}
    for part in (measure_leases, measure_search, measure_waits, measure_watching):
        name = part.__name__.removeprefix("measure_")
        say(name)
        report |= part(files.private_dir(root / name), options.quick)
    return report


# Search
# ------
# How fast notes are indexed and found, and how often the right one is among the first ten; by words, and by meaning where the extra
# is installed.


SEARCH_NOTES, QUESTIONS = 10_000, 1_500
QUICK_NOTES, QUICK_QUESTIONS = 1_000, 200
FIRST = 10


def measure_search(root: Path, quick: bool, seed: int = 1) -> dict[str, Any]:
    """Return `index_10k_s`: seconds to read all notes' texts into an index; `index_files_s`: the same with reading the files from the disk;
    `search_ms_p50`: of a search; `recall_at_10`; `semantic`: the same two by meaning alone, or None without the extra; `notes` and
    `questions`: how many there were."""
    items = make(QUICK_NOTES if quick else SEARCH_NOTES, QUICK_QUESTIONS if quick else QUESTIONS, seed)
    texts = [(f"semantic/n{number}.md", f"---\nkind: semantic\n---\n{note}\n") for number, note in enumerate(items.notes)]
    index, took = _indexed(lambda: [page for path, text in texts for page in pages(path, text, 0.0)])
    return {
        "index_10k_s": round(took, 3),
        "index_files_s": round(_from_files(root, texts), 3),
        **_asked(items, lambda question: [hit.path for hit in index.search(question, limit=FIRST)]),
        "semantic": _by_meaning(items),
        "notes": len(items.notes),
        "questions": len(items.questions),
    }


def _indexed(found: Callable[[], list[Page]]) -> tuple[Index, float]:
    index = Index()
    gc.collect()
    since = time.perf_counter()
    index.rebuild(found())
    return index, time.perf_counter() - since


def _from_files(root: Path, texts: list[tuple[str, str]]) -> float:
    layout = Layout(root)
    (layout.memory / "semantic").mkdir(parents=True)
    for path, text in texts:
        (layout.memory / path).write_text(text)
    return _indexed(lambda: [page for one in listing.everything(layout) for page in pages(one.path, one.text, one.modified)])[1]


def _asked(items: KnownItems, ask: Callable[[str], list[str]]) -> dict[str, float]:
    found, times = 0, []
    for at, question in items.questions:
        since = time.perf_counter()
        answer = ask(question)
        times.append(time.perf_counter() - since)
        found += f"semantic/n{at}.md" in answer
    return {"search_ms_p50": median_ms(times), "recall_at_10": round(found / max(1, len(items.questions)), 4)}


def _by_meaning(items: KnownItems) -> dict[str, float] | None:
    model = semantic.load()
    if model is None:
        return None
    vectors = Vectors(model)
    vectors.add([(number, note) for number, note in enumerate(items.notes)])
    return _asked(items, lambda question: [f"semantic/n{number}.md" for number in vectors.nearest(question, FIRST)])


# Waits
# -----
# What it costs to ask whether a wait could ever end, beside 200 agents that wait already.


WAITS_AGENTS = 200
MIDDLE = WAITS_AGENTS // 2
ROUNDS = 2000
SERIES = 5


def measure_waits(root: Path, quick: bool, seed: int = 1) -> dict[str, object]:  # noqa: ARG001 - nothing is written
    """Return `wait_check_ms`: milliseconds of processor time of one check, by the fastest of SERIES, in a crew of AGENTS that all wait.

    Half of them wait, in the end, for the agent that asks, which waits for the other half. Every third has not started, and comes after two
    others."""
    graph, new = _planned(seed)
    rounds = (ROUNDS // 10 if quick else ROUNDS) // SERIES
    return {"wait_check_ms": round(min(_check_ms(graph, new, rounds) for _ in range(SERIES)), 4)}  # others held the slower ones up


def _check_ms(graph: WaitGraph, new: Wait, rounds: int) -> float:
    since = time.thread_time()
    for _ in range(rounds):
        if graph.cycle(new):
            raise AssertionError("these waits end")
    return (time.thread_time() - since) * 1000 / rounds


def _name(at: int) -> str:
    return f"1121-k3f9/agent-{at}"


def _wait(number: int, at: int, *holders: int) -> Wait:
    return Wait(number, _name(at), 1, WaitKind.LEASE, "src/**", tuple(map(_name, holders)), 0.0, 60.0)


def _planned(seed: int) -> tuple[WaitGraph, Wait]:
    dice = random.Random(seed)  # noqa: S311 - the same crew each time
    later = [
        Task(_name(at), at, state=TaskState.WAITING, after=frozenset({_name(dice.randrange(at + 1, WAITS_AGENTS)), _name(at + 1)}))
        for at in range(2, WAITS_AGENTS - 1, 3)
    ]
    attempt = Attempt(1, AttemptState.RUNNING, 0.0)
    living = [Task(_name(at), at, state=TaskState.RUNNING, epoch=1, attempt=attempt) for at in range(WAITS_AGENTS)]
    graph = WaitGraph(plan=PlanWaits(Crew({task.id: task for task in [*living, *later]}.values())))
    for at in range(1, WAITS_AGENTS - 1):
        if at != MIDDLE and at % 3 != 2:
            graph.put(_wait(at, at, at + 1))
    return graph, _wait(WAITS_AGENTS, MIDDLE, MIDDLE + 1)


# Watching
# --------
# From a write to the wake-up of an agent that waits for it, a storm of files, and what the supervisor takes while nothing happens.


WAKES, FILES, IDLE_S, WATCHING_NOTES = 200, 50_000, 60.0, 1_000
STORM_S = 15.0
SETTLED_MAX_S = 120.0
STORM = """
import pathlib, sys, time
root, first, count, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
began = time.monotonic()
for number in range(count):
    (root / f"s{first + number}.md").write_text(f"note {number}")
    time.sleep(max(0.0, number * seconds / count - (time.monotonic() - began)) if number % 100 == 0 else 0.0)
"""


def measure_watching(root: Path, quick: bool) -> dict[str, Any]:
    """Return `wake_ms`: from a person's write to the answer that a waiting agent has; `agent_wake_ms`: the same for an agent's write
    through the socket; `storm`: so many files are made by two processes in about 15 s, and the versions know all of them `settled_s` after
    the last; `idle_cpu_percent`: processor time of the whole supervisor, of one core, with 1,000 notes and no agent."""
    part = 10 if quick else 1
    with _crew(root, 2) as crew:
        waiting, other = crew.doors
        waiting("mem", op="wait", glob="**", timeout_s=0)  # it is watched from now on
        notes = crew.memory / "semantic"
        notes.mkdir(exist_ok=True)
        wakes = _wakes(waiting, WAKES // part, lambda number: _by_hand(notes / f"w{number % 20}.md", number))
        puts = _wakes(
            waiting, WAKES // part, lambda number: other("mem", op="put", path=f"semantic/a{number % 20}.md", text=f"note {number}\n")
        )
        found = {"wake_ms": wakes, "agent_wake_ms": puts, "storm": _storm(crew.memory, FILES // part)}
        crew.side.ask("kill", tasks=[view.id for view in crew.side.views(crew.run)])
        crew.side.finished(crew.run)
        return {**found, "idle_cpu_percent": _idle(crew, IDLE_S / part)}


def _by_hand(note: Path, number: int) -> None:
    """As editors write: every second time over the file, else beside it and then by another name."""
    text = f"note {number}\n"
    if number % 2:
        note.write_text(text)
        return
    beside = note.with_name(f".{note.name}.new")
    beside.write_text(text)
    beside.rename(note)


def _wakes(waiting: _Door, times: int, write: Callable[[int], object]) -> dict[str, float]:
    def woken_at(since: int) -> float:
        waiting("mem", op="wait", glob="semantic/*", since=since)
        return time.perf_counter()

    took = []
    with ThreadPoolExecutor(1) as thread:
        for number in range(times):
            woken = thread.submit(woken_at, waiting("mem", op="wait", glob="semantic/*", timeout_s=0)["number"])
            time.sleep(0.03)  # it stands waiting
            began = time.perf_counter()
            write(number)
            took.append(woken.result() - began)
    return quantiles_ms(took)


def _storm(memory: Path, files: int) -> dict[str, Any]:
    folder, half = memory / "semantic", files // 2
    seconds = STORM_S * files / FILES
    writers = [
        subprocess.Popen([sys.executable, "-c", STORM, os.fspath(folder), str(first), str(half), str(seconds)]) for first in (0, half)
    ]
    for writer in writers:
        writer.wait()
    quiet = time.monotonic()
    there = {f"semantic/{path.name}" for path in folder.iterdir() if path.suffix == ".md" and not path.name.startswith(".")}
    known: set[str] = set()
    while known != there and time.monotonic() - quiet < SETTLED_MAX_S:
        time.sleep(0.2)
        known = _known(memory.with_name("memory.db"))
    found = {"files": files, "settled_s": round(time.monotonic() - quiet, 1), "equal": known == there}
    for path in sorted(there)[WATCHING_NOTES:]:
        (memory / path).unlink()
    return found


def _known(book: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(f"file:{book}?mode=ro", uri=True)) as db:
        return {path for (path,) in db.execute("SELECT path FROM known WHERE version <> ''")}


def _idle(crew: _Crew, seconds: float) -> float:
    until(lambda: len(_known(crew.memory.with_name("memory.db"))) <= WATCHING_NOTES, "the notes that went to be known")
    process = crew.side.process()
    time.sleep(min(5.0, seconds))
    busy = Busy(process)
    time.sleep(seconds)
    return busy.percent()
