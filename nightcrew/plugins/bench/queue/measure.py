"""`nightcrew bench queue`: how fast, how fair and how safe the queue of tasks is."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nightcrew.plugins.bench.crews import Agent, Say, SupervisedRun, in_turns, machine, make_repository, private_place, started_of, until
from nightcrew.plugins.bench.figures import Aim, median_ms, quantile, quantiles_ms, rows
from nightcrew.plugins.bench.queue import fake_doors, redis_queue
from nightcrew.plugins.bench.queue.virtual import LAUNCH_S, SECURE_S, VirtualCrew
from nightcrew.plugins.bench.verbs import status_once_s
from supervisor.client import protocol
from supervisor.host import files, processes
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew, Order
from supervisor.kernel.decide import decide
from supervisor.kernel.errors import NightcrewError, ToolFailed
from supervisor.kernel.events import Secured, Submitted, TreeGone
from supervisor.kernel.schedule import AGED_EVERY
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import End, TaskClass
from supervisor.kernel.task import Task
from supervisor.store import sqlite
from worktrees.repository import Repository

# Crowd
# -----
# What a person feels of a crowd of busy agents, and what it costs those: `status` and an interactive task beside agents that only
# compute.
#
# Three rounds take turns on one supervisor: nobody works; the crowd is of class batch; the crowd is unheld, of class interactive,
# whose agents are as a person's own commands. Other programs take part of the machine, and more of it from agents that give way to
# them. So the agents' work is counted by the second of processor time that nobody else used. Where others use much (`others`) it is
# not measured: who gets the processor for moments only finds its caches cold (0.8 at a share of 1 %, 1.0 at 60 %), whatever held it
# back.


_LOOK_S = 0.005
_FILES = 20
_OTHERS_MOST = 0.3
"""Where other programs use more of the processors beside batch agents, the work of those is not compared."""
_SAMPLES_UNHELD = 2
"""Of rounds whose `status` takes seconds and is there for comparison only."""
_RECORD = struct.Struct("dd")
_BUSY = """
import mmap, os, struct, time

out = os.environ["NIGHTCREW_OUT"]
with open(out + "/work", "wb+") as file:
    file.truncate(16)
    done = mmap.mmap(file.fileno(), 16)
with open(out + "/.up", "w") as file:
    file.write(f"{time.time()} 0")
os.rename(out + "/.up", out + "/up")
rounds = 0
while not os.path.exists(out + "/go"):
    for _ in range(100_000):
        pass
    rounds += 1
    struct.pack_into("dd", done, 0, rounds, time.process_time())
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How much is measured."""

    agents: int = 50
    rounds: int = 2
    samples: int = 7
    """Of `status` and of an interactive task, in each round."""
    window_s: float = 4.0
    """For which the agents' work is counted."""


@dataclass(frozen=True, slots=True)
class _Round:
    status_s: list[float]
    interactive_s: list[float]
    work_per_s: float
    """Work for a second of processor time that nobody else used; 0 without agents."""
    others: float
    """The part of the processor time that other programs used."""


def measure_crowd(root: Path, seed: int, wanted: Crowd) -> dict[str, Any]:
    """The `crowd` of the report; docs/bench.md describes every key. `root` is an empty directory."""
    make_repository(root / "repo.git", seed, files=_FILES)
    with SupervisedRun(root / "crowd", slots=wanted.agents + 1) as ours:
        repo = ours.repository(root / "repo.git")
        _interactive_s(ours, repo)  # the first one of a supervisor takes longer
        ways = {"idle": None, "busy": TaskClass.BATCH, "unheld": TaskClass.INTERACTIVE}
        rounds = in_turns({name: partial(_round, ours, repo, task_class, wanted) for name, task_class in ways.items()}, wanted.rounds)
    others = {name: round(statistics.median(found.others for found in rounds[name]), 3) for name in ("busy", "unheld")}
    return {
        "agents": wanted.agents,
        "status_ms": {name: median_ms(itertools.chain.from_iterable(found.status_s for found in some)) for name, some in rounds.items()},
        "interactive_ms": {
            name: median_ms(itertools.chain.from_iterable(found.interactive_s for found in some)) for name, some in rounds.items()
        },
        "batch_throughput_ratio": None if others["busy"] > _OTHERS_MOST else round(_work(rounds["busy"]) / _work(rounds["unheld"]), 3),
        "others": others,
    }


