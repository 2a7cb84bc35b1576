"""The gateway as a process of its own: killed, started again, looked into, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.gateway import lifecycle, pages
from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway import kit
from tests.gateway.simulator import Simulator
from tests.support import wait_until


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path, sim: Simulator) -> Iterator[kit.GatewayProcess]:
    with kit.gateway_process(tmp_path, kit.upstream(Home(tmp_path / "home"), sim.url)) as made:
        yield made


@pytest.fixture
def cold(tmp_path: Path, sim: Simulator) -> Iterator[kit.GatewayProcess]:
    """As a person starts it."""
    with kit.gateway_process(tmp_path, kit.upstream(Home(tmp_path / "home"), sim.url), cold=True) as made:
        yield made


def ask(gate: kit.GatewayProcess, token: str) -> kit.Answer:
    async def asked() -> kit.Answer:
        async with kit.client(gate.port) as client:
            return await client.post("/v1/messages", kit.messages(), token)

    return asyncio.run(asked())


def test_killed_amid_twenty_streams_it_comes_back_where_it_was(gate: kit.GatewayProcess, sim: Simulator) -> None:  # N15
    gate.start()
    port = gate.port
    tokens = [gate.crew.agent(f"run/{number}") for number in range(20)]

    async def twenty() -> list[kit.Answer | BaseException]:
        async with kit.client(port) as client:
            sim.faults(then="silence", after=3)
            streams = [asyncio.create_task(client.post("/v1/messages", kit.messages(max_tokens=50), token)) for token in tokens]
            await kit.until(lambda: sim.stats()["streams"] == 20, "all streams to run")
            await kit.until(lambda: all(row["seen_input"] for row in kit.rows(gate.home)), "what is seen to be written down", 60.0)
            gate.kill()
            return await asyncio.gather(*streams, return_exceptions=True)

    answers = asyncio.run(twenty())
    assert all(isinstance(answer, BaseException) or answer.cut for answer in answers), "no client takes half an answer for a whole one"
    opened = kit.rows(gate.home)
    assert len(opened) == 20
    assert {row["end"] for row in opened} == {None}
    sim.clear()
    began = time.monotonic()
    gate.start()
    took = time.monotonic() - began
    assert gate.port == port
    found = kit.rows(gate.home)
    assert {(row["end"], row["estimated"]) for row in found} == {("crashed", 1)}
    said = sim.tally().used["input"] / 20
    assert {(row["input"], row["output"], row["bound_output"]) for row in found} == {(said, 50, 50)}, "the input is what the provider said"
    assert ask(gate, tokens[7]).status == 200, "the tokens are those of before"
    print(f"ready again after {took:.2f} s")


def counted(gate: kit.GatewayProcess) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every counter that the page shows."""
    text = pages.fetch(gate.home, pages.METRICS).decode()
    families = [family for family in text_string_to_metric_families(text) if family.type in ("counter", "histogram")]
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def test_no_counter_goes_back_when_it_is_killed_and_every_request_is_counted_once(gate: kit.GatewayProcess, sim: Simulator) -> None:
    gate.start()
    first, second = (gate.crew.agent(f"run/{name}") for name in ("a", "b"))
    for token in (first, second, first):
        assert ask(gate, token).status == 200
    before = counted(gate)
    assert ask(gate, second).status == 200  # nobody scrapes any more, and its last milliseconds may be charged by an estimate
    gate.kill()
    gate.start()
    rows, found = kit.rows(gate.home), counted(gate)
    assert not {name: value for name, value in before.items() if found.get(name, 0.0) < value}
    of = {labels: value for (name, labels), value in found.items() if name == "nightcrew_llm_requests_total"}
    assert sum(of.values()) == len(rows) == 4 and {dict(labels)["agent"] for labels in of} == {"a", "b"}
    tokens = {labels: value for (name, labels), value in found.items() if name == "nightcrew_llm_tokens_total"}
    assert sum(tokens.values()) == sum(row[kind] for row in rows for kind in ("input", "output", "cache_read", "cache_write"))


CREW_PRICES = '[prices."claude-opus-4-8"]\ninput = 5.0\noutput = 25.0\n'
TURNS = 12


