"""`nightcrew bench memory`: what the memory of a project costs, piece by piece."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import functools
import gc
import json
import os
import random
import re
import socket
import sqlite3
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from memory import listing, note
from memory.files import Layout
from memory.note import Page, pages
from memory.search import Index
from nightcrew.plugins import semantic
from nightcrew.plugins.bench.crews import SupervisedRun, machine, make_repository, until
from nightcrew.plugins.bench.figures import Aim, rows
from nightcrew.plugins.semantic import Vectors
from supervisor.client import protocol
from supervisor.host import secrets
from supervisor.kernel import tokens
from supervisor.kernel.crew import Crew
from supervisor.kernel.path_globs import DAY_MAX
from supervisor.kernel.schedule import PlanWaits
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import AttemptState, TaskState
from supervisor.kernel.task import Attempt, Task
from supervisor.kernel.wait_graph import Wait, WaitGraph, WaitKind
from supervisor.server import lock

# Appends
# -------
# Lines of one day, added by eight processes at once: four through the agents' socket, four that write the file themselves, as
# agents outside a sandbox may, while the supervisor watches the file and looks at it.


APPENDS_AGENTS, DIRECT, EACH = 4, 4, 2000
TEXT_MAX = 1500
"""Characters of a record's text."""


def measure_appends(quick: bool) -> dict[str, Any]:
    """`appends`: `written`, the lines that were said to be written; `corrupt`, those of them that are not there, whole, once and in the
    order of their writer, and lines that are none; `seconds` for all of them."""
    each = EACH // 20 if quick else EACH
    with tempfile.TemporaryDirectory(prefix="nightcrew-appends-") as name, SupervisedRun(Path(name) / "home", APPENDS_AGENTS) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "3600")) for number in range(APPENDS_AGENTS)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        began, asking = time.perf_counter(), []
        for number, view in enumerate(side.views(run)):
            token = tokens.derive(secret, view.id, view.epoch)
            asking.append(_forked(functools.partial(_ask, side.home.agents_socket, token, number, each)))
        memory = side.home.memory(repo.project)
        until(lambda: any(memory.glob("episodic/*.jsonl")), "the first line")
        day = next(memory.glob("episodic/*.jsonl"))
        writing = [_forked(functools.partial(_write, day, number, each)) for number in range(APPENDS_AGENTS, APPENDS_AGENTS + DIRECT)]
        failed = [child for child in asking + writing if os.waitpid(child, 0)[1]]
        took = time.perf_counter() - began
        data = b"".join(path.read_bytes()[:DAY_MAX] for path in sorted(memory.glob("episodic/*.jsonl")))  # it may have been midnight
    written = each * (APPENDS_AGENTS + DIRECT)
    return {"appends": {"written": written, "corrupt": _corrupt(data, each) + len(failed), "seconds": round(took, 2)}}


def _corrupt(data: bytes, each: int) -> int:
    records, skipped = note.records(data)
    by_writer: dict[int, list[int]] = {number: [] for number in range(APPENDS_AGENTS + DIRECT)}
    for record in records:
        writer, at, text = str(record["text"]).split(" ", 2)
        if len(text) == _size(int(writer), int(at)):
            by_writer[int(writer)].append(int(at))
    wrong = [abs(len(found) - each) + (found != sorted(set(found))) for found in by_writer.values()]
    return len(skipped) + sum(wrong)


def _size(writer: int, at: int) -> int:
    return random.Random(f"{writer} {at}").randint(0, TEXT_MAX)  # noqa: S311 - how long, not what of


def _text(writer: int, at: int) -> str:
    return f"{writer} {at} {'x' * _size(writer, at)}"


def _ask(door: Path, token: str, writer: int, each: int) -> None:
    for at in range(each):
        asked = {"version": "", "verb": "mem", "token": token, "args": {"op": "append", "text": _text(writer, at)}}
        with socket.socket(socket.AF_UNIX) as there:
            there.settimeout(60)
            there.connect(str(door))
            there.sendall(json.dumps(asked).encode() + b"\n")
            with there.makefile("rb") as reader:
                answer = json.loads(reader.readline())
        if not answer["ok"]:
            raise SystemExit(answer)


def _write(day: Path, writer: int, each: int) -> None:
    """As the documents ask of whoever writes a day without us: one write a line, to a handle that only adds, under the lock."""
    handle = os.open(day, os.O_WRONLY | os.O_APPEND)
    for at in range(each):
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, json.dumps({"v": 1, "text": _text(writer, at)}).encode() + b"\n")
        fcntl.flock(handle, fcntl.LOCK_UN)


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


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
# Leases through the socket of the agents: how long a grant takes with eight that ask, and whether one was ever held twice.


