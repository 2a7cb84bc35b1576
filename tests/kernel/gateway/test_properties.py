"""What must hold whatever happens, on a virtual clock. Field notes 6.3.1; battery L03 (scaled; whole in `make soak`), C01, C05, N11."""

from __future__ import annotations

from collections import defaultdict, deque
from math import inf

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    QUEUED,
    SENT,
    Agent,
    Arrived,
    Began,
    End,
    Ended,
    Event,
    Level,
    Observed,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    Usage,
    Window,
    Withdrawn,
)
from supervisor.kernel.gateway_settings import Limits, Policy
from tests.kernel.gateway.playbook import BATCH, INTERACTIVE, LANE, NORMAL, ask, settings, upstream
from tests.kernel.gateway.world import Fate, World
from tests.rounds import examples

LIMITS = Limits(rpm=120, itpm=60_000, otpm=20_000)
ROOM = Policy().margin

usages = st.builds(Usage, input=st.integers(0, 20_000), output=st.integers(0, 4_000), cache_write=st.integers(0, 500))
fates = st.builds(
    Fate,
    usage=usages,
    first_byte_s=st.floats(0.1, 3),
    then_s=st.floats(0, 40),
    end=st.sampled_from([End.SERVED] * 6 + [End.CUT, End.CLIENT_GONE, End.REJECTED, *Refusal]),
    gives_up_after_s=st.none() | st.none() | st.floats(0, 300),
    usage_known=st.sampled_from([True, True, True, False]),
)
agents = st.builds(
    Agent,
    name=st.sampled_from("abcde"),
    epoch=st.just(1),
    task_class=st.sampled_from([INTERACTIVE, NORMAL, NORMAL, BATCH]),
    weight=st.sampled_from([0.5, 1.0, 4.0]),
    tpm_max=st.sampled_from([None, None, 20_000.0]),
    cost_max=st.sampled_from([None, None, 5.0]),
)
requests = st.lists(st.tuples(st.floats(0, 20), agents, st.integers(10, 100_000), fates, st.sampled_from([None, 0.1, 2.0])), max_size=50)


def world_of(asked: list[tuple[float, Agent, int, Fate, float | None]], *accounts: str) -> World:
    world = World(settings(*(upstream(name, LIMITS) for name in accounts or ("p",))))
    when = 0.0
    for ticket, (gap, agent, size, fate, bound) in enumerate(asked):
        when += gap
        event = Arrived(ticket, agent, LANE, "m", accounts or ("p",), size, 8000, f"{agent.name}/{ticket}", agent.name, bound)
        world.arrive(when, event, fate)
    return world


@given(requests)
def test_levels_reservations_and_ends_add_up_at_every_step(asked: list[tuple[float, Agent, int, Fate, float | None]]) -> None:
    world = world_of(asked, "p", "q")

    def check() -> None:
        in_flight: defaultdict[str, int] = defaultdict(int)
        for ticket in world.traffic.tickets.values():
            if ticket.where == SENT:
                in_flight[ticket.pool.key.account] += 1
        for pool in world.traffic.view(world.now).pools:
            assert pool.in_flight == in_flight[pool.key.account]
            assert pool.dimensions[0].reserved == pool.in_flight
            for dimension in pool.dimensions:
                assert dimension.level <= dimension.capacity
        waiting = [ticket for ticket in world.traffic.tickets.values() if ticket.where != SENT]
        assert world.traffic.waiting == len(waiting) == sum(world.traffic.view(world.now).queued.values())

    world.after_each = check
    world.run()
    assert set(world.ended) == set(range(len(asked))), "each request ends, and once"
    assert world.traffic.tickets == {}
    for _ in range(10):
        world.now += 100
        world.tell(Tick())
    for pool in world.traffic.network.pools():
        assert pool.in_flight == 0
        assert [pool.reserved(dimension.index) for dimension in pool.dimensions] == [0, 0, 0]
        assert all(dimension.bucket.level == dimension.bucket.capacity for dimension in pool.dimensions)
    for lane in world.traffic.network.lanes.values():
        assert [(rank.count, rank.cost, rank.weight) for rank in lane.ranks] == [(0, 0.0, 0.0)] * 3
    assert all(
        budget.in_flight == budget.queued == budget.money.bounds == budget.tokens.bounds == 0
        for budget in world.traffic.crew.budgets.values()
    )


