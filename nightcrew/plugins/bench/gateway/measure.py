"""`nightcrew bench gateway`: what the gateway adds to a request, and what a crew gets of a limit."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from nightcrew.plugins.bench.crews import busy_s, private_place
from nightcrew.plugins.bench.figures import Aim, milli, missed, of_learning, quantile, rows
from nightcrew.plugins.bench.gateway import load
from nightcrew.plugins.bench.gateway.load import Load
from nightcrew.plugins.sim.account import tokens_of
from nightcrew.plugins.sim.child import Simulator
from supervisor.gateway import status_client
from supervisor.gateway.admission.events import Arrived, Ended
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import Agent, Api, End, GatewaySettings, LaneKey, Limits, Upstream, Usage
from supervisor.host import files, secrets
from supervisor.host.paths import Home
from supervisor.kernel import tokens
from supervisor.kernel.decision import MarkRunning, SetState, Start
from supervisor.kernel.errors import NightcrewError, ToolFailed, UsageError
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import TaskClass, TaskState
from supervisor.server import gateway_process
from supervisor.store.ledger import Ledger

# Workspace
# ---------
# A state directory with running attempts in its ledger, and the processes of one measurement.


WORKSPACE_START_S = 60.0
STOP_S = 15.0
RUN = "0101-bench"


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens."""

    process: psutil.Popen
    port: int

    def cpu_s(self) -> float:
        """User and system time so far."""
        return busy_s(self.process)

    def rss_mb(self) -> float:
        """Resident memory, in 10^6 bytes, of it and whatever it started."""
        return sum(one.memory_info().rss for one in [self.process, *self.process.children(recursive=True)]) / 1e6


def agents(home: Home, count: int) -> list[str]:
    """Tokens of `count` attempts that the ledger calls running."""
    files.private_dir(home.root)
    tasks = tuple(TaskSpec(f"a{number}", f"agent {number}", "shell", ("true",)) for number in range(count))
    submission = Submission("bench", "p", "/nowhere", "/nowhere/.git", "0" * 40, RunSpec("bench", tasks), {})
    with contextlib.closing(Ledger(home.ledger, time.time)) as ledger:
        ledger.submit(submission, RUN)
        names = [f"{RUN}/a{number}" for number in range(count)]
        ledger.commit([SetState(name, TaskState.READY, "") for name in names])
        ledger.commit([Start(name, 1, "") for name in names])
        ledger.commit([MarkRunning(name, 1) for name in names])
    secret = secrets.own(home.secret)
    return [tokens.derive(secret, name, 1) for name in names]


@contextlib.contextmanager
def own(name: str, *options: str) -> Iterator[Server]:
    """A server of this package: `upstream`, the provider, or `bare_proxy`, the proxy that does nothing else, before the url given."""
    with running([sys.executable, "-I", "-m", f"nightcrew.plugins.bench.gateway.{name}", *options], dict(os.environ)) as process:
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise ToolFailed("a server of the benchmark did not start", on=name, why=repr(line))
        yield Server(process, int(line))


UNLIMITED = "itpm = 1e12\notpm = 1e12\nrpm = 1e9\nlearn = false"
"""Lines of an upstream's settings: limits that never bind."""


@contextlib.contextmanager
def gateway(home: Home, url: str, env: Mapping[str, str], *, limits: str = UNLIMITED) -> Iterator[Server]:
    """The gateway before a provider at `url`, with the account and a price table. `limits`: lines of the upstream's settings."""
    from supervisor.server import prices

    config = home.root / "config.toml"
    config.write_text(f'[upstream.bench]\napi = "anthropic"\nurl = "{url}"\n{limits}\n', encoding="utf-8")
    secrets.store(home.keys / "bench.key", "sk-bench")
    prices.refresh(home.prices)
    argv = [sys.executable, "-I", "-m", "supervisor.gateway", "--home", str(home.root), "--config", str(config)]
    with running(argv, {**os.environ, **env}) as process:
        yield Server(process, _port(home, process))


