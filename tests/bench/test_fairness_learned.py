"""Limits that nobody configured, in virtual time: the battery's T02 and T03, and whether the judge would see what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from nightcrew.plugins.bench import fairness as runs
from nightcrew.plugins.bench.fairness import CASES, Judge, Learned
from nightcrew.plugins.bench.fairness_world import Case, ClientStreams, Gateway, Other, Provider, Timeline, Turn, World
from nightcrew.plugins.bench.figures import missed
from supervisor.gateway.admission.bucket import UpstreamBucket
from supervisor.gateway.admission.pool import Pool, UnknownLimit
from supervisor.kernel.states import TaskClass

T02 = ("narrow", "wide", "requests_late", "requests_50_agents", "input_2_agents", "input_50_agents", "output_late", "output_long")
T03 = ("small_bucket_late", "outside_40", "outside_40_later_small_bucket", "outside_40_later_late", "limit_halved", "limit_doubled")
YESTERDAY = ("remembered_4_times", "remembered_a_quarter")
SEED = 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*T02, *T03, *YESTERDAY])
def test_t02_t03_what_nobody_configured_is_learned_used_and_nobody_elses(name: str) -> None:
    case = CASES[name]
    found = runs.run_learned_limits(case, SEED)
    assert missed(runs.aims_of(case), asdict(found)) == [], f"seed {SEED}: {found}"


def test_the_same_seed_gives_the_same_figures() -> None:
    assert runs.run_learned_limits(CASES["outside_40_later"], 7, 200.0) == runs.run_learned_limits(CASES["outside_40_later"], 7, 200.0)


def test_who_sends_blind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnknownLimit, "allows", lambda *_: True)
    assert runs.run_learned_limits(CASES["narrow"], SEED, 120.0).upstream_429 > 5


def test_outside_use_that_is_not_there_is_seen_by_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UpstreamBucket, "outside", lambda *_: 100.0)
    assert runs.run_learned_limits(CASES["input"], SEED, 120.0).phantom_outside_per_min == pytest.approx(6_000 / 80_000)


def test_a_gateway_that_stands_still_is_seen_by_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = Pool.fits
    monkeypatch.setattr(Pool, "fits", lambda pool, ticket, share, now: not 60 <= now < 90 and fits(pool, ticket, share, now))
    found = runs.run_learned_limits(CASES["input"], SEED, 180.0)
    assert 15 < found.stalls_s < 30


# The provider --------------------------------------------------------------------------------------------------------------------


class Listens(Gateway):
    """A policy that only hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def responded(self, turn: Turn, headers: object) -> None:  # noqa: ARG002 - a policy's signature
        self.heard.append("head")

    def refused(self, turn: Turn, retry_after: int, headers: object) -> None:  # noqa: ARG002 - a policy's signature
        self.heard.append(f"429 {retry_after}")

    def began(self, turn: Turn, headers: object) -> None:  # noqa: ARG002 - a policy's signature
        self.heard.append("began")

    def ended(self, turn: Turn) -> None:  # noqa: ARG002 - a policy's signature
        self.heard.append("ended")


def turn(tokens_in: int, tokens_out: int = 120, number: int = 0) -> Turn:
    return Turn("a", TaskClass.NORMAL, number, tokens_in, tokens_out, tokens_in * 3, first_byte_s=1.0, born=0.0)


@pytest.fixture
def provide() -> Callable[[Case], tuple[Timeline, Provider, Listens]]:
    def make(case: Case) -> tuple[Timeline, Provider, Listens]:
        timeline = Timeline()
        return timeline, Provider(timeline, case, SEED, 600.0), Listens()

    return make


SMALL = Case({"requests": 60.0, "input": 6_000.0, "output": 600.0}, "input", burst_s=10.0)


def test_the_provider_takes_what_fits_and_says_what_is_left_late(provide: Callable[[Case], tuple[Timeline, Provider, Listens]]) -> None:
    timeline, provider, policy = provide(replace(SMALL, head_s=2.0))
    provider.receive(turn(900), policy)
    provider.receive(turn(200, number=1), policy)
    assert len(provider.refusals) == 1
    timeline.run(2.0)
    assert policy.heard == []
    timeline.run(30.0)
    assert policy.heard == ["head", "429 1", "began", "ended"]
    assert provider.buckets["output"].level(timeline.now) == pytest.approx(100 - 120 + 10 * 0.05), "in debt, at the end of the answer"


def test_output_is_charged_while_it_is_produced_or_at_its_end(provide: Callable[[Case], tuple[Timeline, Provider, Listens]]) -> None:
    left = {}
    for produced in (False, True):
        timeline, provider, policy = provide(replace(SMALL, produced=produced))
        provider.receive(turn(100), policy)
        timeline.run(2.5)
        left[produced] = provider.unwritten
        timeline.run(30.0)
        assert provider.unwritten == pytest.approx(0)
    assert left == {False: 120, True: 60}


def test_others_take_their_share_of_every_limit(provide: Callable[[Case], tuple[Timeline, Provider, Listens]]) -> None:
    timeline, provider, _ = provide(replace(SMALL, other=Other(0.4, 100.0)))
    timeline.run(600.0)
    assert provider.charges[0].at == 100.0
    assert sum(charge.tokens for charge in provider.charges) == pytest.approx(0.4 * 6_000 * 500 / 60, rel=0.15)


def test_a_limit_that_changes_is_said_and_kept(provide: Callable[[Case], tuple[Timeline, Provider, Listens]]) -> None:
    timeline, provider, _ = provide(replace(SMALL, factor=0.5))
    timeline.run(201.0)
    assert (provider.buckets["input"].per_minute, provider.buckets["input"].capacity) == (3_000.0, 500.0)
    assert provider.given(100.0, 300.0) == 100 * 100 + 100 * 50


def test_the_judge_counts_only_time_in_which_the_provider_had_room(provide: Callable[[Case], tuple[Timeline, Provider, Listens]]) -> None:
    timeline, provider, _ = provide(SMALL)
    assert provider.has_room([turn(900)])
    provider.buckets["input"].draw(100.0, 0.0)
    assert not provider.has_room([turn(880)]), "no part of the capacity to spare"
    provider.unwritten = 90.0
    provider.buckets["output"].draw(5.0, 0.0)
    assert not provider.has_room([turn(100)]), "what is under way has first claim"
    policy = Gateway(World(timeline, provider, ClientStreams(timeline, (), SEED, 0.0)))
    judge = Judge(timeline, provider, policy)
    timeline.run(60.0)
    assert (judge.stall_s, judge.phantom()) == (0.0, 0.0), "nobody waits, nothing is claimed"


def test_each_aim_can_be_missed() -> None:
    aims = runs.aims_of(CASES["input"])
    assert missed(aims, asdict(Learned(0, 0.99, 0.0, 1.0))) == []
    assert missed(aims, asdict(Learned(2, 0.94, 0.03, 5.5))) == [aim.figure for aim in aims]
