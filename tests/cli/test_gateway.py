"""`nightcrew gateway`: with a real gateway before a simulated provider, and without one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway import replay
from supervisor.server import prices
from tests.cli.terminal import Terminal
from tests.cli.test_imports import HEAVY, imported
from tests.cli.test_status import RFC3339
from tests.gateway import kit
from tests.gateway.simulator import Simulator
from tests.support import House, make_repository, wait_until
from tests.warm import NIGHTCREW


@dataclass(frozen=True, slots=True)
class Place:
    """A house with a gateway that records, in front of a simulated provider. One agent, `1121-k3f9/lint`, has asked something."""

    house: House
    gate: kit.GatewayProcess
    answer: bytes


@contextlib.contextmanager
def place(root: Path, url: str) -> Iterator[Place]:
    house = House(root, make_repository(root / "repo"))
    settings = kit.upstream(house.home, url) + "[gateway]\nrecord = true\n"
    with kit.gateway_process(root, settings) as gate:
        prices.write(house.home.prices, datetime.now(UTC))
        gate.start()
        yield Place(house, gate, turn(gate, "1121-k3f9/lint", "lint"))


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


@pytest.fixture(scope="module")
def living(sim: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For tests that only look."""
    with place(tmp_path_factory.mktemp("living"), sim.url) as made:
        yield made


