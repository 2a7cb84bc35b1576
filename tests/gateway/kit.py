"""A running gateway for tests: in the test's own loop (`gateway`), or as a process (`GatewayProcess`), with a ledger in which the test
makes agents come and go.

    async with running(SimSettings()) as sim, gateway(tmp_path, upstream(Home(tmp_path / "home"), sim.url)) as gate:
        token = gate.crew.agent("run/a")
        answer = await gate.post("/v1/messages", messages(), token)
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from supervisor.config import user
from supervisor.gateway import lifecycle
from supervisor.gateway.account import schema
from supervisor.gateway.lifecycle import PASSED
from supervisor.gateway.proxy import gateway as listen
from supervisor.gateway.proxy.gateway import Gateway, Place
from supervisor.gateway.proxy.upstreams import Timeouts
from supervisor.host import attempt_tokens, files, secrets
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass
from supervisor.server import prices
from supervisor.store import sqlite
from tests import warm
from tests.support import remove_far_sockets, wait_until

KEY = "sk-ant-canary-0123456789-abcdefghij-provider"
"""The provider's key of every upstream that `upstream` describes; it may appear nowhere but in the gateway and at the simulator."""
QUICK = Timeouts(connect_s=2.0, first_byte_s=20.0, idle_s=20.0)


class Crew:
    """The ledger of a home, with just what the gateway reads of it."""

    def __init__(self, home: Home) -> None:
        files.private_dir(home.root)
        self._home = home
        self.secret = secrets.own(home.secret)
        self._db = sqlite.connect(home.ledger)
        self._db.execute("INSERT OR IGNORE INTO project VALUES ('p', '/r', '/r/.git', 0)")

    def agent(
        self,
        task: str = "run/a",
        *,
        epoch: int = 1,
        task_class: TaskClass = TaskClass.NORMAL,
        weight: float = 1.0,
        tpm_max: int = 0,
        cost_max: float = 0.0,
        night_max: float = 0.0,
        kind: str = "shell",
        project: str = "p",
        **more: Any,
    ) -> str:
        """The token of a running attempt of `task`; `more` are other fields of its TaskSpec. With `night_max` its run is a night with that
        cap."""
        run = task.partition("/")[0]
        self._db.execute("INSERT OR IGNORE INTO project VALUES (?, ?, ?, 0)", (project, f"/{project}", f"/{project}/.git"))
        spec = TaskSpec(task, task, kind, ("true",), task_class=task_class, weight=weight, tpm_max=tpm_max, cost_max=cost_max, **more)
        self._db.execute(
            "INSERT OR IGNORE INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, ?, '', 'HEAD', '', '{}', 0)",
            (run, run, project),
        )
        self._db.execute(
            """INSERT INTO task (id, run, project, name, title, spec, state, epoch, changed) VALUES (?, ?, ?, ?, ?, ?, 'running', ?, 0)
               ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, spec = excluded.spec""",
            (task, run, project, task, task, codec.dumps(spec), epoch),
        )
        if night_max:
            made = "INSERT OR IGNORE INTO night VALUES (?, 0, 600, ?, 0, 'drain', 'open', 0, NULL, '', '', '', '')"
            self._db.execute("UPDATE run SET night = id WHERE id = ?", (run,))
            self._db.execute(made, (run, night_max))
        self._db.execute("INSERT INTO attempt (task, epoch, state, created) VALUES (?, ?, 'running', 0)", (task, epoch))
        return attempt_tokens.derive(self.secret, task, epoch)

    def end(self, task: str) -> None:
        """Its newest attempt has ended."""
        self._db.execute("UPDATE attempt SET state = 'ended' WHERE task = ?", (task,))

    def end_night(self, run: str) -> None:
        """The night has ended."""
        self._db.execute("UPDATE night SET state = 'ended' WHERE run = ?", (run,))

    @property
    def admin(self) -> dict[str, str]:
        """The header that opens the gateway's own pages."""
        return {"Authorization": f"Bearer {attempt_tokens.admin(self.secret)}"}

    def close(self) -> None:
        """Give the ledger back."""
        self._db.close()