def _port(home: Home, process: psutil.Popen) -> int:
    deadline = time.monotonic() + WORKSPACE_START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = gateway_process.running(home)
        if found is not None and found.identity.pid == process.pid:
            return found.port
        time.sleep(0.02)
    raise ToolFailed("the gateway did not start", on=str(home.gateway_log), why=gateway_process.last_words(home) or "it said nothing")


@contextlib.contextmanager
def running(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool = False) -> Iterator[psutil.Popen]:
    """A process for as long as the block lasts, with whatever it started. `quiet`: nobody reads what it says."""
    said = subprocess.DEVNULL if quiet else subprocess.PIPE
    process = psutil.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL if quiet else None)
    children: list[psutil.Process] = []
    try:
        yield process
        children = process.children(recursive=True)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        if process.stdout is not None:
            process.stdout.close()


def pin(server: Server | None, core: int) -> None:
    """Keep a process (None: this one) on one core, where there are two and the system can."""
    process = server.process if server is not None else psutil.Process()
    if hasattr(process, "cpu_affinity") and (psutil.cpu_count() or 1) > 1:
        process.cpu_affinity([core])


# Litellm
# -------
# LiteLLM's proxy, from an environment of its own (`make bench-peers` makes it): the one peer that can stand at the same place.


KEY = "sk-nightcrew-bench-0123456789abcdef"
"""LiteLLM refuses to start with a weak master key."""
LITELLM_START_S = 180.0


def program() -> Path | None:
    """LiteLLM's command, when `make bench-peers` has installed it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(base) / "nightcrew" / "peers" / "litellm" / "bin" / "litellm"
    return found if found.exists() else None


@contextlib.contextmanager
def litellm(command: Path, folder: Path, url: str) -> Iterator[Server]:
    """The proxy with one worker before a provider at `url`, ready to serve. Raises ToolFailed when it does not come up."""
    port = _free_port()
    model = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "sk-bench"}
    shape = {"model_list": [{"model_name": "claude-sonnet-4-5", "litellm_params": model}], "general_settings": {"master_key": KEY}}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps(shape))  # JSON is YAML
    argv = [str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with running(argv, env, quiet=True) as process:
        deadline = time.monotonic() + LITELLM_START_S
        while not _answers(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise ToolFailed("LiteLLM did not come up", on=str(command), why=f"in {LITELLM_START_S:.0f} s")
            time.sleep(0.2)
        yield Server(process, port)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health/liveliness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# Measure
# -------
# What is run in which order. Everything that is compared is run in turns in one go, since machines are noisy.


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
        command = program()
        say("LiteLLM" if command else "LiteLLM is not installed (make bench-peers): not measured")
        theirs = _litellm(command, options, root) if command else None
    report: dict[str, Any] = {
        "gateway": {"nightcrew": ours, "bare": floor, "litellm": theirs, "decisions_per_s": ours.pop("decisions_per_s")}
    }
    return report | {"load_average": psutil.getloadavg()[0], "requests": options.requests, "clients": options.clients}


def _gateway(options: Options, root: Path) -> dict[str, Any]:
    home = Home(root / "home")
    secrets = agents(home, options.clients)
    with own("upstream") as provider, gateway(home, f"http://127.0.0.1:{provider.port}", {}) as server:
        pin(provider, 1)
        pin(server, 0)
        return _figures(server, provider, [{"authorization": f"Bearer {secret}"} for secret in secrets], options, options.requests)


def _bare(options: Options) -> dict[str, Any]:
    with own("upstream") as provider, own("bare_proxy", f"http://127.0.0.1:{provider.port}") as server:
        pin(provider, 1)
        pin(server, 0)
        total = min(options.requests, 10_000)
        return _figures(server, provider, [{"authorization": "Bearer nobody"}] * options.clients, options, total)


def _beside_bare(options: Options, root: Path) -> float:
    """How many times the bare proxy's CPU a request takes: both are there, and are asked in turns; the median of the rounds."""
    home = Home(root / "beside")
    secrets = agents(home, options.clients)
    with (
        own("upstream") as provider,
        own("bare_proxy", url := f"http://127.0.0.1:{provider.port}") as bare,
        gateway(home, url, {}) as ours,
    ):
        pin(provider, 1)
        pin(bare, 0)
        pin(ours, 0)
        ratios = [_cpu_s(ours, secrets, options.turn) / _cpu_s(bare, secrets, options.turn) for _ in range(2 * options.rounds + 1)]
    return round(statistics.median(ratios[1:]), 2)


