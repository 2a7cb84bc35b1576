"""What is run in which order. Everything that is compared is run in turns in one go, since machines are noisy."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.aims import Aim, rows
from supervisor.bench.figures import milli, quantile
from supervisor.bench.gateway import litellm, load, workspace
from supervisor.bench.gateway.load import Load
from supervisor.bench.gateway.workspace import Server
from supervisor.bench.workspace import private_place
from supervisor.core.errors import ToolFailed
from supervisor.core.gateway.events import Arrived, Ended
from supervisor.core.gateway.settings import GatewaySettings, Limits, Upstream
from supervisor.core.gateway.traffic import Traffic
from supervisor.core.gateway.types import Agent, Api, End, LaneKey, Usage
from supervisor.core.states import TaskClass
from supervisor.host.paths import Home


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    requests: int = 100_000
    """Through the gateway at `clients` connections."""
    clients: int = 50
    singles: int = 1000
    """Of one client, in each round."""
    rounds: int = 5
    peer_requests: int = 1000
    turn: int = 1000
    """Through either proxy in each round in which they take turns."""
    decisions: int = 100_000


QUICK = Options(requests=5000, singles=300, rounds=2, peer_requests=300)
WARM = 10


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report of `nightcrew bench gateway`. Raises ToolFailed when a request failed or a process did not start."""
    with private_place(under) as root, _on_core(1):
        say(f"the gateway: {options.rounds} x {options.singles} requests of one client, {options.requests} of {options.clients}")
        ours = _gateway(options, root)
        ours["pooled_vs_unpooled"] = _pooled(root, options)
        say("a bare aiohttp proxy")
        floor = _bare(options)
        ours["cpu_ratio_to_bare"] = _beside_bare(options, root)
        say("decisions in process")
        ours["decisions_per_s"] = round(decisions_per_s(options.decisions))
        command = litellm.program()
        say("LiteLLM" if command else "LiteLLM is not installed (make bench-peers): not measured")
        theirs = _litellm(command, options, root) if command else None
    report: dict[str, Any] = {
        "gateway": {"nightcrew": ours, "bare": floor, "litellm": theirs, "decisions_per_s": ours.pop("decisions_per_s")}
    }
    return report | {"load_average": psutil.getloadavg()[0], "requests": options.requests, "clients": options.clients}


def _gateway(options: Options, root: Path) -> dict[str, Any]:
    home = Home(root / "home")
    secrets = workspace.agents(home, options.clients)
    with workspace.own("upstream") as provider, workspace.gateway(home, f"http://127.0.0.1:{provider.port}", {}) as server:
        workspace.pin(provider, 1)
        workspace.pin(server, 0)
        return _figures(server, provider, [{"authorization": f"Bearer {secret}"} for secret in secrets], options, options.requests)


def _bare(options: Options) -> dict[str, Any]:
    with workspace.own("upstream") as provider, workspace.own("bare_proxy", f"http://127.0.0.1:{provider.port}") as server:
        workspace.pin(provider, 1)
        workspace.pin(server, 0)
        total = min(options.requests, 10_000)
        return _figures(server, provider, [{"authorization": "Bearer nobody"}] * options.clients, options, total)


def _beside_bare(options: Options, root: Path) -> float:
    """How many times the bare proxy's CPU a request takes: both are there, and are asked in turns; the median of the rounds."""
    home = Home(root / "beside")
    secrets = workspace.agents(home, options.clients)
    with (
        workspace.own("upstream") as provider,
        workspace.own("bare_proxy", url := f"http://127.0.0.1:{provider.port}") as bare,
        workspace.gateway(home, url, {}) as ours,
    ):
        workspace.pin(provider, 1)
        workspace.pin(bare, 0)
        workspace.pin(ours, 0)
        ratios = [_cpu_s(ours, secrets, options.turn) / _cpu_s(bare, secrets, options.turn) for _ in range(2 * options.rounds + 1)]
    return round(statistics.median(ratios[1:]), 2)