@pytest.fixture(scope="module")
def ended(sim: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Its gateway has left."""
    with place(tmp_path_factory.mktemp("ended"), sim.url) as made:
        made.gate.stop()
        yield made


def post(url: str, body: bytes, token: str) -> tuple[int, bytes]:
    """One request, as an agent's client sends it."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/messages", body, headers), timeout=30) as answer:  # noqa: S310 - ours
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def turn(gate: kit.GatewayProcess, agent: str, text: str) -> bytes:
    """An agent's request; the answer."""
    status, body = post(f"http://127.0.0.1:{gate.port}", kit.messages(text), gate.crew.agent(agent))
    assert status == 200, body
    wait_until(lambda: all(row["end"] for row in kit.rows(gate.home)), "the request to be settled")
    return body


def shape(house: House) -> Any:
    return json.loads(house.ok("gateway", "status", "--json"))


def test_where_there_never_was_one_it_says_so(house: House) -> None:
    done = house.run("gateway", "status")
    assert (done.returncode, done.stdout) == (0, "") and "no gateway runs here; next: nightcrew up -d with a provider's key" in done.stderr
    found = shape(house)
    assert (found["schema"], found["running"]) == (1, False)
    assert json.loads(house.ok("status", "--json"))["gateway"] is None
    for verb in ("metrics", "reload"):
        done = house.run("gateway", verb)
        assert done.returncode == 5 and done.stderr.startswith("nightcrew: no gateway runs here; next: ")
    assert not house.home.secret.exists(), "looking makes nothing"


def test_a_running_gateway_at_a_glance(living: Place) -> None:
    house, gate = living.house, living.gate
    found = shape(house)
    assert (found["schema"], found["running"], found["pid"], found["port"]) == (1, True, gate.pid, gate.port)
    assert RFC3339.fullmatch(found["since"])
    rows = kit.rows(gate.home)
    assert found["figures"]["requests"] == len(rows)
    assert found["figures"]["cost_usd"] == pytest.approx(sum(row["cost_usd"] for row in rows)) and rows[0]["cost_usd"] > 0
    assert found["figures"]["tokens"]["input"] == sum(row["input"] for row in rows)
    (pool,) = found["pools"]
    assert (pool["key"], pool["breaker"]) == ("sim/anthropic/opus-4", "closed")
    text = house.ok("gateway", "status")
    assert f"127.0.0.1:{gate.port}, pid {gate.pid}" in text and "sim/anthropic/opus-4  breaker closed" in text and "\x1b" not in text
    (agent,) = [line for line in text.splitlines() if line.startswith("lint ")]
    assert f"${rows[0]['cost_usd']:.4f}" in agent


def test_the_crews_status_has_a_line_of_it_and_stays_light(living: Place) -> None:
    house, gate = living.house, living.gate
    text = house.ok("status")
    assert text.splitlines()[-1].startswith("gateway  0 in flight, 0 queued, ")
    found = json.loads(house.ok("status", "--json"))["gateway"]
    assert found["running"] and found["pid"] == gate.pid
    for words in (["status"], ["status", "--json"], ["gateway", "status"], ["gateway", "status", "--json"]):
        seen = imported(house, *words)
        assert "http" in seen and seen & (HEAVY | {"aiohttp", "prometheus_client", "zstandard", "genai_prices"}) == set()


def test_after_its_end_the_last_figures_are_there(ended: Place) -> None:
    house = ended.house
    text = house.ok("gateway", "status")
    assert text.startswith("gateway  no gateway is running\n         its last request was ") and "run 1121-k3f9\nAGENT" in text
    found = shape(house)
    assert (found["running"], found["figures"]["requests"], found["agents"][0]["used_tpm"]) == (False, 1, None)
    assert RFC3339.fullmatch(found["last"])
    assert house.ok("status").splitlines()[-1] == "gateway  no gateway is running"
    done = house.run("gateway", "metrics")
    assert done.returncode == 5 and "no gateway is running" in done.stderr


def test_a_gateway_that_hangs_keeps_nobody_from_seeing_the_crew(living: Place) -> None:
    house, gate = living.house, living.gate
    os.kill(gate.pid, signal.SIGSTOP)
    try:
        assert "the gateway did not answer" in house.ok("status").splitlines()[-1]
    finally:
        os.kill(gate.pid, signal.SIGCONT)


def test_metrics_are_printed_as_prometheus_reads_them(living: Place) -> None:
    text = living.house.ok("gateway", "metrics")
    assert 'sup_llm_requests_total{agent="lint",code="200",model="claude-opus-4-8"} 1.0' in text
    assert 'sup_breaker_state{scope="sim/anthropic/opus-4"} 0.0' in text


def test_reload_reads_the_settings_again(living: Place) -> None:
    house, gate = living.house, living.gate
    before = gate.config.read_text()
    assert "has read its settings again" in house.run("gateway", "reload").stderr
    gate.config.write_text("[upstream.x]\napi = 'no such'\n")
    done = house.run("gateway", "reload")
    gate.config.write_text(before)
    assert done.returncode == 1 and "api" in done.stderr
    assert shape(house)["running"], "it goes on with what it had"


def test_a_recorded_run_is_answered_again_without_gateway_and_provider(ended: Place) -> None:
    house = ended.house
    with served(house, "gateway", "replay", "1121-k3f9") as url:
        assert post(url, kit.messages("lint"), "another token") == (200, ended.answer)
        status, body = post(url, kit.messages("something else"), "another token")
        assert status == 404 and b"nightcrew gateway: run 1121-k3f9 recorded no such request" in body
    tapes = [path for path in house.home.recordings.rglob("*") if path.is_file()]
    assert len(tapes) == 1 and kit.KEY not in replay.read(tapes[0]).body.decode()
    done = house.run("gateway", "replay", "9999-none")
    assert done.returncode == 4 and "no run 9999-none" in done.stderr


def test_replay_without_an_account_is_not_found(house: House) -> None:
    done = house.run("gateway", "replay", "1121-k3f9")
    assert done.returncode == 4 and "no request ever went through a gateway here" in done.stderr


def test_a_port_that_is_taken_is_one_clear_line(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = house.run("gateway", "sim", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == f"nightcrew: cannot listen 127.0.0.1:{port}: another program has this port; next: give another --port\n"


def test_the_simulated_provider_limits_as_it_was_told(house: House) -> None:
    with served(house, "gateway", "sim", "--rpm", "0.002", "--burst", "60000") as url:
        seen = [post(url, kit.messages(stream=False), "any") for _ in range(3)]
    assert [status for status, _ in seen] == [200, 200, 429]
    assert b"[simulated]" in seen[0][1]


def test_the_simulated_provider_is_as_hard_to_learn_as_it_was_told(house: House) -> None:
    words = ("--itpm", "60000", "--burst", "12", "--head", "0.3")
    with served(house, "gateway", "sim", *words) as url:
        began = time.monotonic()
        assert post(url, kit.messages(stream=False), "any")[0] == 200
        assert time.monotonic() - began >= 0.3, "the head came at once"

        def bucket() -> dict[str, float]:
            with urllib.request.urlopen(f"{url}/sim/stats", timeout=30) as answer:  # noqa: S310 - our own loopback
                told: dict[str, float] = json.load(answer)["accounts"][0]["buckets"]["input"]
            return told

        assert bucket()["capacity"] == 12_000


@contextlib.contextmanager
def served(house: House, *words: str) -> Iterator[str]:
    """A verb that serves until Ctrl-C, and says its URL first."""
    child = subprocess.Popen([*NIGHTCREW, *words], env=house.env, cwd=house.repo, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        url = child.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        yield url
        child.send_signal(signal.SIGINT)
        assert child.wait(30) in (0, 130)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_watch_redraws_until_ctrl_c(living: Place, terminal: Callable[..., Terminal]) -> None:
    house, here = living.house, terminal(columns=80)
    here.nightcrew("gateway", "status", "--watch", env={"NIGHTCREW_HOME": str(house.home.root)})
    here.sees("0 in flight")
    turn(living.gate, "1121-k3f9/watched", "watched")
    screen = here.sees("watched")
    assert "sim/anthropic/opus-4  breaker closed" in screen
    here.press("C-c")
    here.sees("left with 130")
    here.nightcrew("status", "--watch", env={"NIGHTCREW_HOME": str(house.home.root)})
    here.sees("gateway  0 in flight")
    here.press("C-c")
    done = house.run("gateway", "status", "--watch")
    assert done.returncode == 2 and "--watch needs a terminal" in done.stderr
    assert house.run("gateway", "status", "--watch", "--json").returncode == 2