def test_killed_twice_under_four_agents_with_a_cost_cap_they_finish_and_pay_what_the_provider_counted(tmp_path: Path) -> None:  # T10
    """Each turn costs about $0.016, and can cost $0.24 by its size and `max_tokens`: charged so, the open ones would use up the caps."""
    wide = Limits(rpm=100_000, itpm=50e6, otpm=5e6)
    with Simulator(limits=wide, latency_s=0.05, tokens_per_s=300) as sim:
        settings = CREW_PRICES + kit.upstream(Home(tmp_path / "home"), sim.url)
        with kit.gateway_process(tmp_path, settings) as gate:
            gate.start()
            tokens = [gate.crew.agent(f"run/{number}", cost_max=0.55) for number in range(4)]
            finished = asyncio.run(_killed_twice(gate, sim, tokens))
            assert finished == [[200] * TURNS] * 4
            gate.stop()
            rows = kit.rows(gate.home)
            used = sim.tally().used
    crashed = [row for row in rows if row["end"] == "crashed"]
    charged, own = sum(row["cost_usd"] for row in rows), (5 * used["input"] + 25 * used["output"]) / 1e6
    print(f"{len(crashed)} open at the kills, charged ${charged:.3f}, by the provider's own count ${own:.3f}")
    assert len(crashed) >= 4
    assert {row["estimated"] for row in crashed} == {1} and all(row["bound_usd"] > 10 * row["cost_usd"] for row in crashed)
    assert all(row["flags"] == "told_by_retry" for row in crashed), "each was sent again and answered"
    assert charged == pytest.approx(own, rel=0.2)


async def _killed_twice(gate: kit.GatewayProcess, sim: Simulator, tokens: list[str]) -> list[list[int]]:
    done: list[list[int]] = [[] for _ in tokens]
    port = gate.port

    async def agent(number: int) -> None:
        async with kit.client(port) as client:
            for turn in range(TURNS):
                body = kit.messages(f"agent {number}, turn {turn}: " + "some words of a prompt " * 350, max_tokens=8000)
                while True:  # as clients do, with the same body
                    with contextlib.suppress(aiohttp.ClientError, OSError):
                        answer = await client.post("/v1/messages", body, tokens[number])
                        if not answer.cut and answer.status != 503:
                            break
                    await asyncio.sleep(0.05)
                done[number].append(answer.status)

    agents = [asyncio.create_task(agent(number)) for number in range(len(tokens))]
    for served in (12, 28):
        await kit.until(lambda: sum(map(len, done)) >= served and sim.stats()["streams"] >= 3, f"{served} turns")  # noqa: B023
        gate.kill()
        await asyncio.to_thread(gate.start)
    await asyncio.gather(*agents)
    return done


def test_its_key_is_nowhere_but_in_itself(gate: kit.GatewayProcess, sim: Simulator) -> None:  # invariant 9
    canary = "sk-ant-canary-in-the-environment-0123456789"
    gate.start(env={"ANTHROPIC_API_KEY": canary, "HTTPS_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"})
    token = gate.crew.agent()
    assert ask(gate, token).status == 200, "and the proxy was not used"
    sim.faults(status=401, message=f"the key {kit.KEY} is revoked", times=2)
    assert ask(gate, token).status == 503
    shown = pages.fetch(gate.home, pages.STATUS) + pages.fetch(gate.home, pages.METRICS)
    process = Path(f"/proc/{gate.pid}")
    seen = [process.joinpath("cmdline").read_bytes(), shown, gate.output().encode()]
    with contextlib.suppress(PermissionError):  # only root can look at all
        seen.append(process.joinpath("environ").read_bytes())
        assert os.geteuid() == 0
    gate.stop()
    kept = {path: path.read_bytes() for path in gate.home.root.rglob("*") if path.is_file()}
    for secret in (kit.KEY, canary, token, gate.crew.admin["Authorization"].removeprefix("Bearer ")):
        assert not [text for text in seen if secret.encode() in text]
        assert [path.name for path, text in kept.items() if secret.encode() in text] == (["sim.key"] if secret == kit.KEY else [])


def test_it_leaves_no_core_and_opens_nothing_to_others(cold: kit.GatewayProcess) -> None:
    cold.start()
    limits = Path(f"/proc/{cold.pid}/limits").read_text()
    (core,) = [line.split() for line in limits.splitlines() if line.startswith("Max core")]
    assert core[4:6] == ["0", "0"]
    assert Path(f"/proc/{cold.pid}/environ").stat().st_uid == 0, "a process that can be looked into has its own files in /proc"
    for path in (
        cold.home.gateway_log,
        cold.home.gateway_account,
        cold.home.gateway_record,
        cold.home.gateway_lock,
        cold.home.gateway_socket,
    ):
        assert path.stat().st_mode & 0o077 == 0, path
    with subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-c",
            "from supervisor.gateway.lifecycle import harden\nimport ctypes\nharden()\nprint(ctypes.CDLL(None).prctl(3,0,0,0,0))",
        ],
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read().strip() == b"0", "PR_GET_DUMPABLE"