def upstream(home: Home, url: str, *, name: str = "sim", api: str = "anthropic", key: str | None = KEY, more: str = "") -> str:
    """A table of the settings for an upstream at `url`, whose key is put where the gateway looks for it."""
    if key is not None and "key" not in more:
        files.private_dir(home.keys)
        files.atomic_write(home.keys / f"{name}.key", key.encode())
    return f'[upstream.{name}]\napi = "{api}"\nurl = "{url}"\n{more}\n'


def know_prices(home: Home) -> None:
    """The price table is there already: otherwise the supervisor has a process of its own write it, which takes a second."""
    files.atomic_write(home.prices, _price_table())


@functools.cache
def _price_table() -> bytes:
    return json.dumps(prices.table(datetime.now(UTC))).encode()


def all_apis(home: Home, url: str, more: str = "") -> str:
    """One upstream for each of the three APIs, all at `url`."""
    return "".join(upstream(home, url, name=api, api=api, more=more) for api in ("anthropic", "openai", "gemini"))


# Requests -------------------------------------------------------------------------------------------------------------------------


def messages(text: str = "hello", *, model: str = "claude-opus-4-8", stream: bool = True, max_tokens: int = 1000, **more: Any) -> bytes:
    """A body for `/v1/messages`."""
    shape = {"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": text}], **more}
    return json.dumps({**shape, "stream": True} if stream else shape).encode()


@dataclass(slots=True)
class Answer:
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False
    """The connection ended before the answer did."""

    @property
    def json(self) -> Any:
        """Of a body that is JSON."""
        return json.loads(self.body)


async def collected(response: aiohttp.ClientResponse) -> Answer:
    """All that comes."""
    body, cut = bytearray(), False
    try:
        async for chunk in response.content.iter_any():
            body += chunk
    except aiohttp.ClientPayloadError:
        cut = True
    return Answer(response.status, response.headers, bytes(body), cut)


@dataclass(slots=True)
class Client:
    """Speaks to a gateway as agents' clients do."""

    port: int
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: bytes, token: str, **headers: str) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A POST whose answer is read by the caller."""
        sent = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {token}",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        return self.session.post(self.url + path, data=body, headers=sent)

    async def post(self, path: str, body: bytes, token: str, **headers: str) -> Answer:
        """A POST and its whole answer."""
        async with self.ask(path, body, token, **headers) as response:
            return await collected(response)

    async def get(self, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET") -> Answer:
        """A request without a body."""
        async with self.session.request(method, self.url + path, headers=headers) as response:
            return await collected(response)


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    """A client without limits of its own."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Client(port, session)


# The account, as it is on disk --------------------------------------------------------------------------------------------------------


def rows(home: Home) -> list[dict[str, Any]]:
    """Every sending, oldest first."""
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return [dict(row) for row in db.execute("SELECT * FROM request ORDER BY id")]


def turned_away(home: Home) -> list[tuple[str, int]]:
    """Whom we answered ourselves, and how."""
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return [(row["agent"], row["status"]) for row in db.execute("SELECT agent, status FROM turned_away ORDER BY rowid")]


async def settled(home: Home, number: int) -> list[dict[str, Any]]:
    """The rows, once there are so many and none is open."""
    found: list[dict[str, Any]] = []

    def done() -> bool:
        found[:] = rows(home)
        return len(found) >= number and all(row["end"] for row in found)

    await until(done, f"{number} settled rows")
    return found


async def until(condition: Any, what: str, timeout_s: float = 60.0) -> None:
    """`wait_until` for a test's loop."""
    import asyncio

    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain for: {what}"
        await asyncio.sleep(0.01)


