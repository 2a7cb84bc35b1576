"""What is known of engines, as files: the supervisor writes a record of each engine, the gateway reads it and says which are needed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.gateway.admission.types import EngineChanged
from supervisor.host import processes, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.engines import EngineRecord, EngineState
from supervisor.kernel.gateway_settings import GatewaySettings, Upstream
from supervisor.kernel.names import TAG_VARIABLE, Identity

if TYPE_CHECKING:
    from supervisor.gateway.proxy.forward import Admission

LOOK_S = 0.25
"""Between two looks at the records."""
GRACE_S = 5.0
"""An engine that is asked to end has so long."""
_RECORD_MAX = 64 * 2**10
_LOOKS, _LOOK_AGAIN_S = 10, 0.01


def need_file(home: Home, name: str) -> Path:
    """The file whose time is that of the engine's last use."""
    return home.engines / f"{name}.need"


def read(home: Home, name: str) -> EngineRecord | None:
    """An engine's record; None when there is none, or nothing that makes sense."""
    try:
        return codec.check(
            EngineRecord, json.loads(untrusted_fs.read_plain(home.engines / f"{name}.json", _RECORD_MAX) or b""), whole=False
        )
    except (ValueError, RecursionError):
        return None


def tag(home: Home, name: str) -> str:
    """What marks every process of an engine."""
    return f"engine:{home.root}:{name}"


def alive(home: Home, record: EngineRecord | None) -> Identity | None:
    """The engine's process while it runs: whoever else a record names is none of ours."""
    if record is None or record.identity is None or not processes.alive(record.identity):
        return None
    for _ in range(_LOOKS):  # a process shows no environment at the moment at which it becomes another program
        if found := processes.variable(record.identity.pid, TAG_VARIABLE):
            return record.identity if found == tag(home, record.name) else None
        time.sleep(_LOOK_AGAIN_S)
    return None


def stop(home: Home, name: str, who: Identity | None, grace_s: float = GRACE_S) -> None:
    """End every process of an engine, of which `who` is the first. Blocks."""
    if who is not None or processes.tagged(tag(home, name)):
        processes.stop(tag(home, name), who, grace_s)


def forget(home: Home, name: str) -> str:
    """End an engine and remove its record; return who was ended, or nothing. Blocks."""
    who = alive(home, read(home, name))
    stop(home, name, who)
    need_file(home, name).unlink(missing_ok=True)
    (home.engines / f"{name}.json").unlink(missing_ok=True)
    return f"the engine {name} (pid {who.pid})" if who is not None else ""


def names(home: Home) -> list[str]:
    """The engines that have a record."""
    return sorted(file.stem for file in home.engines.glob("*.json"))


class Engines:
    """The gateway's view of the engines that its settings name. It belongs to one event loop."""

    def __init__(self, home: Home, settings: GatewaySettings, admission: Admission) -> None:
        self._home = home
        self._admission = admission
        self._names = {upstream.name: upstream.engine.name for upstream in settings.upstreams if upstream.engine is not None}
        self._records: dict[str, EngineRecord | None] = {}
        self.look()
        import asyncio  # late: commands read records, and have no event loop

        self._task = asyncio.get_running_loop().create_task(self._poll())

    def close(self) -> None:
        """Look no more."""
        self._task.cancel()

    def record(self, name: str) -> EngineRecord | None:
        """The record of an engine as of the last look."""
        return self._records.get(name)

    def ready(self, upstream: Upstream) -> Upstream | None:
        """An engine's upstream with the address of now; None while the engine does not serve."""
        found = self.record(self._names.get(upstream.name, ""))
        return replace(upstream, url=found.url) if found is not None and found.state is EngineState.READY else None

    def need(self, upstreams: Iterable[str]) -> None:
        """A request that may go to these upstreams is here: their engines are started, or stay."""
        for name in {self._names[upstream] for upstream in upstreams if upstream in self._names}:
            with contextlib.suppress(OSError):  # the directory comes with the supervisor's first look
                need_file(self._home, name).touch(mode=0o600)

    def look(self) -> None:
        """Read the records, tell admission of those that changed, and keep engines whose requests wait or are served."""
        for name in sorted(set(self._names.values())):
            record = read(self._home, name)
            if name not in self._records or record != self._records[name]:
                self._records[name] = record
                self._admission.tell(EngineChanged(name, record))
        self.need({upstream for ticket in self._admission.traffic.tickets.values() for upstream in ticket.event.upstreams})

    async def _poll(self) -> None:
        import asyncio

        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
