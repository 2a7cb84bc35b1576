"""`nightcrew bench gateway`: it measures real requests, and a request that failed is never a figure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench import gateway as measure
from nightcrew.plugins.bench import gateway_servers as servers
from nightcrew.plugins.bench.gateway import Options
from supervisor.host.paths import Home
from supervisor.kernel.errors import ToolFailed

SMALL = Options(requests=100, clients=5, singles=20, rounds=1, peer_requests=10, turn=100, decisions=1000)


def test_a_small_run_has_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "program", lambda: None)
    said: list[str] = []
    report = crews.report(measure, SMALL, tmp_path, said.append)["gateway"]
    assert report["litellm"] is None
    assert any("not measured" in line for line in said)
    for proxy in ("nightcrew", "bare"):
        assert report[proxy]["requests"] == 100
        assert all(report[proxy][key] > 0 for key in ("cpu_ms_per_request", "requests_per_s", "rss_mb_start", "rss_mb_end"))
    assert report["decisions_per_s"] > 0
    assert report["nightcrew"]["cpu_ratio_to_bare"] > 1, "it does more than the proxy that does nothing"
    assert not list(tmp_path.iterdir()), "nothing stays"
    assert "aim" in measure.table({"gateway": report})


@pytest.mark.soak
def test_memory_is_flat_over_100_000_requests(tmp_path: Path) -> None:
    """Battery L04: none of them fails, or `measure.run_load` raises."""
    home = Home(tmp_path / "home")
    tokens = measure.agents(home, 50)
    with measure.own("provider") as provider, measure.gateway(home, f"http://127.0.0.1:{provider.port}") as server:
        requests = [measure.request(server.port, {"authorization": f"Bearer {token}"}, measure.body()) for token in tokens]
        asyncio.run(measure.run_load(server.port, requests, 400))
        before = server.rss_mb()
        asyncio.run(measure.run_load(server.port, requests, 1600))
        print(f"{before:.1f} MB after 20,000 requests, {server.rss_mb():.1f} MB after 100,000")
        assert server.rss_mb() < before + 10


def test_an_answer_that_is_no_200_ends_the_measurement(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    measure.agents(home, 1)
    with measure.own("provider") as provider, measure.gateway(home, f"http://127.0.0.1:{provider.port}") as server:
        stranger = measure.request(server.port, {"authorization": "Bearer nobody"}, measure.body(1000))
        with pytest.raises(ToolFailed, match="401"):
            asyncio.run(measure.run_load(server.port, [stranger], 1))


def test_a_connection_that_ends_early_ends_the_measurement() -> None:
    async def cut() -> None:
        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(servers.answer()[:200])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(half, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await measure.run_load(port, [measure.request(port, {}, b"{}")], 1)

    with pytest.raises(ToolFailed, match="closed"):
        asyncio.run(cut())


def test_the_providers_answer_is_one_stream_of_30_events() -> None:
    assert servers.answer().count(b"event: ") == servers.EVENTS


def test_the_request_is_as_large_as_claude_codes_and_is_json() -> None:
    import json

    assert abs(len(measure.body()) - measure.BODY_BYTES) < 500
    assert json.loads(measure.body())["max_tokens"] == 64000
