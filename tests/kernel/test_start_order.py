"""Who starts first, and how long the others wait: the real `decide` in virtual time, so that hours pass in a second."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from nightcrew.plugins.bench.figures import quantile
from supervisor.kernel.crew import Order, Task
from supervisor.kernel.schedule import AGED_EVERY
from supervisor.kernel.states import TaskClass
from tests.virtual_crew import LAUNCH_S, SECURE_S, VirtualCrew

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
    """Return the shares, the wait of a lone submitter and that of the lowest task."""
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
    """Return how a burst passes: ten minutes of 10 tasks a minute, five of 200, ten of 10; each works for 20 s on one of 50 slots. Waits
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


@pytest.mark.parametrize(("many", "night_s"), [(2000, 3 * 3600.0), pytest.param(10_000, 8 * 3600.0, marks=pytest.mark.soak)])
def test_the_order_of_starts_is_as_promised(monkeypatch: pytest.MonkeyPatch, many: int, night_s: float) -> None:
    monkeypatch.setitem(globals(), "MANY", many)
    monkeypatch.setitem(globals(), "NIGHT_S", night_s)
    found = fair()
    assert 0.6 <= found["share_2_to_1"] <= 0.73
    assert found["lone_turnovers"] <= 2
    assert found["worst_s"] <= found["ageing_bound_s"]
    assert burst()["drain_s"] <= MEANS_S
