"""Eight hours of 500 agents in virtual time, with a kill of the supervisor every ten minutes and a fault every minute."""

from __future__ import annotations

import random

import pytest

from tests.kernel import night
from tests.kernel.night import HOUR_S, MINUTE_S, Night


@pytest.mark.parametrize(
    ("agents", "tasks", "longest_s"),
    [
        pytest.param(60, 400, HOUR_S / 2, id="many-ends"),
        pytest.param(200, 240, 8 * HOUR_S, id="many-agents"),
        pytest.param(500, 8000, HOUR_S, id="whole", marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_a_night(agents: int, tasks: int, longest_s: float, seed: int) -> None:
    luck = random.Random(seed)
    crew = Night(agents, luck, longest_s)
    crew.submit_all(night.tasks(tasks, luck))
    begin = crew.now
    for minute in range(1, 8 * 60):
        crew.at(begin + minute * MINUTE_S, crew.fault if minute % 10 else crew.kill_supervisor)
        crew.at(begin + minute * MINUTE_S + 1.0, crew.say)  # the supervisor's own look at the clock
    crew.run(begin + 8 * HOUR_S)
    night.let_it_end(crew)
    print(f"{sum(crew.lines.values())} starts of {tasks} tasks")
    night.dawn(crew)
