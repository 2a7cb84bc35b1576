"""An agent whose own account has tokens that the gateway never saw: its result says so, and every cap counts them."""

from __future__ import annotations

import json
import sys

import pytest

from agents.protocols import Outcome, Usage
from supervisor.core.gateway import client_env
from supervisor.core.result import Spent
from supervisor.daemon import kind_protocol
from supervisor.gateway import status_client
from tests.daemon.models_kit import Models
from tests.gateway.kit import know_prices

SAYS = """
import json
print(json.dumps({"type": "system", "subtype": "init", "session_id": "own", "model": "claude-opus-4-8"}))
usage = {"inputTokens": 1000, "outputTokens": 200, "cacheReadInputTokens": 30, "cacheCreationInputTokens": 4}
print(json.dumps({"type": "result", "subtype": "success", "session_id": "own", "total_cost_usd": 0.5, "num_turns": 1,
                  "modelUsage": {"claude-opus-4-8": usage}, "result": "done"}))
"""


def test_tokens_that_went_past_the_gateway_are_counted_once_against_every_cap(models: Models) -> None:
    house = models.house
    kind = house.config.parent / "kinds" / "astray.toml"
    kind.parent.mkdir(parents=True)
    words = json.dumps(["-S", "-c", SAYS, "{prompt}"])
    kind.write_text(f"description = 'astray'\nbinary = {json.dumps(sys.executable)}\nprotocol = 'claude'\nheadless = {words}\n")
    models.settings("[gateway]\ncost_per_night = 100\n")
    know_prices(house.home)
    models.start()
    house.ok("run", house.plan("[[tasks]]\nid = 'a'\nkind = 'astray'\nprompt = 'x'\ncost_max = 1\n"))
    view = house.task("a")
    judged = view.result or {}
    assert judged["tokens"] == {"input": 1000, "output": 200, "cache_read": 30, "cache_write": 4, "estimated": 1}
    assert judged["cost_usd"] == 0.5
    assert judged["notes"] == ["its model calls went past the gateway: 1,234 tokens by its own account, which count against its caps"]
    assert "went past the gateway" in house.ok("status", "a")
    shown = status_client.ask(house.home, status_client.STATUS)
    assert (shown["caps"]["cost_per_night"], shown["caps"]["night_usd"]) == (100, 0.5)
    again = {"task": view.id, "epoch": 1, "class": "normal", "model": "x", "tokens": {"input": 5}, "cost_usd": 9.0}
    assert json.loads(status_client.fetch(house.home, status_client.PAST, post=True, body=again)) == {"charged": False}


@pytest.mark.parametrize(
    ("own", "known", "first", "past"),
    [
        (Usage(100, 10), Spent(0, 0, 0, 0, 0), True, ({"input": 100, "output": 10, "cache_read": 0, "cache_write": 0}, 0.1)),
        (Usage(100, 10), Spent(0, 0, 0, 0, 0), False, ({"input": 100, "output": 10, "cache_read": 0, "cache_write": 0}, 0.1)),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 0), True, ({"input": 4900, "output": 0, "cache_read": 0, "cache_write": 0}, None)),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 0), False, None),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 1), True, None),
        (Usage(101, 10), Spent(100, 10, 0, 0, 0), True, None),
        (Usage(), Spent(0, 0, 0, 0, 0), True, None),
        (Usage(100, 10), Spent(), True, None),
        (Usage(100, 10), Spent(0, 0, 0, 0, 0, past=110), True, None),
        (None, Spent(0, 0, 0, 0, 0), True, None),
    ],
)
def test_what_the_gateway_never_saw(own: Usage | None, known: Spent, first: bool, past: object) -> None:
    assert kind_protocol.past(Outcome(usage=own, cost_usd=0.1), known, first=first) == past


def test_a_proxy_that_is_passed_on_gets_nothing_of_the_gateways(models: Models) -> None:
    proxies = {"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1", "NO_PROXY": "corp.example"}
    models.settings(before=f"pass_env = {json.dumps([*proxies])}\n")
    models.start()
    models.house.ok("add", "--id", "asks", "-f", f"{models.ask} 10", env=proxies)
    models.house.ok("add", "--id", "looks", "-f", "echo $http_proxy $NO_PROXY $no_proxy", env=proxies)
    assert models.house.state("asks") == "done", models.house.run("logs", "asks").stdout
    names = "corp.example,127.0.0.1,localhost,::1"
    assert f"{proxies['http_proxy']} {names} {names}" in models.house.ok("logs", "looks")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, "127.0.0.1,localhost,::1"),
        ({"NO_PROXY": "corp.example, localhost", "no_proxy": "10.0.0.0/8"}, "corp.example,localhost,10.0.0.0/8,127.0.0.1,::1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_the_gateway_is_reached_by_no_proxy(environ: dict[str, str], names: str) -> None:
    assert client_env.past_proxies(environ) == {"NO_PROXY": names, "no_proxy": names}