def test_it_listens_on_this_machine_alone(gate: kit.GatewayProcess) -> None:  # X04
    gate.start()
    everywhere = [one for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    ours = [tuple(one.laddr) for one in everywhere if one.pid == gate.pid or tuple(one.laddr)[1:] == (gate.port,)]
    assert ours == [("127.0.0.1", gate.port)]
    gate.stop()
    gate.config.write_text('[gateway]\nhost = "0.0.0.0"\n')
    process = gate.start(wait=False)
    assert process.wait(30) == 3
    assert "host" in gate.output(), "there is no key for another address"


def test_there_is_one_for_each_home(gate: kit.GatewayProcess) -> None:
    first = gate.start()
    argv = [sys.executable, "-I", "-m", "supervisor.gateway", "--home", str(gate.home.root), "--config", str(gate.config)]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 6
    assert f"pid {first.pid}" in second.stderr
    assert pages.ask(gate.home, pages.PING)["pid"] == first.pid


def test_a_port_that_another_process_has_is_refused_by_its_pid(gate: kit.GatewayProcess) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        gate.config.write_text(f"[gateway]\nport = {port}\n{gate.config.read_text()}")
        assert gate.start(wait=False).wait(60) == 6
    assert f"127.0.0.1:{port}: pid {os.getpid()} has it" in gate.output()
    gate.start()
    assert gate.port == port


def test_a_stop_lets_streams_end_and_takes_nothing_new(gate: kit.GatewayProcess, sim: Simulator) -> None:
    gate.start()
    port, tokens = gate.port, [gate.crew.agent("run/a"), gate.crew.agent("run/b")]
    sim.faults(api="anthropic", hold="gate", times=1)

    async def stopped() -> tuple[kit.Answer, kit.Answer]:
        async with kit.client(port) as client:
            for token in tokens:  # a connection of its own that is kept alive, so that it can still ask
                assert (await client.post("/v1/messages/count_tokens", kit.messages(stream=False), token)).status == 200
            streaming = asyncio.create_task(client.post("/v1/messages", kit.messages(), tokens[0]))
            await asyncio.to_thread(sim.wait_held, "gate")
            os.kill(gate.pid, signal.SIGTERM)
            await kit.until(lambda: not gate.home.gateway_socket.exists(), "it to begin to stop")
            try:
                new = await client.post("/v1/messages", kit.messages(), tokens[1])
            except OSError:
                new = kit.Answer(503, {"Retry-After": "1"}, b"")  # nobody listens any more, and the client will try again
            sim.release("gate")
            return await streaming, new

    streamed, new = asyncio.run(stopped())
    assert streamed.status == 200
    assert not streamed.cut
    assert (new.status, int(new.headers["Retry-After"]) <= 60) == (503, True)
    assert gate.stop() == 0
    assert [row["end"] for row in kit.rows(gate.home)] == ["served"]


def test_asked_again_and_again_to_stop_it_ends_well(cold: kit.GatewayProcess) -> None:
    process = cold.start()
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
    assert cold.stop() == 0


def test_the_record_says_who_it_is(gate: kit.GatewayProcess) -> None:
    gate.start()
    shape = json.loads(gate.home.gateway_record.read_text())
    assert shape["pid"] == gate.pid
    assert shape["upstreams"] == [{"name": "sim", "api": "anthropic"}]
    assert set(shape) == {"schema", "pid", "ticks", "boot_id", "port", "started", "version", "log_format", "upstreams"}
    assert shape["ticks"] == int(Path(f"/proc/{gate.pid}/stat").read_text().rpartition(")")[2].split()[19])
    assert pages.ask(gate.home, pages.PING)["port"] == shape["port"]
    assert pages.ask(gate.home, pages.RELOAD, post=True, timeout_s=pages.RELOAD_S) == {"reloaded": True}
    assert pages.ask(gate.home, pages.STOP, post=True) == {"stopping": True}
    wait_until(lambda: not psutil.pid_exists(gate.pid) or psutil.Process(gate.pid).status() == psutil.STATUS_ZOMBIE, "it to end")
    assert gate.stop() == 0
    assert lifecycle.kept_port(gate.home) == shape["port"], "the next one takes it again"