def _cpu_s(server: Server, secrets: Sequence[str], count: int) -> float:
    """What so many requests of these agents take."""
    payload, before = load.body(), server.cpu_s()
    _go(server, [load.request(server.port, {"authorization": f"Bearer {secret}"}, payload) for secret in secrets], count // len(secrets))
    return server.cpu_s() - before


def _litellm(command: Path, options: Options, root: Path) -> dict[str, Any]:
    header = {"x-api-key": litellm.KEY, "authorization": f"Bearer {litellm.KEY}", "anthropic-version": "2023-06-01"}
    with workspace.own("upstream") as provider, litellm.litellm(command, root, f"http://127.0.0.1:{provider.port}") as server:
        workspace.pin(provider, 1)
        workspace.pin(server, 0)
        fewer = Options(options.peer_requests, options.clients, min(options.singles, options.peer_requests // 2), options.rounds)
        return _figures(server, provider, [header] * options.clients, fewer, options.peer_requests)


def _figures(server: Server, provider: Server, headers: Sequence[dict[str, str]], options: Options, total: int) -> dict[str, Any]:
    """One proxy: alone with one client, then with many."""
    payload = load.body()
    through = [load.request(server.port, header, payload) for header in headers]
    direct = load.request(provider.port, {}, payload)
    _go(server, through, WARM)
    added = [_added(server, provider, through[0], direct, options.singles) for _ in range(options.rounds)]
    start, before, each = server.rss_mb(), server.cpu_s(), max(1, total // len(through))
    came = _go(server, through, each)
    spent = server.cpu_s() - before
    return {
        "cpu_ms_per_request": milli(spent / len(came.latencies_s)),
        "added_ms_p50": milli(statistics.median(p50 for p50, _ in added)),
        "added_ms_p99": milli(statistics.median(p99 for _, p99 in added)),
        "added_ms_p50_best": milli(min(p50 for p50, _ in added)),
        "added_ms_p99_best": milli(min(p99 for _, p99 in added)),
        "requests_per_s": round(len(came.latencies_s) / came.wall_s, 1),
        "rss_mb_start": round(start, 1),
        "rss_mb_end": round(server.rss_mb(), 1),
        "requests": len(came.latencies_s),
    }


def _added(server: Server, provider: Server, through: bytes, direct: bytes, singles: int) -> tuple[float, float]:
    """Seconds that one client's requests take more through the proxy, p50 and p99, in turns of 50 with the direct way."""
    long: list[float] = []
    short: list[float] = []
    for _ in range(max(1, singles // 50)):
        short += _go(provider, [direct], 50).latencies_s
        long += _go(server, [through], 50).latencies_s
    return statistics.median(long) - statistics.median(short), quantile(long, 0.99) - quantile(short, 0.99)


def _pooled(root: Path, options: Options) -> float | None:
    """How many times longer a request takes when each needs a new TLS connection to the provider; None without `openssl`, which makes
    the certificate."""
    if shutil.which("openssl") is None:
        return None
    cert, key = root / "cert.pem", root / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    made = subprocess.run([*argv, *subject], capture_output=True, check=False)
    if made.returncode != 0:
        raise ToolFailed("openssl made no certificate", why=made.stderr.decode("utf-8", "replace")[-200:])
    count = max(50, options.singles // 2)
    pooled, unpooled = (
        _tls_s(root / name, ("--tls", str(cert), str(key), *extra), cert, count) for name, extra in (("keep", ()), ("close", ("--close",)))
    )
    return round(unpooled / pooled, 2)


def _tls_s(folder: Path, options: Sequence[str], cert: Path, count: int) -> float:
    home = Home(folder)
    (secret,) = workspace.agents(home, 1)
    with (
        workspace.own("upstream", *options) as provider,
        workspace.gateway(home, f"https://localhost:{provider.port}", {"SSL_CERT_FILE": str(cert)}) as server,
    ):
        text = load.request(server.port, {"authorization": f"Bearer {secret}"}, load.body())
        _go(server, [text], WARM)
        return statistics.median(_go(server, [text], count).latencies_s)


def _go(server: Server, requests: Sequence[bytes], each: int) -> Load:
    return asyncio.run(load.run(server.port, requests, each))


def decisions_per_s(count: int) -> float:
    """Admission decisions a second in process: each is a request that arrives, is admitted, and is settled, of 50 agents in turn."""
    upstream = Upstream("bench", Api.ANTHROPIC, "http://127.0.0.1", limits=Limits(rpm=1e9, itpm=1e12, otpm=1e12))
    lane = LaneKey(Api.ANTHROPIC, "sonnet-4")
    agents = [Agent(f"{workspace.RUN}/a{number}", 1, TaskClass.NORMAL) for number in range(50)]
    traffic = Traffic(GatewaySettings(upstreams=(upstream,)), 0.0)
    events = [
        (
            Arrived(number, agents[number % 50], lane, "claude-sonnet-4-5", ("bench",), load.BODY_BYTES, 64000),
            Ended(number, End.SERVED, Usage(18_000, 27)),
        )
        for number in range(count)
    ]
    began = time.perf_counter()
    for number, (arrived, ended) in enumerate(events):
        now = number * 0.001
        traffic.handle(arrived, now)
        traffic.handle(ended, now)
    return count / (time.perf_counter() - began)


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """This process on one core, and where it was before afterwards."""
    process = psutil.Process()
    before = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    workspace.pin(None, core)
    try:
        yield
    finally:
        if before is not None:
            process.cpu_affinity(before)


AIMS = (
    Aim("cpu_ms_per_request", 1.2, name="CPU of a request at 50 clients", unit="ms"),
    Aim("cpu_ratio_to_bare", 2.2, name="the same, in turns with the bare proxy", unit="x"),
    Aim("added_ms_p50", 1.5, name="added to a request of one client, p50", unit="ms"),
    Aim("added_ms_p99", 10, name="added to a request of one client, p99", unit="ms"),
    Aim("rss_mb_end", 60, name="memory after all requests", unit="MB"),
    Aim("requests_per_s", 400, at_least=True, name="requests a second"),
    Aim("rss_mb_start", name="memory before them", unit="MB"),
    Aim("pooled_vs_unpooled", name="a new TLS connection each, against a pool", unit="x"),
    Aim("decisions_per_s", 200_000, at_least=True, name="decisions a second, in process"),
)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    ours, theirs, floor = (report["gateway"][name] for name in ("nightcrew", "litellm", "bare"))
    ours = ours | {"decisions_per_s": report["gateway"]["decisions_per_s"]}
    return "\n".join([f"{'':46}{'nightcrew':>13}{'LiteLLM':>13}{'bare proxy':>13}", *rows(AIMS, ours, theirs, floor)])
