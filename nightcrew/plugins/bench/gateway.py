"""`nightcrew bench gateway`: what the gateway adds to a request. Everything that is compared is run in turns in one go, since machines are
noisy.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from nightcrew.plugins.bench.crews import MB, Say, cpu_s
from nightcrew.plugins.bench.figures import Aim, median_ms, milli, quantile, rows
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import Agent, Arrived, End, Ended, LaneKey, Usage
from supervisor.host import attempt_tokens, files, secrets
from supervisor.host.paths import Home
from supervisor.kernel.decision import MarkRunning, SetState, Start
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Limits, Upstream
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import TaskClass, TaskState
from supervisor.server import gateway_process
from supervisor.store.ledger import Ledger

BODY_BYTES = 72_600
"""As Claude Code 2.1 sends with its tools and system prompt (measured: 76.6 kB for a first request)."""
_END = b"0\r\n\r\n"
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one round."""

    latencies_s: tuple[float, ...]
    """Of each request, from its first byte out to its last byte in."""
    wall_s: float


def body(size: int = BODY_BYTES) -> bytes:
    """A request of about `size` bytes in the shape of Claude Code's."""
    shape = {"model": "claude-sonnet-4-5", "max_tokens": 64000, "stream": True, "messages": [{"role": "user", "content": "Say something."}]}
    filler = "Use the tools that you have. " * (size // 29)
    return json.dumps({**shape, "system": [{"type": "text", "text": filler}]}).encode()[: -len("}]}")] + b"}]}"


def request(port: int, headers: Mapping[str, str], payload: bytes) -> bytes:
    """The bytes of one POST to `/v1/messages`."""
    lines = [f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}"]
    return "\r\n".join([*lines, *(f"{name}: {text}" for name, text in headers.items())]).encode() + b"\r\n\r\n" + payload


async def run_load(port: int, requests: Sequence[bytes], each: int) -> Load:
    """One connection for each of `requests`, which it sends `each` times. Raises ToolFailed for any answer but a whole 200."""
    callers = [_Caller(text, each) for text in requests]
    loop = asyncio.get_running_loop()
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]  # bound now
    began = time.perf_counter()
    for caller in callers:
        caller.send()
    try:
        async with asyncio.timeout(_PATIENCE_S + each * len(requests) * 0.1):
            await asyncio.gather(*(caller.done for caller in callers))
    except TimeoutError:
        raise ToolFailed("no whole answer came", on=f"port {port}", why="the time was up") from None
    finally:
        for caller in callers:
            caller.close()
    return Load(tuple(taken for caller in callers for taken in caller.latencies), time.perf_counter() - began)


class _Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, text: bytes, times: int) -> None:
        self._text = text
        self._left = times
        self._came = b""
        self._began = 0.0
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ToolFailed("the connection was closed", why=str(exc or self._came[:200])))

    def send(self) -> None:
        self._came = b""
        self._began = time.perf_counter()
        self._transport.write(self._text)

    def data_received(self, data: bytes) -> None:
        # Only the beginning and the end are looked at: the cost of a client must not hide that of the proxy.
        self._came = self._came + data if len(self._came) < 16 else self._came[:16] + data[-8:]
        if not self._came.endswith(_END):
            return
        if not self._came.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(ToolFailed("the answer was no 200", why=self._came[:200].decode("utf-8", "replace")))
            return
        self.latencies.append(time.perf_counter() - self._began)
        self._left -= 1
        if self._left:
            self.send()
        elif not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        if not self.done.done():
            self.done.cancel()
        self._transport.close()


# Servers
# -------
# A state directory with running attempts in its ledger, and the processes of one measurement.


START_S = 60.0
STOP_S = 15.0
RUN = "0101-bench"


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens."""

    process: psutil.Popen
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rss_mb(self) -> float:
        """Resident memory, in 10^6 bytes, of it and whatever it started."""
        return sum(one.memory_info().rss for one in [self.process, *self.process.children(recursive=True)]) / MB


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
    return [attempt_tokens.derive(secret, name, 1) for name in names]


@contextlib.contextmanager
def own(*options: str) -> Iterator[Server]:
    """One of `servers`: `provider`, or `bare`, the proxy that does nothing else, before the url given."""
    with running([sys.executable, "-I", "-m", "nightcrew.plugins.bench.gateway_servers", *options], dict(os.environ)) as process:
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise ToolFailed("a server of the benchmark did not start", on=options[0], why=repr(line))
        yield Server(process, int(line))


UNLIMITED = "itpm = 1e12\notpm = 1e12\nrpm = 1e9\nlearn = false"
"""Lines of an upstream's settings: limits that never bind."""


@contextlib.contextmanager
def gateway(home: Home, url: str, settings: str = "") -> Iterator[Server]:
    """Run the gateway before a provider at `url`, or with other settings, with the account and a price table."""
    from supervisor.server import prices

    config = home.root / "config.toml"
    config.write_text(settings or f'[upstream.bench]\napi = "anthropic"\nurl = "{url}"\n{UNLIMITED}\n', encoding="utf-8")
    secrets.store(home.keys / "bench.key", "sk-bench")
    prices.refresh(home.prices)
    argv = [sys.executable, "-I", "-m", "supervisor.gateway", "--home", str(home.root), "--config", str(config)]
    with running(argv, dict(os.environ)) as process:
        yield Server(process, _port(home, process))


def _port(home: Home, process: psutil.Popen) -> int:
    deadline = time.monotonic() + START_S
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


KEY = "sk-nightcrew-bench-0123456789abcdef"
"""LiteLLM refuses to start with a weak master key."""


