"""A night with a cap, as its agents meet it: the real supervisor and gateway, and the simulated provider behind them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.features.night import install as night_install
from supervisor.features.night import service as night_service
from supervisor.host.paths import Home
from supervisor.kernel.decision import MoveNight
from supervisor.kernel.night import CAP_REACHED, NightDefaults, NightOrder, NightState, NightTerms, OnCap
from supervisor.kernel.schedule import CAP_STOPPED
from supervisor.store.ledger import Ledger
from tests.gateway import kit
from tests.gateway.simulator import Simulator
from tests.server.models_kit import ASK, Models
from tests.store.kit import Wall, rows, submission
from tests.support import House, plan_of, shell_task, wait_until

CAP = 0.02
SPEND = f"""{ASK.partition("if __name__")[0]}
while True:
    try:
        ask(20)
    except urllib.error.HTTPError as error:
        print(error.code, flush=True)
        break
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
"""Spends until it is refused, then waits for a file."""


@pytest.fixture
def models(house: House, tmp_path: Path) -> Iterator[Models]:
    script = tmp_path / "spend.py"
    script.write_text(SPEND)
    with Simulator(tokens_per_s=10_000) as sim:
        made = Models(house, sim, script)
        made.settings()
        kit.know_prices(house.home)
        yield made


def begin(models: Models, until: Path, on_cap: str) -> None:
    tasks = [shell_task(name, f"{models.ask} {until}") for name in "abc"]
    terms = ("--cost-max", str(CAP), "--parallel", "2", "--on-cap", on_cap)
    models.house.ok("night", "run", "-d", models.house.plan(plan_of(tasks)), "--until", "8h", *terms)


def waits_for(house: House, name: str) -> str:
    tasks = json.loads(house.ok("status", "--json"))["tasks"]
    return next((str((task["waits_for"] or {}).get("code")) for task in tasks if task["name"] == name), "")


def spent(house: House) -> float:
    """By the agents of the newest night."""
    run = house.task("a").run
    return sum(row["cost_usd"] or 0.0 for row in kit.rows(house.home) if row["agent"].startswith(f"{run}/"))


def test_at_its_cap_a_night_drains_though_the_supervisor_is_killed_meanwhile(models: Models, tmp_path: Path) -> None:
    house, go = models.house, tmp_path / "go"
    daemon = models.start()
    begin(models, go, "drain")
    wait_until(lambda: waits_for(house, "c") == "night" or house.state("c") == "expired", "two of three agents live")
    wait_until(lambda: house.state("c") == "expired", "the night closes")
    daemon.kill()
    daemon.wait()
    daemon = house.start_daemon()
    models.ready()
    assert {house.state(name) for name in "ab"} == {"running"}
    go.touch()
    house.wait_final()
    assert {name: house.task(name).state for name in "abc"} == {"a": "done", "b": "done", "c": "expired"}
    assert house.task("c").reason == CAP_REACHED
    assert 0.5 * CAP < spent(house) <= CAP
    wait_until(lambda: rows(house.home.ledger, "SELECT state FROM night") == [{"state": "ended"}], "the night ends")
    _or_it_stops_and_says_so_in_a_report(models, tmp_path)


def _or_it_stops_and_says_so_in_a_report(models: Models, tmp_path: Path) -> None:
    house = models.house
    begin(models, tmp_path / "never", "stop")
    house.wait_final()
    assert {name: house.task(name).reason for name in "abc"} == {
        "a": f"cancelled: {CAP_STOPPED}", "b": f"cancelled: {CAP_STOPPED}", "c": CAP_REACHED,
    }  # fmt: skip
    assert 0 < spent(house) <= CAP
    report = house.home.root / "runs" / house.task("a").run / "night.json"
    wait_until(report.exists, "the report of the night")
    assert json.loads(report.read_text())["run"]["id"] == house.task("a").run


def test_a_night_that_ended_as_the_supervisor_was_killed_gets_its_report_later(tmp_path: Path) -> None:
    home, wall = Home(tmp_path), Wall()
    with closing(Ledger(tmp_path / "ledger.db", wall)) as ledger:
        for run in ("1122-aaaa", "1122-bbbb", "1122-open"):
            ledger.submit(submission("a", key=run, night=NightOrder(NightTerms())), run)
        ledger.commit([MoveNight(run, NightState.ENDED, "") for run in ("1122-aaaa", "1122-bbbb")])
        (tmp_path / "runs/1122-bbbb").mkdir(parents=True)
        (tmp_path / "runs/1122-bbbb/night.json").touch()
        assert night_service.unreported(ledger, home, wall.now + 60) == ["1122-aaaa"]
        assert night_service.unreported(ledger, home, wall.now + 2 * 86400) == []


DEFAULTS = NightDefaults(until="2h", grace_s=60.0, cost_max=5.0, parallel=2, on_cap=OnCap.STOP)


def test_what_is_not_said_is_as_the_settings_have_it() -> None:
    before = time.time()
    terms = night_install.resolve({"until": None, "cost_max": "7.5", "grace": None, "parallel": None, "on_cap": "drain"}, DEFAULTS)
    assert (terms.grace_s, terms.cost_max, terms.parallel, terms.on_cap) == (60.0, 7.5, 2, OnCap.DRAIN)
    assert before + 7200 <= terms.until <= time.time() + 7200
    assert night_install.resolve({}, NightDefaults()) == NightTerms(), "nothing is invented"


def test_a_clone_can_say_none_of_a_nights_terms(house: House) -> None:
    (house.repo / "nightcrew.toml").write_text("[night]\ncost_max = 1000.0\n")
    done = house.run("night", "run", house.plan(plan_of([shell_task("a", "true")])))
    assert done.returncode == 3 and "nightcrew.toml:1" in done.stderr and "night" in done.stderr
    assert not house.home.ledger.exists()