def _round(ours: SupervisedRun, repo: Repository, task_class: TaskClass | None, wanted: Crowd) -> _Round:
    crowd: list[Agent] = []
    if task_class is not None:
        busy = TaskSpec("busy", "busy", "shell", (sys.executable, "-I", "-S", "-c", _BUSY), together="crowd", task_class=task_class)
        crowd = ours.agents(repo, busy, wanted.agents)
    try:
        work, others = _work_per_s(crowd, wanted.window_s)
        samples = range(wanted.samples if task_class is not TaskClass.INTERACTIVE else _SAMPLES_UNHELD)
        status = [status_once_s(ours.home.root) for _ in samples]
        return _Round(status, [_interactive_s(ours, repo) for _ in samples], work, others)
    finally:
        if crowd:
            ours.finish(crowd)


def _interactive_s(ours: SupervisedRun, repo: Repository) -> float:
    """From handing over an interactive task that does nothing until the ledger knows that it is done."""
    began = time.monotonic()
    run = ours.submit(repo, [TaskSpec("true", "true", "shell", ("true",), task_class=TaskClass.INTERACTIVE)])
    until(lambda: all(view.final for view in ours.views(run)), "an interactive task", _LOOK_S)
    return time.monotonic() - began


def _work_per_s(crowd: Sequence[Agent], seconds: float) -> tuple[float, float]:
    if not crowd:
        return 0.0, 0.0
    before, (work, cpu_s) = psutil.cpu_times(), _done(crowd)
    time.sleep(seconds)
    after, (work_then, cpu_then_s) = psutil.cpu_times(), _done(crowd)
    idle_s = after.idle + after.iowait - before.idle - before.iowait
    theirs_s = cpu_then_s - cpu_s + idle_s  # what was idle they could have used
    return (work_then - work) / theirs_s, max(0.0, 1 - theirs_s / (sum(after) - sum(before)))


def _done(crowd: Sequence[Agent]) -> tuple[float, float]:
    """Rounds of work and processor time of all up to now."""
    said = [_RECORD.unpack((agent.directory / "out" / "work").read_bytes()) for agent in crowd]
    return sum(rounds for rounds, _ in said), sum(cpu_s for _, cpu_s in said)


def _work(rounds: Sequence[_Round]) -> float:
    return statistics.median(found.work_per_s for found in rounds)


# Engine
# ------
# The queue itself: how fast tasks are taken in, how soon a free slot is taken, how many attempts a second pass through ledger and
# loop.


SUBMITTERS = 10
BUSY_SLOTS = 64
"""Of the supervisor whose attempts are counted: enough that it never waits for an agent."""
STARTS_SLOTS, STARTS_WORK_S = 8, 0.2
"""Of the one whose starts are timed: a slot is free 40 times a second."""


DECISIONS = 300


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    waiting: int = 10_000
    """Tasks that are accepted, and that wait beside each start."""
    starts: int = 400
    attempts: int = 3000
    rounds: int = 3
    """Of accepting."""