LEASES_AGENTS, TRIES = 8, 200
GLOBS = tuple(f"src/part{number}/**" for number in range(4))
"""Fewer than agents: half of the tries meet a holder."""
THINKS_S = 0.02
"""The longest pause between two tries. Agents ask between turns of seconds; this is far more often, and leaves the processors time."""


def measure_leases(quick: bool) -> dict[str, Any]:
    """`lease_ms_p50`: of a request that was granted, its connection included; `lease_lost`: grants of what another process held by its own
    book, or got back under a fence that was not greater than every one before."""
    tries = TRIES // 10 if quick else TRIES
    with tempfile.TemporaryDirectory(prefix="nightcrew-leases-") as name, SupervisedRun(Path(name) / "home", LEASES_AGENTS) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "3600")) for number in range(LEASES_AGENTS)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        book = Path(name) / "book"
        book.mkdir()
        children = []
        for seed, view in enumerate(side.views(run)):
            asking = _Asking(side.home.agents_socket, tokens.derive(secret, view.id, view.epoch), book, random.Random(seed))  # noqa: S311 - which one, not what of
            children.append(_forked_leases(lambda asking=asking: asking.tries(tries), book / f"found{seed}"))
        for child in children:
            os.waitpid(child, 0)
        found = [json.loads((book / f"found{seed}").read_text()) for seed in range(LEASES_AGENTS)]
    times = sorted(took for one in found for took in one["ms"])
    return {"lease_ms_p50": round(statistics.median(times), 3), "lease_lost": sum(one["lost"] for one in found)}


