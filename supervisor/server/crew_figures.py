"""What the supervisor says of itself and its agents for `/metrics`. It tells the gateway, every few seconds and whether or not anybody
scrapes: so no scrape costs it anything, and the page is there while it hangs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from supervisor.server import capacity, requests
from supervisor.server.loop import Loop

_RATIOS = ("load", "memory", "memory_stall", "io_stall", "processes")


async def figures(loop: Loop, pid: int, since: float, overflows: int) -> dict[str, Any]:
    """`pid` and `since` name this supervisor, `overflows` is how often the kernel dropped file events since then. `asks`: who waits for a
    person, as `needs` says it, without what is asked; `states`: what the others do, by task. Costs what lives."""
    found, seen = await requests.handle_needs(loop), loop.machine.capacity.seen
    shape = capacity.shape(loop.machine.capacity, loop.crew, loop.settings)
    pressure = asdict(seen.pressure) if seen is not None else {}
    return {
        "schema": 1,
        "pid": pid,
        "since": since,
        "overflows": overflows,
        "asks": [{name: one[name] for name in ("task", "state", "since")} for one in found["agents"]],
        "states": found["states"],
        "slots": shape["slots"],
        "slots_used": shape["living"],
        "carries": {name: slots for name, slots in (shape["carries"] or {}).items() if slots is not None},
        "predicted_wait_s": shape["predicted_wait_s"],
        "pressure": {name: pressure[name] for name in _RATIOS if pressure.get(name) is not None},
        "tick_s": sorted(loop.ticks)[len(loop.ticks) * 99 // 100] if loop.ticks else 0.0,
        "alerts": len(loop.alerts.newest),
    }
