"""The lanes of the cores, and who runs in which."""

from __future__ import annotations

import pytest

from supervisor.host.cores import Core
from supervisor.kernel.settings import Settings
from supervisor.server.attempts import limits
from supervisor.server.attempts.limits import Lanes

EIGHT = tuple(Core(0, (cpu,)) for cpu in range(8))


@pytest.mark.parametrize(
    ("settings", "cores", "count"),
    [
        (Settings(slots=20), 8, 0),
        (Settings(slots=20, lanes=1), 8, 0),
        (Settings(slots=20, lanes=3), 8, 3),
        (Settings(slots=20, per_lane=5), 8, 4),
        (Settings(slots=20, per_lane=1), 8, 7),
        (Settings(slots=4, per_lane=5), 8, 0),
        (Settings(slots=20, per_lane=5), 3, 0),
        (Settings(slots=20, per_lane=5, lanes=2), 3, 2),
        (Settings(slots=20, per_lane=5, lanes=2), 1, 0),
    ],
)
def test_how_many_lanes_there_are(settings: Settings, cores: int, count: int) -> None:
    assert len(limits.sets(settings, EIGHT[:cores])) == count


def test_the_emptiest_lane_gets_the_next_agent_and_full_ones_get_none() -> None:
    two = Lanes(((0,), (1,)), per_lane=2)
    assert [two.take(("t", number)) for number in range(4)] == [(0,), (1,), (0,), (1,)]
    assert two.take(("t", 0)) == (0,), "asked again it is the same"
    assert two.take(("over", 1)) == ()
    two.free(("t", 1))
    two.free(("t", 1))
    assert two.take(("next", 1)) == (1,)
    assert Lanes((), 2).take(("t", 1)) == ()


def test_agents_that_another_supervisor_started_are_counted() -> None:
    two = Lanes(((0,), (1,)), per_lane=0)
    two.adopt({("a", 1): (0,), ("b", 1): (0,), ("pinned", 1): (0, 1), ("free", 1): ()})
    assert [two.take(("new", number)) for number in range(3)] == [(1,), (1,), (0,)]
