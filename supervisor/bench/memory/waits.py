"""What it costs to ask whether a wait could ever end, beside 200 agents that wait already."""

from __future__ import annotations

import random
import time

from supervisor.core.crew import Crew
from supervisor.core.plan_waits import PlanWaits
from supervisor.core.states import AttemptState, TaskState
from supervisor.core.task import Attempt, Task
from supervisor.core.wait_graph import Wait, WaitGraph, WaitKind

AGENTS = 200
MIDDLE = AGENTS // 2
ROUNDS = 2000
SERIES = 5
_OTHERS = [at for at in range(1, AGENTS - 1) if at != MIDDLE]


def measure(quick: bool, seed: int = 1) -> dict[str, object]:
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
    living = [Task(_name(at), at, state=TaskState.RUNNING, epoch=1, attempt=attempt) for at in range(AGENTS)]
    return WaitGraph(plan=PlanWaits(Crew({task.id: task for task in [*living, *planned]}.values())))


def _row() -> tuple[WaitGraph, Wait]:
    graph = _graph()
    for at in _OTHERS:
        graph.put(_wait(at, at, at + 1))
    return graph, _wait(AGENTS, MIDDLE, MIDDLE + 1)


def _many(seed: int) -> tuple[WaitGraph, Wait]:
    """Each waits for some of those after it, so there is no cycle."""
    graph, dice = _graph(), random.Random(seed)  # noqa: S311 - the same crew each time
    for at in _OTHERS:
        graph.put(_wait(at, at, *{dice.randrange(at + 1, AGENTS) for _ in range(3)}))
    return graph, _wait(AGENTS, MIDDLE, MIDDLE + 1)


def _planned(seed: int) -> tuple[WaitGraph, Wait]:
    dice = random.Random(seed)  # noqa: S311 - as above
    later = [
        Task(_name(at), at, state=TaskState.WAITING, after=frozenset({_name(dice.randrange(at + 1, AGENTS)), _name(at + 1)}))
        for at in range(2, AGENTS - 1, 3)
    ]
    graph = _graph(*later)
    for at in _OTHERS:
        if at % 3 != 2:
            graph.put(_wait(at, at, at + 1))
    return graph, _wait(AGENTS, MIDDLE, MIDDLE + 1)