@given(requests)
def test_what_was_settled_is_what_the_provider_said(asked: list[tuple[float, Agent, int, Fate, float | None]]) -> None:
    served = [(gap, agent, size, Fate(fate.usage, fate.first_byte_s, fate.then_s), bound) for gap, agent, size, fate, bound in asked]
    world = world_of(served)
    world.run()
    usage = [usage for _, usage in world.settled.values()]
    settled = world.traffic.network.pools()
    assert sum(one.settled_input for one in settled) == sum(one.limited_input for one in usage)
    assert sum(one.settled_output for one in settled) == sum(one.output for one in usage)


@given(requests)
def test_it_works_while_there_is_room_and_turns_nobody_into_an_overtaker(
    asked: list[tuple[float, Agent, int, Fate, float | None]],
) -> None:
    """Work conserving: after each step the first in order does not fit. No inversion: in a class, smaller tags went first."""
    asked = [
        (gap, Agent(agent.name, 1, agent.task_class, agent.weight), size, Fate(fate.usage), None) for gap, agent, size, fate, _ in asked
    ]
    world = world_of(asked)
    went: list[int] = []

    def check() -> None:
        for lane in world.traffic.network.lanes.values():
            for rank, share in lane._order(world.now)[:1]:
                first = next(iter(lane._firsts(rank, world.now)), None)
                assert first is None or lane.choose(first, share, world.now) is None
        new = [ticket for _, ticket in world.sent[len(went) :]]
        for number in new:
            ticket = world.traffic.tickets.get(number)
            waiting = [other for other in world.traffic.tickets.values() if other.where == QUEUED and ticket]
            assert not ticket or all(other.start >= ticket.start for other in waiting if other.rank is ticket.rank)
        went.extend(new)

    world.after_each = check
    world.run()
    assert len(world.sent) == len(asked)


@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=5),
    sizes=st.lists(st.integers(100, 8000), min_size=5, max_size=5),
)
@how(max_examples=examples(50))
def test_backlogged_agents_differ_by_at_most_one_request_each(weights: list[float], sizes: list[int]) -> None:
    """|W_i/w_i - W_j/w_j| <= c_i/w_i + c_j/w_j, the bound of start-time fair queueing, while both wait."""
    world = World(settings(upstream("p", Limits(tpm=60_000)), hold_s=1e6))
    world.arrive(0, ask(10_000, "first", tokens=70_000), Fate(Usage(70_000, 1200), then_s=0.0))
    names = [f"a{index}" for index in range(len(weights))]
    size = dict(zip(names, sizes, strict=False))
    weight = dict(zip(names, weights, strict=True))
    for ticket in range(30 * len(names)):
        name = names[ticket % len(names)]
        event = ask(ticket, Agent(name, 1, weight=weight[name]), tokens=size[name])
        world.arrive(0.1, event, Fate(Usage(size[name], 1200), first_byte_s=0.1, then_s=0.1))
    work = dict.fromkeys(names, 0.0)
    cost = {name: size[name] + 1200.0 for name in names}
    seen = 1

    def check() -> None:
        nonlocal seen
        for _, ticket in world.sent[seen:]:
            work[names[ticket % len(names)]] += cost[names[ticket % len(names)]]
        seen = max(seen, len(world.sent))
        left = {one.event.agent.name for one in world.traffic.tickets.values() if one.where == QUEUED}
        if len(left) == len(names) and world.now > 0.1:
            for one in names:
                for other in names:
                    apart = abs(work[one] / weight[one] - work[other] / weight[other])
                    assert apart <= 1.05 * (cost[one] / weight[one] + cost[other] / weight[other])

    world.after_each = check
    world.run(until=200)
    assert len(world.sent) > 15


