"""`nightcrew bench gateway --learned`: the judge is right about accounts whose figures are known, and a run is a real one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nightcrew.plugins.bench.gateway import learned
from nightcrew.plugins.bench.gateway.learned import (
    Bucket,
    Demand,
    Options,
    Sample,
    Scenario,
    figures,
    phantoms,
    stalls,
    utilisation,
)
from supervisor.gateway.admission.types import Limits
from supervisor.kernel.errors import UsageError
from tests.support import House

DEMAND = Demand(4, {"requests": 1, "input": 1000, "output": 200}, "input")


def look(at: float, *, drawn: float = 0, outside: float = 0, level: float = 0, arrived: int = 0, claimed: float = 0) -> Sample:
    """At 6,000 tokens a minute in a bucket of a minute, as it was made at second 0."""
    bucket = Bucket(per_minute=6000, capacity=6000, level=level, offered=at * 100, drawn=drawn, outside=outside)
    return Sample(at, arrived, 0, 0, {"input": bucket}, {"input": claimed})


def test_a_crew_that_takes_all_that_is_refilled_uses_all() -> None:
    assert utilisation(look(60, drawn=500), look(120, drawn=6500), DEMAND) == 1
    assert utilisation(look(60, drawn=500, level=3000), look(120, drawn=6500, level=3000), DEMAND) == 1, "what is never touched is no waste"


def test_what_others_took_was_not_free() -> None:
    assert utilisation(look(60), look(120, drawn=3000, outside=3000), DEMAND) == 1
    assert utilisation(look(60), look(120, drawn=3000, outside=2000), DEMAND) == pytest.approx(0.75)


def test_refill_that_overflowed_or_was_left_lying_was_not_used() -> None:
    assert utilisation(look(60, level=6000), look(120, drawn=3000, level=6000), DEMAND) == pytest.approx(0.5), "3,000 overflowed"
    assert utilisation(look(60), look(120, drawn=3000, level=3000), DEMAND) == pytest.approx(0.6), "all but one request's 1,000"


def test_what_the_first_minute_left_does_not_hide_later_waste() -> None:
    assert utilisation(look(60, level=6000), look(120, drawn=6000, level=6000), DEMAND) == 1
    assert utilisation(look(60, level=6000), look(120, drawn=6000, level=0), DEMAND) == pytest.approx(0.5)


def test_less_than_one_request_is_nobodys() -> None:
    assert utilisation(look(60), look(120, drawn=5001, level=999), DEMAND) == 1


def test_a_provider_that_was_never_asked_was_not_used() -> None:
    nobody = Sample(60, 0, 0, 0, {}, {})
    assert utilisation(nobody, look(120, drawn=6000), DEMAND) == 0


def test_a_stall_is_room_and_a_waiting_request_and_nothing_that_comes() -> None:
    samples = [look(0, level=1300), look(1, level=1400, arrived=1), look(2, level=1500, arrived=1), look(7, level=2000, arrived=1)]
    assert max(stalls(samples, DEMAND)) == (6, 1)
    assert not list(stalls([replace(sample, running=4) for sample in samples], DEMAND)), "all of them are being served"
    assert not list(stalls([replace(sample, arrived=int(sample.at)) for sample in samples], DEMAND))
    assert not list(stalls([look(0, level=1299), look(9, level=1299)], DEMAND)), "1,000 and 5 % of 6,000 is not there"


def test_a_stall_ends_when_there_is_no_room_and_begins_with_the_clients() -> None:
    samples = [look(0, level=2000), look(3, level=2000), look(4, level=100), look(6, level=2000), look(8, level=2000)]
    assert max(stalls(samples, DEMAND)) == (3, 0)
    assert max(stalls([Sample(0, 0, 0, 0, {}, {}), Sample(9, 0, 0, 0, {}, {})], DEMAND)) == (9, 0), "before the first request all is free"


def test_a_request_larger_than_the_bucket_needs_a_full_one() -> None:
    large = replace(DEMAND, request={"input": 9000})
    assert max(stalls([look(0, level=6000), look(2, level=6000)], large)) == (2, 0)
    assert not list(stalls([look(0, level=5999), look(2, level=5999)], large))


def test_output_that_is_still_to_come_is_not_free() -> None:
    bucket = Bucket(per_minute=1000, capacity=1000, level=600, offered=0, drawn=0, outside=0)
    samples = [Sample(at, 1, running, 0, {"output": bucket}, {}) for at, running in ((0, 1), (3, 1), (4, 2), (9, 2))]
    assert list(stalls(samples, DEMAND)) == [(3, 0)]


def test_a_claim_is_a_phantom_only_beyond_what_others_take() -> None:
    began = [look(second, outside=50 * second, claimed=3000 if second else 0) for second in range(61)]
    assert not list(phantoms(began))
    claimed = replace(began[-1], claimed={"input": 3600.0, "tokens": 9e9})
    ((part, name, per_minute),) = phantoms([*began[:-1], claimed])
    assert name == "input" and part == pytest.approx(0.1) and per_minute == pytest.approx(600)


def test_outside_use_that_began_just_now_counts_in_full() -> None:
    samples = [look(second, outside=100 * max(0, second - 60), claimed=6000 if second >= 75 else 0) for second in range(90)]
    assert not list(phantoms(samples)), "over 60 s it is a quarter, over 15 s all of it"
    assert max(phantoms([*samples, look(200, outside=2900, claimed=6000)]))[0] == pytest.approx(1.0, abs=0.3)


def test_figures_are_counted_from_when_the_clients_began() -> None:
    samples = [replace(look(100 + second, drawn=100 * second, arrived=second), refused=5 + (second >= 7)) for second in range(20)]
    found = figures(samples, DEMAND, settle_s=10)
    assert (found["upstream_429"], found["refused_at_s"], found["stalls_s"]) == (1, [7.0], 0)
    assert found["utilisation_after_1min"] == pytest.approx(1)


SMALL = Scenario(about="small", agents=3, limits=Limits(600, 3_000_000, 600_000), binding="requests", head_s=0.1)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(SMALL, marks=pytest.mark.soak), replace(SMALL, remembered=2.0, changes=((0.3, 0.5),), steal=0.5)],
    ids=["plain", "all"],
)
def test_a_small_run_is_a_real_one(tmp_path: Path, scenario: Scenario) -> None:
    found = learned.run(scenario, Options(seconds=4, settle_s=1), tmp_path)
    assert found["answered"] > 0 and found["failed"] == 0
    assert found["utilisation_after_1min"] > 0
    assert set(found["missed"]) <= {aim.figure for aim in learned.aims_of(scenario)}


def test_the_report_names_every_scenario_and_what_it_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "SCENARIOS", {"small": SMALL})
    said: list[str] = []
    report = learned.measure(Options(seconds=2, settle_s=1, seed=7), tmp_path, said.append)
    figures_of = report["learned"]["small"]
    assert {"upstream_429", "utilisation_after_1min", "phantom_outside_per_min", "stalls_s"} <= figures_of.keys()
    assert report["seed"] == 7 and "seed 7" in said[0] and "small" in learned.table(report)
    assert not list(tmp_path.iterdir()), "nothing stays"


def test_a_scenario_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cold_50k"):
        learned.measure(Options(scenarios=("warm",)), tmp_path, lambda _: None)


def test_the_six_scenarios_are_six() -> None:
    assert len(learned.SCENARIOS) == 6
    late = [scenario for scenario in learned.SCENARIOS.values() if scenario.steal and scenario.steal_from]
    assert all(scenario.most_429 == (1 if scenario in late or scenario.changes else 0) for scenario in learned.SCENARIOS.values())


def test_scenarios_belong_to_learned(house: House) -> None:
    done = house.run("bench", "gateway", "--scenario", "cold_50k")
    assert done.returncode == 2 and "--learned" in done.stderr