def program() -> Path | None:
    """LiteLLM's command, when `make bench-peers` has installed it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(base) / "nightcrew" / "peers" / "litellm" / "bin" / "litellm"
    return found if found.exists() else None


@contextlib.contextmanager
def litellm(command: Path, folder: Path, url: str) -> Iterator[Server]:
    """The proxy with one worker before a provider at `url`, ready to serve. Raises ToolFailed when it does not come up."""
    port = free_port()
    model = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "sk-bench"}
    shape = {"model_list": [{"model_name": "claude-sonnet-4-5", "litellm_params": model}], "general_settings": {"master_key": KEY}}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps(shape))  # JSON is YAML
    argv = [str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with running(argv, env, quiet=True) as process:
        deadline = time.monotonic() + 3 * START_S
        while not _answers(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise ToolFailed("LiteLLM did not come up", on=str(command))
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


def free_port() -> int:
    """Return a port of 127.0.0.1 at which nobody listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises ToolFailed when a request failed or a process did not start."""
    with _on_core(1):
        say(f"the gateway: {options.rounds} x {options.singles} requests of one client, {options.requests} of {options.clients}")
        ours = _gateway(options, root)
        say("a bare aiohttp proxy")
        floor = _bare(options)
        ours["cpu_ratio_to_bare"] = _beside_bare(options, root)
        say("decisions in process")
        decided = round(decisions_per_s(options.decisions))
        command = program()
        say("LiteLLM" if command else "LiteLLM is not installed (make bench-peers): not measured")
        theirs = _litellm(command, options, root) if command else None
    return {"gateway": {"nightcrew": ours, "bare": floor, "litellm": theirs, "decisions_per_s": decided}}


def _gateway(options: Options, root: Path) -> dict[str, Any]:
    home = Home(root / "home")
    headers = [{"authorization": f"Bearer {secret}"} for secret in agents(home, options.clients)]
    with own("provider") as provider, gateway(home, provider.url) as server:
        return _figures(server, provider, headers, options, options.requests)


def _bare(options: Options) -> dict[str, Any]:
    with own("provider") as provider, own("bare", provider.url) as server:
        return _figures(server, provider, [{"authorization": "Bearer nobody"}] * options.clients, options, min(options.requests, 10_000))


def _beside_bare(options: Options, root: Path) -> float:
    """How many times the bare proxy's CPU a request takes: both are there, and are asked in turns; the median of the rounds."""
    home = Home(root / "beside")
    secrets = agents(home, options.clients)
    with (
        own("provider") as provider,
        own("bare", provider.url) as bare,
        gateway(home, provider.url) as ours,
    ):
        pin(provider, 1)
        pin(bare, 0)
        pin(ours, 0)
        ratios = [_cpu_s(ours, secrets, options.turn) / _cpu_s(bare, secrets, options.turn) for _ in range(2 * options.rounds + 1)]
    return round(statistics.median(ratios[1:]), 2)


def _cpu_s(server: Server, secrets: Sequence[str], count: int) -> float:
    """What so many requests of these agents take."""
    payload, before = body(), cpu_s(server.process)
    _go(server, [request(server.port, {"authorization": f"Bearer {secret}"}, payload) for secret in secrets], count // len(secrets))
    return cpu_s(server.process) - before


def _litellm(command: Path, options: Options, root: Path) -> dict[str, Any]:
    header = {"x-api-key": KEY, "authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
    with own("provider") as provider, litellm(command, root, provider.url) as server:
        fewer = Options(options.peer_requests, options.clients, min(options.singles, options.peer_requests // 2), options.rounds)
        return _figures(server, provider, [header] * options.clients, fewer, options.peer_requests)


def _figures(server: Server, provider: Server, headers: Sequence[dict[str, str]], options: Options, total: int) -> dict[str, Any]:
    """Measure one proxy: alone with one client, then with many."""
    pin(provider, 1)
    pin(server, 0)
    payload = body()
    through = [request(server.port, header, payload) for header in headers]
    direct = request(provider.port, {}, payload)
    _go(server, through, WARM)
    added = [_added(server, provider, through[0], direct, options.singles) for _ in range(options.rounds)]
    start, before, each = server.rss_mb(), cpu_s(server.process), max(1, total // len(through))
    came = _go(server, through, each)
    spent = cpu_s(server.process) - before
    return {
        "cpu_ms_per_request": milli(spent / len(came.latencies_s)),
        "added_ms_p50": median_ms(p50 for p50, _ in added),
        "added_ms_p99": median_ms(p99 for _, p99 in added),
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


def _go(server: Server, requests: Sequence[bytes], each: int) -> Load:
    return asyncio.run(run_load(server.port, requests, each))


def decisions_per_s(count: int) -> float:
    """Admission decisions a second in process: each is a request that arrives, is admitted, and is settled, of 50 agents in turn."""
    upstream = Upstream("bench", Api.ANTHROPIC, "http://127.0.0.1", limits=Limits(rpm=1e9, itpm=1e12, otpm=1e12))
    lane = LaneKey(Api.ANTHROPIC, "sonnet-4")
    agents = [Agent(f"{RUN}/a{number}", 1, TaskClass.NORMAL) for number in range(50)]
    traffic = Traffic(GatewaySettings(upstreams=(upstream,)), 0.0)
    events = [
        (
            Arrived(number, agents[number % 50], lane, "claude-sonnet-4-5", ("bench",), BODY_BYTES, 64000),
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


@contextlib.contextmanager
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
    Aim("decisions_per_s", 200_000, at_least=True, name="decisions a second, in process"),
)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    ours, theirs, floor = (report["gateway"][name] for name in ("nightcrew", "litellm", "bare"))
    ours = ours | {"decisions_per_s": report["gateway"]["decisions_per_s"]}
    return "\n".join([f"{'':46}{'nightcrew':>13}{'LiteLLM':>13}{'bare proxy':>13}", *rows(AIMS, ours, theirs, floor)])