class FakeSupervisor:
    """A supervisor with fake doors, as a process of its own, and its state directory."""

    def __init__(self, root: Path, slots: int) -> None:
        self.home = Home(root)
        self._process = _started([sys.executable, "-I", "-m", fake_doors.__name__, str(root), str(slots)])

    def until_ready(self) -> None:
        """Wait until it answers. Raises TimedOut."""
        until(self._answers, "a supervisor with fake doors", 0.02)

    def _answers(self) -> bool:
        with contextlib.suppress(NightcrewError):
            return bool(protocol.call(self.home.daemon_socket, "ping", {})["ready"])
        return False

    def submit(self, tasks: tuple[TaskSpec, ...]) -> float:
        """Hand a run over; seconds until it was accepted, from the plan in memory to the answer."""
        began = time.perf_counter()
        spec = RunSpec(title="bench", tasks=tasks)
        order = Submission(f"{began}", "0123456789ab", "/bench", "/bench/.git", "0" * 40, spec, {})
        protocol.call(self.home.daemon_socket, "submit", order)
        return time.perf_counter() - began

    def ended(self) -> int:
        """How many attempts have ended. Raises ToolFailed when one is not done."""
        if self.query("SELECT count(*) FROM attempt WHERE end <> 'done'"):
            raise ToolFailed("an attempt that does nothing failed", on=str(self.home.ledger))
        return int(self.query("SELECT count(*) FROM attempt WHERE end IS NOT NULL"))

    def span_s(self) -> float:
        """Seconds from the first start to the last end."""
        return self.query("SELECT max(ended) - min(created) FROM attempt")

    def query(self, sql: str) -> float:
        """A number from its ledger."""
        with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
            return float(db.execute(sql).fetchone()[0])

    def leave(self) -> list[float]:
        """Have it end; seconds from each free slot to the commit of the start that took it."""
        protocol.call(self.home.daemon_socket, "down", {"now": False})
        self._process.wait()
        return [float(second) for second in json.loads((self.home.root / fake_doors.STARTS).read_text())]

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()


