"""Is somebody there, and who?"""

from __future__ import annotations

import os
from typing import Any

from supervisor import __version__
from supervisor.core.task import TaskClass
from supervisor.core.window import why_batch_waits
from supervisor.daemon import gateway_report
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the shape of every handler
    """pid, version, slots, the latest alerts, and why tasks wait that could start: `no_gateway` (text, or empty), `held_back` (class to
    reason). `gateway` is what that said last, and null where none is needed. `tick_ms_p99`: of `Loop.ticks`."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "slots": loop.settings.slots,
        "alerts": loop.alerts,
        "ready": loop.ready,
        "tick_ms_p99": round(1000 * sorted(loop.ticks)[len(loop.ticks) * 99 // 100], 3) if loop.ticks else 0.0,
        "no_gateway": loop.no_gateway(),
        **gateway_report.to_ping(loop.of_gateway(), _why_batch_waits(loop), sorted(loop.crew.held_back)),
    }


def _why_batch_waits(loop: Loop) -> dict[str, str]:
    why = why_batch_waits(loop.settings.batch_window, loop.crew.batch_time)
    return {TaskClass.BATCH: why} if why else {}
