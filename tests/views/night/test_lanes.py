"""Spans: time is neither lost nor counted twice."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.night import morning_rows

SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from(list(morning_rows.KINDS))).map(
        lambda one: (float(one[0]), float(one[1]), one[2])
    )
)


@given(SPANS)
def test_each_moment_is_the_foremost_of_what_goes_on(spans: list[morning_rows.Span]) -> None:
    order = list(morning_rows.KINDS)
    flat = morning_rows.flat(spans)
    for second in range(60):
        at = second + 0.5
        wanted = max((order.index(kind) for begin, end, kind in spans if begin <= at < end), default=None)
        shown = [kind for begin, end, kind in flat if begin <= at < end]
        assert shown == ([] if wanted is None else [order[wanted]])
    assert all(one[1] <= two[0] and (one[1] < two[0] or one[2] != two[2]) for one, two in pairwise(flat))


def test_a_lane_of_many_short_waits_stays_a_picture() -> None:
    chance = random.Random(3)
    busy = morning_rows.flat((float(at), at + 1.0, chance.choice(("work", "tokens"))) for at in range(10_000))
    thin = morning_rows.thinned({str(number): busy for number in range(200)}, 10_000.0)
    assert sum(map(len, thin.values())) <= morning_rows.SPANS_MAX
    assert all(spans[0][0] == 0.0 and spans[-1][1] == 10_000.0 for spans in thin.values())


def test_what_can_be_seen_is_left_as_it_is() -> None:
    spans = [(0.0, 10.0, "work"), (10.0, 20.0, "tokens"), (20.0, 90.0, "work")]
    assert morning_rows.thinned({"a": spans}, 100.0) == {"a": spans}