def _started(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def supervised(root: Path, slots: int) -> Iterator[FakeSupervisor]:
    """One that is ready, and is gone afterwards."""
    one = FakeSupervisor(root, slots)
    try:
        one.until_ready()
        yield one
    finally:
        one.end()


def tasks(count: int, work_s: float) -> tuple[TaskSpec, ...]:
    """No-op tasks of several submitters."""
    return tuple(
        TaskSpec(f"t{number}", "no-op", "shell", (str(work_s),), submitter=f"s{number % SUBMITTERS}", priority=number % 100)
        for number in range(count)
    )


def accepted_s(root: Path, count: int, rounds: int) -> float:
    """Seconds until `count` tasks are accepted by a supervisor that has nothing else to do; the median round."""
    seconds = []
    for number in range(rounds):
        with supervised(root / f"accept{number}", 1) as one:
            seconds.append(one.submit(tasks(count, 3600.0)))
    return statistics.median(seconds)


def starts_s(root: Path, waiting: int, count: int) -> list[float]:
    """Seconds from each of `count` free slots to the commit of the start that took it, beside `waiting` tasks."""
    with supervised(root / "starts", STARTS_SLOTS) as one:
        one.submit(tasks(waiting, STARTS_WORK_S))
        until(lambda: one.ended() >= count + STARTS_SLOTS, f"{count} starts")
        return one.leave()[STARTS_SLOTS:]  # the first were decided on beside the submission itself


def attempts_per_s(root: Path, count: int) -> float:
    """No-op attempts a second, each with its start, its end and its release."""
    with supervised(root / "attempts", BUSY_SLOTS) as one:
        one.submit(tasks(count, 0.0))
        until(lambda: one.ended() >= count, f"{count} attempts")
        return count / one.span_s()


def decide_us(waiting: int, count: int) -> float:
    """Microseconds to decide that a task has ended and which one starts next, and to apply it, beside `waiting` ready tasks; the median."""
    crew, found = Crew(slots=STARTS_SLOTS), []
    ready = [Task(f"t{number}", number, number % 100, submitter=f"s{number % SUBMITTERS}") for number in range(waiting + count)]
    crew.apply(decide(crew, [Submitted(tuple(ready))], 0.0)[0])
    for number in range(count):
        task, attempt = next((task, task.attempt) for task in crew.living.values() if task.attempt is not None)
        crew.apply(decide(crew, [TreeGone(task.id, attempt.epoch, End.DONE, "")], float(number))[0])
        began = time.perf_counter()
        crew.apply(decide(crew, [Secured(task.id, attempt.epoch, End.DONE, "")], float(number))[0])
        found.append(time.perf_counter() - began)
    return round(statistics.median(found) * 1e6, 1)


def measure_engine(root: Path, size: Size) -> dict[str, Any]:
    """The report's keys that are about the queue itself."""
    latencies = starts_s(root, size.waiting, size.starts)
    return {
        "enqueue_10k_s": round(accepted_s(root, size.waiting, size.rounds), 3),
        "start_ms": quantiles_ms(latencies),
        "attempts_per_s": round(attempts_per_s(root, size.attempts), 1),
        "decide_us": {str(waiting): decide_us(waiting, DECISIONS) for waiting in (100, 10_000)},
    }


# Kills
# -----
# What is lost when whoever holds a task is killed, 30 times: the same number of tasks, workers and kills for both queues.
#
# Ours is the real path: a supervisor, and agents in sessions. Two of three kills hit the supervisor, the third a runner of an
# agent; the supervisor is started again at once, as its next verb would. In the Redis queue a worker is both, so each kill hits
# one; it is started again at once too. A task is lost when it was accepted and its result never comes.


KILLS = 30
WORKERS = 4
KILLS_WORK_S = 0.2
PAUSES_S = (0.05, 0.6)
"""Between two kills, drawn evenly."""


def ours(root: Path, tasks: int, kills: int, seed: int) -> int:
    """Tasks that nightcrew lost."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    make_repository(root / "repo.git", seed, files=20)
    specs = [TaskSpec(f"t{number}", "no-op", "shell", ("sleep", str(KILLS_WORK_S))) for number in range(tasks)]
    with SupervisedRun(root / "home", WORKERS) as run:
        accepted = run.submit(run.repository(root / "repo.git"), specs)
        for number in range(kills):
            time.sleep(chance.uniform(*PAUSES_S))
            if number % 3 or not _killed_a_runner(run, accepted, chance):
                run.kill()
                run.start()
        return tasks - sum(view.state == "done" for view in run.finished(accepted))


def _killed_a_runner(run: SupervisedRun, accepted: str, chance: random.Random) -> bool:
    for view in sorted(run.views(accepted), key=lambda _: chance.random()):
        attempt = run.home.attempt(view.id, view.epoch)
        if view.state == "running" and (attempt / "started.json").exists():
            return processes.send(started_of(attempt).identity, signal.SIGKILL)
    return False


def of_redis(root: Path, port: int, tasks: int, kills: int, seed: int) -> int:
    """Tasks that the Redis queue lost. As with ours, whoever is killed is at work: a worker that is only starting loses nothing."""
    chance = random.Random(seed)  # noqa: S311 - as above
    with redis_queue.client(port) as queue:
        queue.flushall()
        redis_queue.hand_over(queue, tasks)
        workers = [redis_queue.Worker(port, root / f"started{number}", KILLS_WORK_S) for number in range(WORKERS)]
        try:
            for number in range(kills):
                hit = chance.randrange(WORKERS)
                workers[hit].until_at_work()
                time.sleep(chance.uniform(*PAUSES_S))
                workers[hit].end()
                workers[hit] = redis_queue.Worker(port, root / f"started{WORKERS + number}", KILLS_WORK_S)
            until(lambda: not any(one.lives for one in workers), "the workers to find nothing more")
        finally:
            for one in workers:
                one.end()
        return tasks - int(queue.hlen(redis_queue.RESULTS))


# Order
# -----
# Who starts first, and how long who waits, in virtual time with the real `decide`.


SLOTS = 8
ORDER_WORK_S = 60.0
FIRST = 300
"""Starts over which the shares of two submitters are counted."""
MANY = 10_000
NIGHT_S = 8 * 3600.0
MINUTE_S = 60.0
BURST_SLOTS = 50
BURST_WORK_S = 20.0
BURST_MINUTES, BURST_A_MINUTE = 5, 200
_A_MINUTE = BURST_SLOTS * MINUTE_S / (LAUNCH_S + BURST_WORK_S + SECURE_S)
MEANS_S = round((BURST_A_MINUTE / _A_MINUTE - 1) * BURST_MINUTES * MINUTE_S * 1.05, 1)
"""What all slots need for the tasks that wait when the burst is over, and a twentieth more."""
CROWD = 1.05
"""How many more interactive tasks come than there are slots for."""
LOW_EVERY_S = 1200.0


def fair() -> dict[str, float]:
    """The `fair` of the report."""
    bound_s, worst_s = _ageing()
    return {"share_2_to_1": _share(), "lone_turnovers": _lone_turnovers(), "ageing_bound_s": bound_s, "worst_s": worst_s}


def _of(submitter: str, count: int, first: int = 0, **facts: Any) -> list[Task]:
    return [Task(f"{submitter}{number}", number, submitter=submitter, **facts) for number in range(first, first + count)]


def _share() -> float:
    """Part of the first starts that the submitter of weight 2 gets beside one of weight 1, 1,000 tasks each."""
    crew = VirtualCrew(SLOTS, _steady, Order(weights={"a": 2.0}))
    crew.submit([*_of("a", 1000), *_of("b", 1000, 1000)])
    while len(crew.starts) < FIRST:
        crew.run(crew.now + ORDER_WORK_S)
    first = Counter(task[0] for _, task, _ in crew.starts[:FIRST])
    return round(first["a"] / FIRST, 3)


def _lone_turnovers() -> float:
    """How often all slots change hands before the one task of a second submitter starts, beside 10,000 of the first."""
    crew = VirtualCrew(SLOTS, _steady)
    crew.submit(_of("a", MANY))
    crew.run(crew.now + 10 * ORDER_WORK_S)
    before = len(crew.starts)
    crew.submit(_of("b", 1, MANY))
    while (began := next((place for place, (_, task, _) in enumerate(crew.starts) if task == f"b{MANY}"), None)) is None:
        crew.run(crew.now + ORDER_WORK_S)
    return round((began + 1 - before) / SLOTS, 2)


def _ageing() -> tuple[float, float]:
    """The longest that a task of the lowest class and priority may wait, and did over a virtual night of more interactive tasks than slots.

    After `ageing_s` it gets one of `AGED_EVERY` starts; a slot is free once in `WORK_S / SLOTS` seconds in the mean, and at the latest
    after a whole attempt.
    """
    order = Order()
    crew = VirtualCrew(SLOTS, _steady, order)
    attempt_s = LAUNCH_S + ORDER_WORK_S + SECURE_S
    for number, task in enumerate(_of("people", int(CROWD * NIGHT_S * SLOTS / attempt_s), task_class=TaskClass.INTERACTIVE)):
        crew.at(crew.now + number * attempt_s / SLOTS / CROWD, partial(crew.submit, [task]))
    handed = {}
    for number, task in enumerate(_of("z", int(NIGHT_S / LOW_EVERY_S) - 6, MANY**2, task_class=TaskClass.BATCH, priority=0)):
        handed[task.id] = crew.now + number * LOW_EVERY_S
        crew.at(handed[task.id], partial(crew.submit, [task]))
    end = crew.now + NIGHT_S
    crew.run(end)
    began = {task: at for at, task, _ in crew.starts}
    bound_s = order.ageing_s + AGED_EVERY * attempt_s
    return round(bound_s, 1), round(max(began.get(name, end) - at for name, at in handed.items()), 1)


def burst() -> dict[str, float]:
    """The `burst` of the report: ten minutes of 10 tasks a minute, five of 200, ten of 10; each works for 20 s on one of 50 slots. Waits
    are of all tasks; the drain is from the burst's end until its last task starts."""
    crew = VirtualCrew(BURST_SLOTS, lambda _, __: BURST_WORK_S)
    handed: dict[str, float] = {}
    at = crew.now
    for minutes, a_minute in ((10, 10), (BURST_MINUTES, BURST_A_MINUTE), (10, 10)):
        for _ in range(minutes * a_minute):
            task = Task(f"t{len(handed)}", len(handed))
            handed[task.id] = at
            crew.at(at, partial(crew.submit, [task]))
            at += MINUTE_S / a_minute
    over = crew.now + 15 * MINUTE_S
    crew.run()
    waits = [began - handed[task] for began, task, _ in crew.starts]
    late = [began for began, task, _ in crew.starts if handed[task] <= over]
    return {"wait_p99_s": round(quantile(waits, 0.99), 2), "drain_s": round(max(0.0, max(late) - over), 2)}


def _steady(task: str, epoch: int) -> float:
    """Agents of nearly one length: their slots become free one after the other, not in waves."""
    return ORDER_WORK_S * (0.9 + 0.2 * ((sum(map(ord, task)) * 31 + epoch) % 97) / 97)


# Measure
# -------
# What is run in which order, and how much of it.


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    seed: int = 1
    """Of the moments of kills, and of repositories."""
    engine: Size = field(default_factory=Size)
    kills: int = KILLS
    killed_tasks: int = 300
    """Handed over before the kills, to each queue."""
    crowd: Crowd = field(default_factory=Crowd)


QUICK = Options(engine=Size(starts=100, attempts=500, rounds=1), kills=6, killed_tasks=60, crowd=Crowd(agents=10, rounds=1, samples=3))
AIMS = (
    Aim("enqueue_10k_s", 1.0, name="10,000 tasks accepted", unit="s"),
    Aim("start_ms.p50", name="a free slot until the next start is committed, p50", unit="ms"),
    Aim("start_ms.p99", 20, name="the same, p99, 10,000 waiting", unit="ms"),
    Aim("attempts_per_s", 300, at_least=True, name="no-op attempts: ledger, loop, fake doors", unit="/s"),
    Aim("decide_us.100", name="one decision beside 100 ready tasks", unit="us"),
    Aim("decide_us.10000", name="beside 10,000", unit="us"),
    Aim("lost_after_30_kills", 0, name="tasks lost over the kills"),
    Aim("burst.wait_p99_s", name="a burst of 200 a minute: the wait, p99", unit="s"),
    Aim("burst.drain_s", MEANS_S, name="drained after (all slots at work: the aim)", unit="s"),
    Aim("fair.share_2_to_1", 0.6, at_least=True, name="weights 2:1 give, of the first 300", unit=""),
    Aim("fair.lone_turnovers", 2, name="one task beside 10,000: slot turnovers", unit=""),
    Aim("fair.ageing_bound_s", name="the lowest task starts within", unit="s"),
    Aim("fair.worst_s", name="it started after, at worst", unit="s"),
    Aim("crowd.agents", name="busy agents"),
    Aim("crowd.status_ms.idle", name="`status` beside no agent", unit="ms"),
    Aim("crowd.status_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.interactive_ms.idle", name="an interactive task beside no agent", unit="ms"),
    Aim("crowd.interactive_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.batch_throughput_ratio", 0.97, at_least=True, name="their work, of what they would do unheld", unit="x"),
    Aim("redis.enqueue_per_s", name="the Redis queue: tasks accepted", unit="/s"),
    Aim("redis.claim_per_s", name="claims", unit="/s"),
    Aim("redis.lost_after_30_kills", name="tasks lost over the kills"),
)


def measure(options: Options, under: Path | None, say: Say) -> dict[str, Any]:
    """The report of `nightcrew bench queue`; docs/bench.md describes every key. What needs Redis is None where that is not installed.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool or a
    task raises; nothing stays then either.
    """
    say(json.dumps(machine()))
    with private_place(under) as root:
        say(f"{options.engine.waiting:,} tasks, through ledger and loop with fake doors")
        report = measure_engine(files.private_dir(root / "engine"), options.engine)
        say("bursts and fairness, in virtual time")
        report |= {"burst": burst(), "fair": fair()}
        say(f"{options.kills} kills of supervisor and runners beside {options.killed_tasks} tasks")
        report["lost_after_30_kills"] = ours(files.private_dir(root / "kills"), options.killed_tasks, options.kills, options.seed)
        report["redis"] = redis_beside(files.private_dir(root / "redis"), options, say)
        say(f"{options.crowd.agents} busy agents")
        report["crowd"] = measure_crowd(files.private_dir(root / "crowd"), options.seed, options.crowd)
        say(json.dumps(machine()))
    return report


def redis_beside(root: Path, options: Options, say: Say) -> dict[str, Any] | None:
    """The `redis` of the report; None where it is not installed, which is said."""
    if why := redis_queue.absent():
        say(f"the Redis queue is not measured: {why}")
        return None
    say(f"the Redis queue: {options.engine.waiting:,} tasks, {options.kills} kills of workers")
    with redis_queue.serving(files.private_dir(root / "server")) as port:
        return {
            "enqueue_per_s": round(redis_queue.enqueue_per_s(port, options.engine.waiting)),
            "claim_per_s": round(redis_queue.claim_per_s(port, options.engine.attempts)),
            "lost_after_30_kills": of_redis(root, port, options.killed_tasks, options.kills, options.seed),
        }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(rows(AIMS, report))
