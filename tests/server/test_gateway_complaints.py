"""What of the gateway's status a person hears, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Api, GatewaySettings, KeySource, Upstream
from supervisor.server import gateway, gateway_report
from supervisor.server.gateway import DEAD_S, UNSERVED_S, GatewayProblems

HOME = Home(Path("/h"))
SETTINGS = GatewaySettings(upstreams=(Upstream("main", Api.ANTHROPIC, "https://api.invalid"),))


def pool(why: str = "", breaker: str = "open", account: str = "main", lane: str = "anthropic/opus") -> dict[str, Any]:
    return {"breaker": breaker, "breaker_why": why, "account": account, "lane": lane}


def status(*pools: dict[str, Any], problems: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"pools": list(pools), "problems": list(problems)}


WELL = status(pool(breaker="closed"), pool("None", breaker="None") | {"breaker": None})


def test_each_trouble_is_news_once_while_it_lasts_and_again_when_it_comes_back() -> None:
    seen = GatewayProblems(HOME)
    bad = status(pool("key refused"), pool("key refused", lane="anthropic/haiku"), problems=("no key\x1b[2J",))
    step = f"put the key into {HOME.keys / 'main.key'} (mode 600), then nightcrew gateway reload"
    assert seen.look(bad, SETTINGS, 0.0) == ["no key\\x1b[2J", f"main refuses its key: {step}"]
    assert seen.look(bad, SETTINGS, 2.0) == [] and len(seen.now) == 2
    assert seen.look(WELL, SETTINGS, 4.0) == [] and seen.now == {}
    assert len(seen.look(bad, SETTINGS, 6.0)) == 2


def test_a_spend_cap_is_told_at_once_also_while_it_is_tried_again() -> None:
    seen = GatewayProblems(HOME)
    assert seen.look(status(pool("spend cap reached")), SETTINGS, 0.0) == ["main has reached its spend cap: raise it at the provider"]
    assert seen.look(status(pool("spend cap reached", breaker="half-open")), SETTINGS, 900.0) == []


@pytest.mark.parametrize("why", ["unreachable: refused", "overloaded", "server error: 500", "streams are cut"])
def test_who_serves_nothing_is_told_after_a_minute_whatever_reason_it_gives_next(why: str) -> None:
    other = pool(breaker="closed", account="other")
    seen, down = GatewayProblems(HOME), status(pool(why), other)
    assert seen.look(down, SETTINGS, 10.0) == [] == seen.look(down, SETTINGS, 10.0 + UNSERVED_S - 0.1)
    (said,) = seen.look(status(pool(why, breaker="half-open"), other), SETTINGS, 10.0 + UNSERVED_S)
    assert said.startswith(f"main has not served anthropic/opus ({why}) for a minute")
    assert seen.look(status(pool("overloaded"), other), SETTINGS, 80.0) == []
    assert seen.look(WELL, SETTINGS, 82.0) == [] == seen.look(down, SETTINGS, 84.0), "the minute begins anew"


def dead(*pools: dict[str, Any]) -> list[str]:
    """What is said of a provider that is so for ten seconds and more."""
    seen = GatewayProblems(HOME)
    return [(seen.look(status(*pools), SETTINGS, at), seen.dead)[1] for at in (0.0, DEAD_S - 0.1, DEAD_S)]


def test_no_provider_at_all_is_an_outage_after_ten_seconds_and_told_as_that_alone() -> None:
    words = "main has not served anthropic/opus (unreachable: refused)"
    haiku = pool(breaker="closed", lane="anthropic/haiku")
    idle = pool("None", account="other") | {"breaker": None}
    assert dead(pool("unreachable: refused"), idle) == ["", "", words] == dead(pool("unreachable: refused"), haiku)
    assert dead(pool("overloaded"), haiku)[-1] == "", "another lane serves"
    assert dead(pool("overloaded"), pool("server error: 500", lane="anthropic/haiku"))[-1]
    assert dead(pool("unreachable: refused"), pool(breaker="closed", account="other"))[-1] == "", "another account serves"
    assert dead(pool("rate limited: 429"))[-1] == "", "a limit is no outage"
    seen, down = GatewayProblems(HOME), status(pool("unreachable: refused"))
    assert [seen.look(down, SETTINGS, at) for at in (0.0, DEAD_S, UNSERVED_S)] == [[], [], []]
    assert seen.dead and seen.now, "the trouble stands in the status"
    assert seen.look(WELL, SETTINGS, 99.0) == [] and not seen.dead


@pytest.mark.parametrize("why", ["rate limited: 429", "subscription window spent", "input would be gone within 10 s"])
def test_a_limit_is_daily_work_and_no_trouble(why: str) -> None:
    seen = GatewayProblems(HOME)
    assert [seen.look(status(pool(why)), SETTINGS, at) for at in (0.0, 1e4)] == [[], []]


def test_an_upstream_that_left_the_settings_refuses_nothing() -> None:
    assert gateway.standing(HOME, status(pool("key refused", account="gone")), SETTINGS) == []


@pytest.mark.parametrize(
    ("source", "step"),
    [
        (KeySource("file", "/elsewhere"), "put the key into /elsewhere (mode 600), then"),
        (KeySource("command", argv=("pass", "x")), "let pass print the right one, then"),
        (KeySource("client"), "log in again"),
    ],
)
def test_the_next_step_fits_where_the_key_comes_from(source: KeySource, step: str) -> None:
    assert gateway.next_step(HOME, Upstream("main", Api.ANTHROPIC, "", key=source)).startswith(step)


def test_a_supervisor_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    heard = gateway_report.hear(Home(tmp_path))
    assert (heard.troubles, heard.conditions) == ((), None)
