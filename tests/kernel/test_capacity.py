"""How many agents the machine and the limit carry, and what is learned of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.capacity import (
    AGENT,
    COMMAND,
    KNOWN,
    MIB,
    MOST,
    Capacity,
    Growth,
    Means,
    Need,
    Size,
    Took,
    capacity,
    grown,
    learn,
    predicted_wait_s,
)

BUSY = Need(1.0, 100 * MIB, 1000.0, 60.0, KNOWN, KNOWN, KNOWN)
ROOM = Means(cap=50, start=1, cores=4.0, memory=2**40)
COUNTS = st.integers(0, 2 * KNOWN)
NEEDS = st.builds(Need, st.floats(0, 4), st.integers(0, 2**33), st.floats(0, 1e5), st.floats(0, 1e4), COUNTS, COUNTS, COUNTS)
TOOK = st.builds(
    Took,
    st.floats(10, 1e4),
    st.none() | st.floats(0, 1e4),
    st.none() | st.integers(0, 2**33),
    st.none() | st.integers(0, 10**7),
    st.booleans(),
)


def test_the_scarcest_binds() -> None:
    waiting = [(BUSY, 10)]
    assert capacity(replace(ROOM, cap=7, memory=None), [], waiting) == Capacity(7, "cap", {"cap": 7, "cores": 8}, BUSY)
    found = capacity(replace(ROOM, memory=250 * MIB, tpm=20_000.0), [BUSY], waiting)
    assert (found.slots, found.binding, found.carries) == (3, "memory", {"cap": 50, "cores": 1 + 7, "memory": 1 + 2, "tokens": 1 + 19})
    assert (capacity(replace(ROOM, tpm=2500.0), [BUSY], waiting).binding, capacity(ROOM, [], waiting).binding) == ("tokens", "cores")


def test_what_waits_decides_what_fits_and_not_what_lives() -> None:
    idle, hungry = replace(BUSY, cores=0.1), replace(BUSY, cores=4.0)
    assert capacity(ROOM, [idle] * 4, [(hungry, 3)]).slots == 4 + 1
    assert capacity(ROOM, [idle] * 4, [(hungry, 1), (idle, 3)]).next.cores == 1.075


def test_an_assumed_need_keeps_nobody_from_the_slots_that_the_user_set() -> None:
    """50 cheap commands, and 50 agents that wait for their models, run at once on 2 cores as they always did."""
    small = Means(cap=50, start=8, cores=2.0, memory=20 * 2**30, tpm=1000.0, contended=True)
    for assumed in (AGENT, COMMAND):
        assert capacity(small, [], [(assumed, 50)]).slots == 50
        assert capacity(small, [assumed] * 40, [(assumed, 10)]).slots == 50
    assert capacity(replace(small, memory=4 * 2**30), [], [(AGENT, 50)]).slots == 10, "but memory that is not there is not given"


def test_however_busy_agents_keep_the_processors_the_first_slots_are_given() -> None:
    builds = replace(BUSY, cores=16.0)
    assert capacity(Means(cap=4, start=8, cores=2.0, memory=2**40), [], [(builds, 9)]).slots == 4
    assert capacity(Means(cap=50, start=8, cores=2.0, memory=2**40), [builds] * 8, [(builds, 9)]).slots == 8


def test_without_a_cap_the_crew_grows_only_for_needs_that_were_measured() -> None:
    open_end = Means(cap=None, start=8, cores=4.0, memory=2**40)
    light = replace(BUSY, cores=0.01)
    assert capacity(open_end, [], [(light, 300)]).slots == MOST
    for unknown in (replace(light, cores_from=KNOWN - 1), replace(light, memory_from=KNOWN - 1)):
        assert capacity(open_end, [], [(unknown, 300)]).slots == 8
        assert capacity(open_end, [], [(light, 299), (unknown, 1)]).slots == 8, "the one that nobody knows may take anything"
    assert capacity(replace(open_end, memory=None), [], [(light, 300)]).slots == 8, "what cannot be looked at carries no more"


def test_while_processors_are_contended_the_crew_does_not_grow() -> None:
    """An agent that shares a core looks light: four on one core seem to take a quarter each."""
    looks_light = replace(BUSY, cores=0.25)
    means = Means(cap=None, start=8, cores=2.0, memory=2**40, contended=True)
    assert capacity(means, [looks_light] * 8, [(looks_light, 9)]).slots == 8
    assert capacity(means, [looks_light] * 12, [(looks_light, 9)]).slots == 12, "nor is anybody ended: it is not refilled"
    assert capacity(replace(means, contended=False), [looks_light] * 8, [(looks_light, 9)]).slots == 16


def test_one_lives_however_little_there_is() -> None:
    assert capacity(Means(cap=8, start=8, cores=0.1, memory=0), [], [(BUSY, 1)]).slots == 1
    assert capacity(replace(ROOM, memory=-1), [BUSY] * 5, [(BUSY, 1)]).slots == 4, "too many live already: none is refilled"


@given(st.integers(1, 100), st.floats(0.1, 64), st.lists(NEEDS, max_size=20), st.lists(st.tuples(NEEDS, st.integers(1, 100)), max_size=5))
def test_more_means_never_carry_less(cap: int, cores: float, living: list[Need], waiting: list[tuple[Need, int]]) -> None:
    few = Means(cap, 1, cores, 2**30, 1e4)
    found = capacity(few, living, waiting).slots
    assert 1 <= found <= cap
    for more in (
        replace(few, cap=cap + 1),
        replace(few, cores=cores + 1),
        replace(few, memory=2**31),
        replace(few, tpm=None),
        replace(few, start=2),
    ):
        assert capacity(more, living, waiting).slots >= found
    assert capacity(replace(few, contended=True), living, waiting).slots <= found


def test_what_is_measured_takes_the_place_of_the_assumption_and_a_peak_is_believed_at_once() -> None:
    need = learn(AGENT, Took(60.0, 6.0, 100 * MIB, 5000, contended=False))
    assert need == Need(0.1, 100 * MIB, 5000.0, 60.0, 1, 1, 1)
    for _ in range(30):
        need = learn(need, Took(60.0, 60.0, 100 * MIB, 5000))
    assert need.known and need.cores > 0.9 and need.memory == 100 * MIB
    assert learn(need, Took(60.0, None, 900 * MIB, None)).memory == 900 * MIB
    assert 850 * MIB < learn(learn(need, Took(60.0, None, 900 * MIB)), Took(60.0, None, 10 * MIB)).memory < 900 * MIB


def test_what_was_not_measured_teaches_nothing() -> None:
    assert learn(BUSY, Took(60.0)) == BUSY
    assert learn(AGENT, Took(60.0)).assumed() == ["cores", "memory", "tokens"]
    short = learn(AGENT, Took(5.0, 5.0, 2**33, 10**6, contended=False))
    assert short == replace(AGENT, wall_s=5.0), "most of a short attempt is its start"


def test_an_attempt_that_had_to_share_processors_only_raises_what_is_known() -> None:
    assert learn(BUSY, Took(100.0, 20.0, contended=True)) == replace(BUSY, wall_s=learn(BUSY, Took(100.0)).wall_s)
    assert learn(BUSY, Took(100.0, 20.0, contended=False)).cores < BUSY.cores
    assert learn(BUSY, Took(100.0, 200.0, contended=True)).cores > BUSY.cores


@given(NEEDS, st.lists(TOOK, max_size=20))
def test_what_is_learned_lies_between_what_was_seen(first: Need, seen: list[Took]) -> None:
    need = first
    for took in seen:
        need = learn(need, took)
    values: dict[str, list[float]] = {
        "cores": [took.cpu_s / took.wall_s for took in seen if took.cpu_s is not None],
        "memory": [took.peak_memory for took in seen if took.peak_memory is not None],
        "tpm": [took.tokens / took.wall_s * 60 for took in seen if took.tokens is not None],
        "wall_s": [took.wall_s for took in seen],
    }
    for name, found in values.items():
        every: list[float] = [getattr(first, name), *found]
        assert min(every) - 1 <= getattr(need, name) <= max(every) + 1


def test_a_crew_with_a_cap_has_what_is_carried_at_once() -> None:
    found = Capacity(10, "cap", {"cap": 10}, BUSY)
    assert grown(Size(3, 3, 0), found, ROOM, Growth()) == 10
    assert grown(Size(10, 10, 9), replace(found, slots=2), ROOM, Growth()) == 2


def test_a_crew_without_a_cap_grows_by_an_eighth_of_those_that_live_and_is_small_again_when_idle() -> None:
    found, means = Capacity(100, "memory", {"memory": 100}, BUSY), Means(cap=None, start=8, cores=4.0)
    slots, seen = 8, []
    for _ in range(30):
        slots = grown(Size(slots, slots, 300), found, means, Growth())
        seen.append(slots)
    assert seen[:10] == [9, 10, 11, 12, 13, 14, 15, 16, 18, 20] and seen[-1] == 100
    assert grown(Size(100, 40, 0), found, means, Growth()) == 45
    assert grown(Size(45, 2, 0), found, means, Growth()) == 8


def test_the_crew_grows_by_the_depth_of_the_queue() -> None:
    found, rule, means = Capacity(10, "cap", {"cap": 10}, BUSY), Growth(50, 5), Means(cap=10, start=1, cores=4.0)
    slots = 3
    for depth, expected in ((51, 4), (50, 4), (5, 4), (4, 3), (0, 2), (0, 1), (0, 1), (99, 2)):
        slots = grown(Size(slots, slots, depth), found, means, rule)
        assert slots == expected
    assert grown(Size(10, 10, 99), found, means, rule) == 10
    begun = replace(means, start=8)
    assert grown(Size(8, 8, 0), found, begun, rule) == 8, "it does not shrink below what it began with"
    assert grown(Size(8, 8, 0), replace(found, slots=2), begun, rule) == 2, "but for what is not carried"


def test_the_crew_grows_by_the_predicted_wait() -> None:
    found, rule, means = Capacity(10, "cap", {"cap": 10}, BUSY), Growth(120.0, 30.0, seconds=True), Means(cap=10, start=1, cores=4.0)
    assert predicted_wait_s(12, 4, BUSY) == 180.0
    assert [grown(Size(4, 4, depth), found, means, rule) for depth in (12, 8, 2, 1)] == [5, 4, 4, 3]


def test_what_an_attempt_costs_is_learned_however_short_it_was() -> None:
    need = learn(learn(Need(), Took(2.0, usd=1.0)), Took(3.0, usd=2.0))
    assert (need.usd, need.usd_from) == (1.5, 2)
    assert learn(need, Took(3.0)) == learn(need, Took(3.0, usd=None)), "nobody knows: nothing is learned"
    assert learn(need, Took(3.0)).usd_from == 2
