"""Start, watch, adopt and stop the engines of the settings, beside the loop.

An engine outlives its supervisor: its record (`Home.engines/NAME.json`) says which process it is, and the next supervisor goes on with it.
The time of `NAME.need` is that of its last use; the gateway sets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from supervisor.contract import Supervisor
from supervisor.features.engines import programs, rules
from supervisor.features.engines.rules import Act, Look
from supervisor.gateway import engines
from supervisor.gateway.lifecycle import ProcessWatch
from supervisor.host import files, model_shapes, processes, untrusted_fs
from supervisor.kernel import codec
from supervisor.kernel.engines import Engine, EngineKind, EngineRecord, EngineState
from supervisor.kernel.errors import ConfigError, NightcrewError, NotFound, Refused, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.names import nearest
from supervisor.server.gateway import Models
from supervisor.server.wakeups import beside

if TYPE_CHECKING:
    from supervisor.server.loop import Loop

LOOK_S, FOLLOW_S = 0.25, 1.0
"""Between two looks at an engine, and at the settings."""
ASK_S, QUESTION_S = 2.0, 3.0
"""Between two questions to an engine that is ready, and how long one waits for its answer."""
START_S, HUNG_S, PAUSE_MAX_S = 900.0, 60.0, 300.0
"""Large weights take minutes to load, and a machine under load minutes to answer. See `ProcessWatch`."""
GRACE_S = 5.0
"""An engine's thread has so long to end its step when the supervisor leaves."""
LOG_MAX = 4 * 2**20
_ANSWER_MAX = 2**20
_TAIL = 16 * 2**10


class EngineWatch:
    """One engine of the settings."""

    def __init__(self, supervisor: Supervisor, engine: Engine) -> None:
        self.engine = engine
        self._home = supervisor.home
        self._clock = supervisor.loop.clock
        self._say = supervisor.alert
        self._turn = threading.Lock()
        self._left = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._watch = ProcessWatch(START_S, HUNG_S, PAUSE_MAX_S)
        self._asked_at = -math.inf
        self.record = engines.read(self._home, engine.name) or EngineRecord(engine.name, EngineState.STOPPED)
        if engines.alive(self._home, self.record) is None:
            self.record = replace(self.record, identity=None)
        else:
            self._watch.started(self._clock.monotonic())
        self._thread = threading.Thread(target=self._run, name=f"engine {engine.name}", daemon=True)

    def begin(self) -> None:
        """Keep it until `leave`."""
        self._thread.start()

    def _run(self) -> None:
        while not self._left.wait(LOOK_S):
            try:
                with self._turn:
                    self.step()
            except (NightcrewError, OSError) as error:  # such as a full disk: nothing is noted, and the next step does it again
                self._died(one_line(str(error)))

    def step(self) -> None:
        """Look at it once, and do what follows. Blocks. Raises HostError, OSError."""
        look = self._look()
        match rules.decide(look):
            case Act.START:
                self._start()
            case Act.STOP:
                self._stop(idle=not look.needed)
            case Act.BURY:
                self._bury()
            case Act.ASK if self.record.state is not EngineState.READY or self._clock.monotonic() - self._asked_at >= ASK_S:
                self._ask()
            case _:
                pass

    def _look(self) -> Look:
        if self._child is not None:
            self._child.poll()
        alive = self.record.identity is not None and processes.alive(self.record.identity)
        try:
            unused_s = self._clock.wall() - engines.need_file(self._home, self.engine.name).stat().st_mtime
        except OSError:
            unused_s = None
        return Look(self.engine, self.record, alive, unused_s, self._clock.monotonic() >= self._watch.may_start_at)

    def _note(self, state: EngineState, why: str = "", *, gone: bool = False, **more: Any) -> None:
        """Write the record. `gone`: without its process and what that said."""
        record = replace(EngineRecord(self.engine.name, state) if gone else self.record, state=state, why=why, **more)
        if record != self.record:
            files.atomic_write(self._home.engines / f"{record.name}.json", codec.dumps(record).encode(), durable=False)
            self.record = record

    # Life and death -------------------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Raises HostError, OSError."""
        engine = self.engine
        folder = files.private_dir(self._home.engines / f"{engine.name}.slots")
        engines.stop(self._home, engine.name, None, 0.0)  # one of a supervisor that was killed before it wrote the record
        port = _free_port()
        argv = programs.command(engine, folder, port)
        tag = engines.tag(self._home, engine.name)
        log = self._home.engines / f"{engine.name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._child = subprocess.Popen(
                argv,
                cwd=self._home.engines,
                env=programs.environment(os.environ, tag),
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
        finally:
            os.close(handle)
        self._watch.started(self._clock.monotonic())
        who = processes.identity(self._child.pid)
        now = self._clock.wall()
        url = f"http://127.0.0.1:{port}"
        self._note(EngineState.STARTING, gone=True, url=url, identity=who, started_at=now, settings=engine.digest)

    def _bury(self) -> None:
        engines.stop(self._home, self.engine.name, None, 0.0)  # what its first process left
        tail = untrusted_fs.read_plain(self._home.engines / f"{self.engine.name}.log", _TAIL, tail=True) or b""
        self._fail(rules.reason(tail.decode("utf-8", "replace"), self._child.returncode if self._child is not None else None))

    def _fail(self, why: str) -> None:
        self._died(why)
        self._note(EngineState.FAILED, why, gone=True)

    def _died(self, why: str) -> None:
        self._watch.died(self._clock.monotonic())
        if self._watch.young_deaths == 2:
            self._say(f"the engine {self.engine.name} does not stay up: {why}")

    def stop(self) -> bool:
        """Stop it until the next request needs it; whether it ran. Raises Refused for one that nightcrew did not start."""
        if self.engine.kind is EngineKind.ADOPTED:
            raise Refused("will not stop", on=self.engine.name, why="it is adopted: whoever started it stops it")
        with self._turn:
            engines.need_file(self._home, self.engine.name).unlink(missing_ok=True)
            ran = self._look().alive
            self._stop(idle=False)
        return ran

    def _stop(self, *, idle: bool) -> None:
        """End it. An idle one gets no more requests before that, and stays when one came meanwhile."""
        before = self.record.state
        self._note(EngineState.STOPPED)
        if idle:
            time.sleep(2 * engines.LOOK_S)
            if self._look().needed:
                self._note(before)
                return
        engines.stop(self._home, self.engine.name, self.record.identity)
        self._watch = ProcessWatch(START_S, HUNG_S, PAUSE_MAX_S)
        self._note(EngineState.STOPPED, gone=True)

    def leave(self) -> None:
        """Watch it no more; its process goes on."""
        self._left.set()
        if self._thread.is_alive():
            self._thread.join(GRACE_S)
        if self._child is not None:
            self._child.returncode = 0  # Popen would warn that it lives

    # Questions ------------------------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        adopted = self.engine.kind is EngineKind.ADOPTED
        asked_at = self._asked_at = self._clock.monotonic()
        url = self.engine.url if adopted else self.record.url
        healthy = _get(url, "/v1/models" if adopted else "/health") is not None
        now = self._clock.monotonic()
        if healthy:
            self._watch.answered(now)
            if self.record.state is not EngineState.READY or self.record.settings != self.engine.digest:
                self._become_ready(url)
            self._bound_log()
        elif adopted:
            self._note(EngineState.FAILED, f"{url} does not answer /v1/models", gone=True)
        elif self._watch.unanswered(asked_at, now):
            engines.stop(self._home, self.engine.name, self.record.identity, 0.0)
            self._fail(f"it did not answer for {duration(START_S if self._watch.starting else HUNG_S)} and was killed")

    def _become_ready(self, url: str) -> None:
        """Write what it says of itself."""
        engine = self.engine
        found = rules.said(*(_get(url, path) for path in ("/props", "/v1/models", "/get_server_info")))
        self._note(
            EngineState.READY,
            url=url,
            slots=found.slots or engine.slots,
            context=found.context or engine.context,
            tools=found.tools is not False,
            settings=engine.digest,
            differences=rules.differences(engine, found),
            kv_bytes=self._kv_bytes(),
        )

    def _kv_bytes(self) -> float:
        """Bytes that one token takes, at the 16 bits a number of llama.cpp; 0 where the file of weights cannot be read here."""
        model = self.engine.model
        package = model.removeprefix("package:")
        file = Path(model).expanduser() if package == model else self._home.engines / f"{package}.gguf"
        try:
            shape = model_shapes.shape(str(file))
        except ConfigError:
            return 0.0
        return 4 * shape["layers"] * shape["kv_heads"] * shape["head_dim"]

    def _bound_log(self) -> None:
        log = self._home.engines / f"{self.engine.name}.log"
        with contextlib.suppress(OSError):  # a full disk, or an adopted engine, which has none
            if log.stat().st_size > LOG_MAX:
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)