def _cpu_s(server: Server, secrets: Sequence[str], count: int) -> float:
    """What so many requests of these agents take."""
    payload, before = load.body(), server.cpu_s()
    _go(server, [load.request(server.port, {"authorization": f"Bearer {secret}"}, payload) for secret in secrets], count // len(secrets))
    return server.cpu_s() - before


def _litellm(command: Path, options: Options, root: Path) -> dict[str, Any]:
    header = {"x-api-key": KEY, "authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
    with own("upstream") as provider, litellm(command, root, f"http://127.0.0.1:{provider.port}") as server:
        pin(provider, 1)
        pin(server, 0)
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
    (secret,) = agents(home, 1)
    with (
        own("upstream", *options) as provider,
        gateway(home, f"https://localhost:{provider.port}", {"SSL_CERT_FILE": str(cert)}) as server,
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
    agents = [Agent(f"{RUN}/a{number}", 1, TaskClass.NORMAL) for number in range(50)]
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
    pin(None, core)
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


# Scoring
# -------
# What a crew got of a limit, from the provider's own account alone; of the gateway only what it says of outside use is heard. Pure.


REAL_S = (15.0, 60.0)
"""Outside use is what others took in one of these times before, whichever is more: nobody can see it at once, and it comes in bites."""
SPARE = 0.05
"""Part of a bucket that must be left beside the next request before it is called a stall that this one was not sent."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the provider's buckets. `offered`, `drawn` and `outside` are sums since it was made; `/sim/stats` describes them."""

    per_minute: float
    capacity: float
    level: float
    offered: float
    drawn: float
    outside: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the provider and at the gateway."""

    at: float
    """Monotonic seconds."""
    arrived: int
    """Requests that came to the provider so far."""
    running: int
    """Those that it is serving."""
    refused: int
    """Those that it refused because of a limit, so far."""
    buckets: Mapping[str, Bucket]
    """By dimension; empty before the first request."""
    claimed: Mapping[str, float]
    """Outside use a minute, by dimension, as the gateway says; empty when it said nothing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Who asks. There is always a next request, so whoever is not being served is waiting."""

    clients: int
    request: Mapping[str, float]
    """What one request takes on average, by dimension."""
    binding: str
    """The dimension whose limit is short."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run; docs/bench.md says how each is reckoned."""

    upstream_429: int
    utilisation_after_1min: float
    phantom_outside_per_min: float
    phantom_outside_part: float
    phantom_outside_of: str
    stalls_s: float
    stall_at_s: float
    refused_at_s: tuple[float, ...]


def figures(samples: Sequence[Sample], demand: Demand, settle_s: float) -> Figures:
    """The first sample is of the moment at which the clients began. `settle_s`: how long learning may take before use is judged."""
    began = samples[0].at
    settled = next((sample for sample in samples if sample.at >= began + settle_s), samples[-1])
    part, name, per_minute = max(phantoms(samples), default=(0.0, "", 0.0))
    stall_s, stall_at = max(stalls(samples, demand), default=(0.0, began))
    return Figures(
        upstream_429=samples[-1].refused - samples[0].refused,
        utilisation_after_1min=utilisation(settled, samples[-1], demand),
        phantom_outside_per_min=per_minute,
        phantom_outside_part=part,
        phantom_outside_of=name,
        stalls_s=stall_s,
        stall_at_s=stall_at - began,
        refused_at_s=tuple(after.at - began for before, after in pairwise(samples) if after.refused > before.refused),
    )


def utilisation(first: Sample, last: Sample, demand: Demand) -> float:
    """What the crew was charged over what was free for it between two moments.

    Free is all refill, whether the bucket had room for it or not, less what others took, and what the bucket held at the beginning. What it
    holds at the end was free too, but for as much as it held at the beginning, or one request: less than that nobody can use.
    """
    name = demand.binding
    if name not in first.buckets or name not in last.buckets:
        return 0.0
    begin, end = first.buckets[name], last.buckets[name]
    held = max(0.0, begin.level)
    left = min(max(0.0, end.level), max(held, demand.request[name]))
    free = (end.offered - begin.offered) - (end.outside - begin.outside) + held - left
    return (end.drawn - begin.drawn) / free if free > 0 else 0.0


def phantoms(samples: Sequence[Sample]) -> Iterator[tuple[float, str, float]]:
    """(part of the limit, dimension, per minute) by which the gateway claims more outside use than there was, where it does."""
    places = [0] * len(REAL_S)
    for sample in samples:
        for index, window_s in enumerate(REAL_S):
            while samples[places[index] + 1 : places[index] + 2] and samples[places[index] + 1].at <= sample.at - window_s:
                places[index] += 1
        for name, claimed in sample.claimed.items():
            if name in sample.buckets:
                more = claimed - max(_outside_per_minute(samples[place], sample, name) for place in places)
                if more > 0:
                    yield more / sample.buckets[name].per_minute, name, more


def _outside_per_minute(first: Sample, last: Sample, name: str) -> float:
    before = first.buckets[name].outside if name in first.buckets else 0.0
    elapsed = last.at - first.at
    return (last.buckets[name].outside - before) * 60 / elapsed if elapsed > 0 else 0.0


def stalls(samples: Sequence[Sample], demand: Demand) -> Iterator[tuple[float, float]]:
    """(seconds, since when) of each time in which a request waited, the provider could have served it, and nothing came."""
    since: float | None = None
    for before, after in pairwise(samples):
        if after.arrived > before.arrived or not _could_serve(before, demand) or not _could_serve(after, demand):
            since = None
            continue
        since = before.at if since is None else since
        yield after.at - since, since


def _could_serve(sample: Sample, demand: Demand) -> bool:
    """Whether the provider could serve one more request, with `SPARE` left, when all that it serves now has been paid."""
    if sample.running >= demand.clients:
        return False
    return all(_has_room(bucket, demand.request.get(name, 0.0), sample.running, name) for name, bucket in sample.buckets.items())


def _has_room(bucket: Bucket, request: float, running: int, name: str) -> bool:
    still_to_come = running * request if name == "output" else 0.0  # input is charged at arrival, output as it is produced
    return bucket.level - still_to_come >= min(bucket.capacity, request + SPARE * bucket.capacity)


# Learned limits
# --------------
# How the gateway learns limits that nobody told it: the real one, on real sockets, before a simulated provider that keeps them.


BODY_BYTES = 50_000
OUTPUT_MEAN = 200.0
TOKENS_PER_S = 80.0
LOOK_S = 0.25
"""Between two looks at the provider: so exact are the figures of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who asks for what, and how the provider limits it. Seconds of a full run; parts are of the run's length."""

    about: str
    agents: int
    limits: Limits
    binding: str
    burst_s: float = 60.0
    head_s: float = 1.5
    steal: float = 0.0
    steal_from: float = 0.0
    """Part of the run after which others begin."""
    remembered: float = 1.0
    """The gateway remembers limits so many times as high, of a run before this one."""
    changes: tuple[tuple[float, float], ...] = ()
    """(part of the run, factor by which all limits change then)."""
    most_429: int = 0
    """Aim. One where the limit changes or others come: until a refusal or a late head says so, nobody can know of it."""


TIER = Limits(rpm=1000, itpm=450_000, otpm=90_000)
SCENARIOS: Mapping[str, Scenario] = {
    "cold_50k": Scenario(about="16 agents, 50,000 ITPM", agents=16, limits=Limits(1000, 50_000, 8_000), binding="input"),
    "cold_450k": Scenario(about="10 agents, 450,000 ITPM", agents=10, limits=TIER, binding="input"),
    "rpm_50": Scenario(about="15 agents, 50 RPM", agents=15, limits=Limits(50, 2_000_000, 400_000), binding="requests"),
    "burst_12s": Scenario(about="16 agents, 450,000 ITPM, a bucket of 12 s", agents=16, limits=TIER, binding="input", burst_s=12.0),
    "outside_40": Scenario(
        about="16 agents, 450,000 ITPM, others take 40 % after a third",
        agents=16,
        limits=TIER,
        binding="input",
        steal=0.4,
        steal_from=1 / 3,
        most_429=1,
    ),
    "changed": Scenario(
        about="16 agents, 100,000 ITPM, remembered as twice that; halved, then doubled again",
        agents=16,
        limits=Limits(1000, 100_000, 20_000),
        binding="input",
        remembered=2.0,
        changes=((0.5, 0.5), (0.75, 2.0)),
        most_429=1,
    ),
}


@dataclass(frozen=True, slots=True)
class LearnedLimitsOptions:
    """How long each scenario runs, and from when on its use is judged."""

    seconds: float = 150.0
    settle_s: float = 60.0
    seed: int = 1


QUICK_S, QUICK_SETTLE_S = 50.0, 20.0


def measure_learned_limits(
    options: LearnedLimitsOptions, names: Collection[str], under: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """The report of `nightcrew bench gateway --learned`, of the scenarios `names` or, when there are none, of all.

    Raises UsageError for a name that no scenario has, ToolFailed when a process did not start or the provider was never asked.
    """
    if unknown := set(names) - SCENARIOS.keys():
        raise UsageError("no such scenario", on=", ".join(sorted(unknown)), why=f"there are {', '.join(SCENARIOS)}")
    found = {}
    for name in [name for name in SCENARIOS if not names or name in names]:
        say(f"{name}: {SCENARIOS[name].about}; {options.seconds:g} s, seed {options.seed}")
        with private_place(under) as root:
            found[name] = run(SCENARIOS[name], options, root)
    return {"learned": found, **asdict(options), "load_average": psutil.getloadavg()[0]}


def run(scenario: Scenario, options: LearnedLimitsOptions, root: Path) -> dict[str, Any]:
    """One scenario, with a provider, a gateway and an account of its own."""
    home = Home(root / "home")
    secrets = agents(home, scenario.agents)
    payload = load.body(BODY_BYTES)
    with _provider(scenario, options) as provider:
        url = provider.url
        if scenario.remembered != 1:
            _remember(home, url, secrets[0], payload, scenario.remembered)
        with gateway(home, url, {}, limits="") as server:
            samples, tally = asyncio.run(_watch(scenario, options, home, url, server.port, secrets, payload))
    if not samples[-1].buckets:
        raise ToolFailed("the provider was never asked", on=scenario.about)
    request = {"requests": 1.0, "input": float(tokens_of(len(payload))), "output": OUTPUT_MEAN}
    found = figures(samples, Demand(scenario.agents, request, scenario.binding), options.settle_s)
    return {**_rounded(found), **asdict(tally), "missed": missed(aims_of(scenario), asdict(found))}


def _provider(scenario: Scenario, options: LearnedLimitsOptions) -> Simulator:
    return Simulator(
        limits=scenario.limits,
        burst_s=scenario.burst_s,
        head_s=scenario.head_s,
        steal=scenario.steal,
        steal_from_s=scenario.steal_from * options.seconds,
        tokens_per_s=TOKENS_PER_S,
        output_mean=OUTPUT_MEAN,
        seed=options.seed,
        keep_last=0,
    )


def _remember(home: Home, url: str, secret: str, payload: bytes, factor: float) -> None:
    """A gateway before this one, which learned another limit."""

    async def ask(port: int) -> None:
        async with aiohttp.ClientSession() as session:
            await _scale(session, url, factor)
            await load.ask(session, f"http://127.0.0.1:{port}", secret, payload, load.Tally())
            await _scale(session, url, 1 / factor)

    with gateway(home, url, {}, limits="") as server:
        asyncio.run(ask(server.port))


async def _scale(session: aiohttp.ClientSession, url: str, factor: float) -> None:
    async with session.post(f"{url}/sim/limits", json={"times": factor}) as answer:
        answer.raise_for_status()


async def _watch(
    scenario: Scenario, options: LearnedLimitsOptions, home: Home, url: str, port: int, secrets: list[str], payload: bytes
) -> tuple[list[Sample], load.Tally]:
    changes = [(part * options.seconds, factor) for part, factor in scenario.changes]
    async with aiohttp.ClientSession() as session:
        samples = [await _look(session, url, home)]
        async with load.asking(f"http://127.0.0.1:{port}", secrets, payload) as tally:
            began = time.monotonic()
            while (gone := time.monotonic() - began) < options.seconds:
                if changes and gone >= changes[0][0]:
                    await _scale(session, url, changes.pop(0)[1])
                await asyncio.sleep(LOOK_S)
                samples.append(await _look(session, url, home))
    return samples, tally


async def _look(session: aiohttp.ClientSession, url: str, home: Home) -> Sample:
    claimed = await asyncio.to_thread(_claimed, home)
    async with session.get(f"{url}/sim/stats") as answer:
        return sample(await answer.json(), claimed)


def _claimed(home: Home) -> dict[str, float]:
    """By dimension, the most that any pool says. A gateway that is too busy to answer says nothing."""
    try:
        shape = status_client.ask(home, status_client.NOW)
    except NightcrewError:
        return {}
    claims: dict[str, float] = {}
    for pool in shape["pools"]:
        for dimension in pool["dimensions"]:
            claims[dimension["name"]] = max(dimension["outside_per_minute"], claims.get(dimension["name"], 0.0))
    return claims


def sample(stats: Mapping[str, Any], claimed: Mapping[str, float]) -> Sample:
    """What `/sim/stats` says, where one key asks for one class of models."""
    (tally,) = stats["tallies"] or [{"asked": 0, "answered": 0, "cancelled": 0, "cut": 0, "refused": {}}]
    refused = tally["refused"]
    ended = tally["answered"] + tally["cancelled"] + tally["cut"] + sum(refused.values())
    buckets = {name: Bucket(**told) for account in stats["accounts"] for name, told in account["buckets"].items()}
    limited = sum(count for why, count in refused.items() if why.startswith("limit:"))
    return Sample(stats["at"], tally["asked"], tally["asked"] - ended, limited, buckets, claimed)


# The report -----------------------------------------------------------------------------------------------------------------------


def aims_of(scenario: Scenario) -> tuple[Aim, ...]:
    """What we want of each figure."""
    return of_learning(scenario.most_429, phantom="phantom_outside_part")


def table_learned_limits(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'':14}{'429':>10}{'use':>10}{'phantom':>10}{'stall s':>10}{'answers':>10}  aims: 429 none (1 where the limit changes),"]
    lines[0] += " use >= 0.95, phantom <= 2 % of the limit, no stall > 5 s"
    for name, found in report["learned"].items():
        shown = (
            found["upstream_429"],
            f"{found['utilisation_after_1min']:.3f}",
            f"{found['phantom_outside_part']:.1%}",
            f"{found['stalls_s']:.1f}",
            found["answered"],
        )
        wrong = f"  MISSED: {', '.join(found['missed'])}" if found["missed"] else "  met"
        lines.append(f"{name:14}" + "".join(f"{value:>10}" for value in shown) + wrong)
    lines.append(f"{report['seconds']:g} s each, use judged after {report['settle_s']:g} s, seed {report['seed']}")
    return "\n".join(lines)


def _rounded(found: Figures) -> dict[str, Any]:
    shape = asdict(found)
    digits = {"utilisation_after_1min": 4, "phantom_outside_part": 4}
    for name, value in shape.items():
        if isinstance(value, float):
            shape[name] = round(value, digits.get(name, 2))
    shape["refused_at_s"] = [round(at, 1) for at in found.refused_at_s]
    return shape