@given(requests)
def test_c05_no_window_is_charged_more_than_burst_and_refill_and_what_estimates_were_short(
    asked: list[tuple[float, Agent, int, Fate, float | None]],
) -> None:
    world = world_of([(gap, agent, size, Fate(fate.usage, fate.first_byte_s, fate.then_s), None) for gap, agent, size, fate, _ in asked])
    charges: list[tuple[float, float]] = []
    reserved: dict[int, float] = {}

    def check() -> None:
        for when, number in world.sent[len(reserved) :]:
            reserved[number] = next(iter([world.traffic.tickets[number].guess.input] if number in world.traffic.tickets else [0.0]))
            charges.append((when, float(world.fates[number].usage.limited_input)))

    world.after_each = check
    world.run()
    rate, burst = LIMITS.itpm or 0, (LIMITS.itpm or 0)
    short = sum(max(0.0, world.fates[number].usage.limited_input - guess) for number, guess in reserved.items())
    biggest = max((guess for guess in reserved.values()), default=0.0)
    for first, (start, _) in enumerate(charges):
        total = 0.0
        for when, amount in charges[first:]:
            total += amount
            assert total <= max(burst, biggest) + rate * (when - start) / 60 + short + 1


@st.composite
def any_events(draw: st.DrawFn) -> list[tuple[Event, float]]:
    ticket, keys = st.integers(0, 6), st.sampled_from(["", "k"])
    level = st.builds(Level, *[st.none() | st.floats(-10, 1e6)] * 3)
    observed = st.builds(
        Observed,
        levels=st.dictionaries(st.sampled_from(["requests", "input", "output", "tokens", "?"]), level, max_size=4),
        windows=st.lists(st.builds(Window, st.just("5h"), st.floats(0, 2), st.floats(-5, 1e4), st.booleans()), max_size=1).map(tuple),
        retry_after_s=st.none() | st.floats(-1, 1e9),
        rounding=st.sampled_from([0.0, 1000.0]),
    )
    nonsense = st.builds(Usage, *[st.integers(-1000, 100_000)] * 4)
    event = st.one_of(
        st.builds(ask, ticket, agents, tokens=st.integers(0, 10**6), body_key=keys, bound_usd=st.none() | st.just(1.0)),
        st.builds(Responded, ticket, observed),
        st.builds(Began, ticket, nonsense),
        st.builds(Ended, ticket, st.sampled_from(End), st.none() | nonsense, st.none() | st.floats(-1, 5), st.none() | ticket, observed),
        st.builds(Refused, ticket, st.sampled_from(Refusal), observed),
        st.builds(Withdrawn, ticket),
        st.just(Tick()),
    )
    return draw(st.lists(st.tuples(event, st.floats(-3600, 3600)), max_size=40))


@given(any_events())
@how(max_examples=examples(200))
def test_no_order_of_events_and_no_clock_breaks_it_n11_c01(script: list[tuple[Event, float]]) -> None:
    traffic, now, sent = Traffic(settings(upstream("p", LIMITS), cost_per_night=50.0), 0.0), 0.0, 0
    for event, gap in script:
        now += gap
        sent += sum(isinstance(command, Send) for command in traffic.handle(event, now))
        wake = traffic.wakes_at(now)
        assert wake is None or wake >= now
        for pool in traffic.view(now).pools:
            assert all(dimension.level <= dimension.capacity for dimension in pool.dimensions)
            assert pool.in_flight >= 0
    assert sent <= sum(isinstance(event, Arrived | Refused | Tick) for event, _ in script) + len(script)
    traffic.recall(traffic.learned(), now)