# In the test's loop ------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Gate(Client):
    """A gateway in the test's loop, and a client of it."""

    gateway: Gateway = field(kw_only=True)
    home: Home = field(kw_only=True)
    crew: Crew = field(kw_only=True)
    config: Path = field(kw_only=True)

    async def status(self) -> dict[str, Any]:
        """The status page."""
        shape: dict[str, Any] = (await self.get("/nightcrew/status", self.crew.admin)).json
        return shape

    def log(self) -> str:
        """All that it said."""
        return self.home.gateway_log.read_text() if self.home.gateway_log.exists() else ""


class StandingClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0
        """Seconds for which the machine was asleep."""

    def wall(self) -> float:
        return 1_700_000_000.0 + self.boottime()

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now + self.slept


@asynccontextmanager
async def gateway(root: Path, settings: str, *, timeouts: Timeouts = QUICK, clock: Clock | None = None) -> AsyncIterator[Gate]:
    """A gateway with these settings (TOML). `root / "home"` is its home: make keys there with `upstream` before."""
    root.mkdir(parents=True, exist_ok=True)
    home = Home(root / "home")
    files.private_dir(home.run_dir)
    config = root / "config.toml"
    config.write_text(settings)
    crew = Crew(home)
    made = Gateway(Place(home, config, clock or SystemClock(), timeouts), user.load_gateway(config, home.keys))
    tcp, unix = listen.on_port(0), listen.on_path(home.gateway_socket)
    port = int(tcp.getsockname()[1])
    await made.start([tcp, unix], port)
    try:
        async with client(port) as asking:
            yield Gate(port, asking.session, gateway=made, home=home, crew=crew, config=config)
    finally:
        await made.close()
        crew.close()
        remove_far_sockets(home)


# As a process ------------------------------------------------------------------------------------------------------------------------


class GatewayProcess:
    """The real thing. Starting it again keeps home, port and settings. `cold` starts a new interpreter each time, as for a person."""

    def __init__(self, root: Path, settings: str, *, cold: bool = False) -> None:
        self._cold = cold
        self.home = Home(root / "home")
        files.private_dir(self.home.root)
        self.config = root / "config.toml"
        self.config.write_text(settings)
        self.crew = Crew(self.home)
        self._output = root / "gateway.out"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Run it; with `wait` until it is ready. With `env` more, which it is not to keep, it starts cold."""
        argv = [sys.executable, "-I", "-m", "supervisor.gateway", "--home", str(self.home.root), "--config", str(self.config)]
        with self._output.open("ab") as output:
            if self._cold or env:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}, cwd=self.home.root
                )
            else:
                passed = {name: os.environ[name] for name in PASSED if name in os.environ}
                process = warm.start_program(argv, self.home.root, passed, output.fileno(), output.fileno())
        self._process = process
        if wait:
            wait_until(
                lambda: (
                    process.poll() is not None
                    or ((found := lifecycle.read_record(self.home)) is not None and found.identity.pid == process.pid)
                ),
                "the gateway to be ready",
            )
            assert process.poll() is None, self.output()
        return process

    @property
    def port(self) -> int:
        """Where the last one listened."""
        return lifecycle.kept_port(self.home)

    @property
    def pid(self) -> int:
        """Of the one that runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As the daemon does; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        return process.wait(30)

    def output(self) -> str:
        """What it printed, and its log."""
        log = self.home.gateway_log
        return self._output.read_text() + (log.read_text() if log.exists() else "")

    def close(self) -> None:
        """End what runs."""
        self._end(signal.SIGKILL)
        self.crew.close()
        remove_far_sockets(self.home)


@contextmanager
def gateway_process(root: Path, settings: str, *, cold: bool = False) -> Iterator[GatewayProcess]:
    """One that is ended with the block, whatever happens. It is not started yet."""
    made = GatewayProcess(root, settings, cold=cold)
    try:
        yield made
    finally:
        made.close()
