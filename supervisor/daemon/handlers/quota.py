"""A ticket of a named quota, for a person or a script of theirs."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.loop import Loop

NOBODY = ""
"""Whoever is no task stands in one line of the queue."""


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`quota`: its name. `wait_s`: how long to wait at most, None for ever, 0 not at all. Returns `taken`, and `waited_s` or `next_s`."""
    return await loop.quotas.ask(NOBODY, args)