def test_c01_a_clock_that_jumps_back_changes_nothing() -> None:
    world = World(settings(upstream("p", Limits(tpm=6000))))
    traffic = world.traffic
    assert len(traffic.handle(ask(1), 1000.0)) == 1
    level = traffic.view(1000.0).pools[0].dimensions[0].level
    for back in (-3600.0, -315e6):
        assert traffic.handle(Tick(), 1000.0 + back) == []
        assert traffic.view(1000.0 + back).pools[0].dimensions[0].level == level
    assert traffic.handle(ask(2), 5.0) != [], "and requests are admitted as if no time had passed"
    assert traffic.handle(ask(3, tokens=5000), 5.0) == []
    assert traffic.handle(Tick(), 1001.0) == [], "it is held from now, not from then"


def test_c01_a_long_sleep_refills_two_minutes_at_most() -> None:
    traffic = Traffic(settings(upstream("p", Limits(tpm=6000), burst_s=600.0), margin=1.0), 0.0)
    traffic.handle(ask(1, tokens=50_000), 0.0)
    traffic.handle(Ended(1, End.SERVED, Usage(60_000, 0)), 0.0)
    assert traffic.view(8 * 3600.0).pools[0].dimensions[0].level == pytest.approx(12_000)


def test_a_timer_that_fires_a_rounding_error_early_is_on_time() -> None:
    traffic, now = Traffic(settings(upstream("p", Limits(tpm=6000))), 0.1), 0.1
    sent = sum(isinstance(command, Send) for ticket in range(8) for command in traffic.handle(ask(ticket), now))
    while traffic.waiting:
        wake = traffic.wakes_at(now)
        assert wake is not None
        now = max(now, wake - 1e-13)
        new = [command for command in traffic.handle(Tick(), now) if isinstance(command, Send)]
        assert new, "each wake-up is worth it"
        sent += len(new)
    assert sent == 8
    for ticket in (9, 10):
        traffic.handle(ask(ticket, tokens=50_000), now)
    assert len(traffic.handle(Tick(), now + 200)) == 1, "one is sent when the bucket is full"
    assert len(traffic.handle(Tick(), now + 240 - 1e-13)) == 1, "and the other's time is over"


def run_many(count: int, rate: int) -> None:
    """`count` requests of 20 agents, `rate` a second, against a limit of four fifths of that; each takes 50 ms."""
    tokens = 48_000 * rate
    limits = Limits(itpm=tokens, otpm=100_000 * rate)
    traffic, now, end = Traffic(settings(upstream("p", limits), hold_s=2.0), 0.0), 0.0, count / rate
    agents = [Agent(f"a{number}", 1) for number in range(20)]
    flying: deque[tuple[float, int]] = deque()
    charges: list[float] = []
    turned_away = asked = 0

    def tell(event: Event) -> None:
        nonlocal turned_away
        for command in traffic.handle(event, now):
            if isinstance(command, Send):
                flying.append((now + 0.05, command.ticket))
                charges.append(now)
            else:
                turned_away += 1

    while asked < count or flying or traffic.waiting:
        wake = traffic.wakes_at(now)
        due = flying[0][0] if flying else inf
        now = max(now, min(asked / rate if asked < count else inf, due, inf if wake is None else wake))
        if due <= now:
            tell(Ended(flying.popleft()[1], End.SERVED, Usage(1000, 200)))
        elif asked < count and asked / rate <= now:
            asked += 1
            tell(ask(asked, agents[asked % 20]))
        else:
            tell(Tick())
    assert len(charges) + turned_away == count
    room = 0.985 * (tokens + tokens * end / 60)
    assert 1000 * len(charges) >= min(0.9 * count * 1000, 0.97 * room)
    pool = traffic.network.pools()[0]
    assert (pool.settled_input, pool.settled_output) == (1000 * len(charges), 200 * len(charges))
    assert traffic.tickets == {}
    first = 0
    for index, when in enumerate(charges):
        while charges[first] < when - 60:
            first += 1
        assert 1000 * (index + 1) <= tokens + tokens * when / 60
        assert 1000 * (index - first + 1) <= tokens + tokens * (when - charges[first]) / 60


def test_l03_twenty_thousand_requests() -> None:
    run_many(20_000, 50)


@pytest.mark.soak
def test_l03_a_million_requests() -> None:
    run_many(1_000_000, 1000)