def _get(url: str, path: str) -> Any:
    """What an engine answers, as JSON or as `{}`; None for anything but a 200. Blocks."""
    parts = urlsplit(url)
    made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = made(parts.hostname or "", parts.port, timeout=QUESTION_S)
    try:
        connection.request("GET", f"{parts.path}{path}")
        answer = connection.getresponse()
        body = answer.read(_ANSWER_MAX)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        return None
    try:
        return json.loads(body) or {}
    except (ValueError, RecursionError):
        return {}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class EngineDesk:
    """The engines of one supervisor, each with a thread of its own."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._models = supervisor.loop.services.get(Models)
        self.watches: dict[str, EngineWatch] = {}

    async def run(self) -> None:
        """Follow the settings until cancelled; engines go on then."""
        try:
            while True:
                try:
                    await asyncio.to_thread(self._follow)
                except (NightcrewError, OSError) as error:
                    self._supervisor.alert(one_line(f"engines cannot be kept: {error}"))
                await asyncio.sleep(FOLLOW_S)
        finally:
            for watch in self.watches.values():
                watch.leave()

    def _follow(self) -> None:
        home = self._supervisor.home
        settings = self._models.now()
        wanted = {upstream.engine.name: upstream.engine for upstream in settings.upstreams if upstream.engine is not None}
        for name, engine in wanted.items():
            if name in self.watches:
                self.watches[name].engine = engine
            else:
                files.private_dir(home.engines)
                self.watches[name] = EngineWatch(self._supervisor, engine)
                self.watches[name].begin()
        for name in {*self.watches, *engines.names(home)} - wanted.keys():
            if watch := self.watches.pop(name, None):
                watch.leave()
            engines.forget(home, name)


async def handle(loop: Loop, *, name: str) -> dict[str, Any]:
    """Stop an engine until a request needs it. Returns whether it ran."""
    desk = loop.services.get(EngineDesk)
    if name not in desk.watches:
        raise NotFound("no engine is called", on=name, why=nearest(name, desk.watches), hint="nightcrew engine ls")
    return {"name": name, "ran": await asyncio.to_thread(desk.watches[name].stop)}


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Keep the engines inside."""
    desk = EngineDesk(supervisor)
    supervisor.loop.services.put(desk)
    async with beside(desk.run()):
        yield
