"""Verbs that change something, one a file, named as on the command line; they run inside the daemon.

A handler is `async handle(loop, home, args) -> value`; it raises our errors, and returns only what is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from supervisor.daemon.handlers import clean, down, kill, ping, retry, submit
from supervisor.daemon.loop import Loop
from supervisor.host.paths import Home

Handler = Callable[[Loop, Home, dict[str, Any]], Awaitable[dict[str, Any]]]

HANDLERS: Mapping[str, Handler] = {
    "clean": clean.handle,
    "down": down.handle,
    "kill": kill.handle,
    "ping": ping.handle,
    "retry": retry.handle,
    "submit": submit.handle,
}
