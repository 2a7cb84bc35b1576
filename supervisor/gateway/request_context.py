"""What the life of a request needs beside the request itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.core.gateway.settings import GatewaySettings, Upstream
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import Admission
from supervisor.gateway.keys import Keyring
from supervisor.gateway.log import Log
from supervisor.gateway.prices import Prices
from supervisor.gateway.recording import Recorder
from supervisor.gateway.upstreams import Upstreams
from supervisor.host.clock import Clock


@dataclass(slots=True)
class RequestContext:
    """One gateway's. `settings`, `keyring`, `prices` and `recorder` are replaced by a reload: look them up when they are used."""

    settings: GatewaySettings
    keyring: Keyring
    admission: Admission
    account: Account
    upstreams: Upstreams
    prices: Prices
    log: Log
    clock: Clock
    recorder: Recorder | None = None
    stopping: bool = False
    """No new requests are taken."""
    sentinel: Path = Path("/nonexistent")
    """While it exists nobody is served: `nightcrew stop-all`."""
    under_way: set[asyncio.Task[Any]] = field(default_factory=set)
    """What serves requests of agents now."""

    kept: dict[int, int] = field(default_factory=dict)
    """Ticket -> bytes of its answer that are kept for a client that reads slowly."""

    @property
    def stopped(self) -> bool:
        """Whether everything was stopped by a person. Costs a system call."""
        return self.sentinel.exists()

    def upstream(self, name: str) -> tuple[Upstream, str] | None:
        """An upstream and its key; None when the settings have lost it since."""
        found = next((upstream for upstream in self.settings.upstreams if upstream.name == name), None)
        return (found, self.keyring.keys[name]) if found is not None and name in self.keyring.keys else None

    def usable(self, *, own_login: bool) -> Mapping[str, str]:
        """Upstreams that can serve now: those with a key, and those that pass on a login of the client's own if it brought one."""
        kinds = {upstream.name: upstream.key.kind for upstream in self.settings.upstreams}
        return {name: key for name, key in self.keyring.keys.items() if own_login or kinds.get(name) != "client"}