class _Asking:
    """One agent."""

    def __init__(self, door: Path, token: str, book: Path, luck: random.Random) -> None:
        self._door, self._token, self._book, self._luck = str(door), token, book, luck

    def tries(self, count: int) -> dict[str, Any]:
        ms: list[float] = []
        lost = 0
        for _ in range(count):
            glob = self._luck.choice(GLOBS)
            began = time.perf_counter()
            answer = self._ask({"op": "take", "globs": [glob]})
            if answer["ok"]:
                ms.append(1000 * (time.perf_counter() - began))
                lost += self._lost(glob, int(answer["value"]["leases"][0]["fence"]))
                self._ask({"op": "release", "globs": [glob]})
            time.sleep(self._luck.uniform(0, THINKS_S))
        return {"ms": ms, "lost": lost}

    def _lost(self, glob: str, fence: int) -> bool:
        """Whether somebody holds it by the book of the agents, while this one does. It is given back before the lease is."""
        place = self._book / glob.replace("/", "_").replace("*", "_")
        last = place.with_suffix(".fence")
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return True
        before = int(last.read_text()) if last.exists() else 0
        last.write_text(str(fence))
        time.sleep(self._luck.uniform(0, THINKS_S / 4))
        place.unlink()
        return fence <= before

    def _ask(self, args: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps({"version": "", "verb": "lease", "token": self._token, "args": args}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(30)
            door.connect(self._door)
            door.sendall(line)
            with door.makefile("rb") as reader:
                return dict(json.loads(reader.readline()))


def _forked_leases(work: Any, target: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        target.write_text(json.dumps(work()))
    finally:
        os._exit(0)


# Measure
# -------
# The figures of `nightcrew bench memory`: each file beside this one that has a `measure(quick)` gives its keys.


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
    Aim("lease_lost", 0, name="leases lost"),
    Aim("wait_check_ms", 0.1, name="may this wait, beside 200 agents", unit="ms"),
    Aim("appends.written", name="lines added by 8 processes at once"),
    Aim("appends.corrupt", 0, name="of them corrupt or lost"),
    Aim("idle_cpu_percent", 0.5, name="of a core while nothing happens", unit="%"),
)


def measure(quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The report; docs/bench.md describes every key. A key that no part gave is None. Raises what a part raises."""
    say(json.dumps(machine()))
    report: dict[str, Any] = dict.fromkeys(aim.figure.partition(".")[0] for aim in AIMS)
    for name, part in _parts():
        say(name)
        report |= part(quick)
    return report


def _parts() -> Iterator[tuple[str, Callable[[bool], Mapping[str, Any]]]]:
    yield "appends", measure_appends
    yield "leases", measure_leases
    yield "search", measure_search
    yield "waits", measure_waits
    yield "watching", measure_watching


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(rows(AIMS, report))


# Search
# ------
# How fast notes are indexed and found, and how often the right one is among the first ten; by words, and by meaning where the extra
# is installed.


SEARCH_NOTES, QUESTIONS = 10_000, 1_500
QUICK_NOTES, QUICK_QUESTIONS = 1_000, 200
FIRST = 10


def measure_search(quick: bool, seed: int = 1) -> dict[str, Any]:
    """`index_10k_s`: seconds to read all notes' texts into an index; `index_files_s`: the same with reading the files from the disk;
    `search_ms_p50`: of a search; `recall_at_10`; `semantic`: the same two by meaning alone, and `fused_recall_at_10` and
    `fused_search_ms_p50` of both rankings together, or None without the extra. `notes` and `questions`: how many there were."""
    items = make(QUICK_NOTES if quick else SEARCH_NOTES, QUICK_QUESTIONS if quick else QUESTIONS, seed)
    texts = [(f"semantic/n{number}.md", f"---\nkind: semantic\n---\n{note}\n") for number, note in enumerate(items.notes)]
    index, took = _indexed(lambda: [page for path, text in texts for page in pages(path, text, 0.0)])
    recall, ms = _asked(items, lambda question: [hit.path for hit in index.search(question, limit=FIRST)])
    return {
        "index_10k_s": round(took, 3),
        "index_files_s": round(_from_files(texts), 3),
        "search_ms_p50": ms,
        "recall_at_10": recall,
        "semantic": _by_meaning(items, texts),
        "notes": len(items.notes),
        "questions": len(items.questions),
    }


def _indexed(found: Callable[[], list[Page]], vectors: Vectors | None = None) -> tuple[Index, float]:
    index = Index(vectors)
    gc.collect()
    since = time.perf_counter()
    index.rebuild(found())
    return index, time.perf_counter() - since


def _from_files(texts: list[tuple[str, str]]) -> float:
    with tempfile.TemporaryDirectory(prefix="nightcrew-bench-") as place:
        layout = Layout(Path(place))
        (layout.memory / "semantic").mkdir(parents=True)
        for path, text in texts:
            (layout.memory / path).write_text(text)
        return _indexed(lambda: [page for one in listing.everything(layout) for page in pages(one.path, one.text, one.modified)])[1]


def _asked(items: KnownItems, ask: Callable[[str], list[str]]) -> tuple[float, float]:
    """Recall at ten, and the median of the milliseconds."""
    found, times = 0, []
    for at, question in items.questions:
        since = time.perf_counter()
        answer = ask(question)
        times.append((time.perf_counter() - since) * 1000)
        found += f"semantic/n{at}.md" in answer
    return round(found / max(1, len(items.questions)), 4), round(statistics.median(times), 3)


def _by_meaning(items: KnownItems, texts: list[tuple[str, str]]) -> dict[str, Any] | None:
    model = semantic.load()
    if model is None:
        return None
    vectors = Vectors(model)
    vectors.add([(number, note) for number, note in enumerate(items.notes)])
    recall, ms = _asked(items, lambda question: [f"semantic/n{number}.md" for number in vectors.nearest(question, FIRST)])
    index, took = _indexed(lambda: [page for path, text in texts for page in pages(path, text, 0.0)], Vectors(model))
    both, both_ms = _asked(items, lambda question: [hit.path for hit in index.search(question, limit=FIRST)])
    more = {"index_10k_s": round(took, 3), "fused_recall_at_10": both, "fused_search_ms_p50": both_ms}
    return {"recall_at_10": recall, "search_ms_p50": ms, **more}


# Waits
# -----
# What it costs to ask whether a wait could ever end, beside 200 agents that wait already.


WAITS_AGENTS = 200
MIDDLE = WAITS_AGENTS // 2
ROUNDS = 2000
SERIES = 5
_OTHERS = [at for at in range(1, WAITS_AGENTS - 1) if at != MIDDLE]


def measure_waits(quick: bool, seed: int = 1) -> dict[str, object]:
    """`wait_check_ms`: milliseconds of processor time of one check, by the fastest of SERIES, in the worst of three crews of AGENTS that
    all wait. Half of them wait for the agent that asks, in the end, and it waits for the other half. They stand in a row; or each waits
    for up to three others; or every third has not started, and comes after two of them."""
    rounds = ROUNDS // 10 if quick else ROUNDS
    return {"wait_check_ms": round(max(_fastest_ms(graph, new, rounds) for graph, new in (_row(), _many(seed), _planned(seed))), 4)}


def _fastest_ms(graph: WaitGraph, new: Wait, rounds: int) -> float:
    """The others were held up by what else the machine does."""
    return min(_check_ms(graph, new, rounds // SERIES) for _ in range(SERIES))


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


def _graph(*planned: Task) -> WaitGraph:
    attempt = Attempt(1, AttemptState.RUNNING, 0.0)
    living = [Task(_name(at), at, state=TaskState.RUNNING, epoch=1, attempt=attempt) for at in range(WAITS_AGENTS)]
    return WaitGraph(plan=PlanWaits(Crew({task.id: task for task in [*living, *planned]}.values())))


def _row() -> tuple[WaitGraph, Wait]:
    graph = _graph()
    for at in _OTHERS:
        graph.put(_wait(at, at, at + 1))
    return graph, _wait(WAITS_AGENTS, MIDDLE, MIDDLE + 1)


def _many(seed: int) -> tuple[WaitGraph, Wait]:
    """Each waits for some of those after it, so there is no cycle."""
    graph, dice = _graph(), random.Random(seed)  # noqa: S311 - the same crew each time
    for at in _OTHERS:
        graph.put(_wait(at, at, *{dice.randrange(at + 1, WAITS_AGENTS) for _ in range(3)}))
    return graph, _wait(WAITS_AGENTS, MIDDLE, MIDDLE + 1)


def _planned(seed: int) -> tuple[WaitGraph, Wait]:
    dice = random.Random(seed)  # noqa: S311 - as above
    later = [
        Task(_name(at), at, state=TaskState.WAITING, after=frozenset({_name(dice.randrange(at + 1, WAITS_AGENTS)), _name(at + 1)}))
        for at in range(2, WAITS_AGENTS - 1, 3)
    ]
    graph = _graph(*later)
    for at in _OTHERS:
        if at % 3 != 2:
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


def measure_watching(quick: bool) -> dict[str, Any]:
    """`wake_ms`: from a person's write to the answer that a waiting agent has; `agent_wake_ms`: the same for an agent's write through the
    socket; `storm`: so many files are made by two processes in about 15 s, and the versions know all of them `settled_s` after the last;
    `idle_cpu_percent`: processor time of the whole supervisor, of one core, with 1,000 notes and no agent."""
    part = 10 if quick else 1
    with tempfile.TemporaryDirectory(prefix="nightcrew-watching-") as name, SupervisedRun(Path(name) / "home", 4) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "36000")) for number in range(2)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        agents = [_Agent(side.home.agents_socket, tokens.derive(secret, view.id, view.epoch)) for view in side.views(run)]
        memory = side.home.memory(repo.project)
        agents[0].mem("wait", glob="**", timeout_s=0)  # it is watched from now on
        (memory / "semantic").mkdir(exist_ok=True)
        wakes = _wakes(agents[0], WAKES // part, lambda number: _by_hand(memory / "semantic" / f"w{number % 20}.md", number))
        puts = _wakes(
            agents[0], WAKES // part, lambda number: agents[1].mem("put", path=f"semantic/a{number % 20}.md", text=f"note {number}\n")
        )
        found = {"wake_ms": wakes, "agent_wake_ms": puts, "storm": _storm(memory, FILES // part)}
        for view in side.views(run):
            protocol.call(side.home.daemon_socket, "kill", {"tasks": [view.id]})
        side.finished(run)
        return {**found, "idle_cpu_percent": _idle(side, memory, IDLE_S / part)}


class _Agent:
    def __init__(self, door: Path, token: str) -> None:
        self._door, self._token = door, token

    def mem(self, op: str, **args: Any) -> dict[str, Any]:
        return protocol.call(self._door, "mem", {"op": op, **args}, token=self._token)


def _by_hand(note: Path, number: int) -> None:
    """As editors write: every second time over the file, else beside it and then by another name."""
    text = f"note {number}\n"
    if number % 2:
        note.write_text(text)
        return
    beside = note.with_name(f".{note.name}.new")
    beside.write_text(text)
    beside.rename(note)


def _wakes(waiting: _Agent, times: int, write: Callable[[int], object]) -> dict[str, float]:
    took = []
    with ThreadPoolExecutor(1) as thread:
        for number in range(times):
            since = waiting.mem("wait", glob="semantic/*", timeout_s=0)["number"]
            woken = thread.submit(_woken_at, waiting, since)
            time.sleep(0.03)  # it stands waiting
            began = time.perf_counter()
            write(number)
            took.append(1000 * (woken.result() - began))
    return {"p50": round(statistics.median(took), 1), "p99": round(sorted(took)[max(0, round(0.99 * len(took)) - 1)], 1)}


def _woken_at(waiting: _Agent, since: int) -> float:
    waiting.mem("wait", glob="semantic/*", since=since)
    return time.perf_counter()


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


def _idle(side: SupervisedRun, memory: Path, seconds: float) -> float:
    until(lambda: len(_known(memory.with_name("memory.db"))) <= WATCHING_NOTES, "the notes that went to be known")
    pid = lock.holder(side.home.lock)
    process = psutil.Process(pid)
    time.sleep(min(5.0, seconds))
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return round(100 * (after.user + after.system - before.user - before.system) / took, 2)
