"""Is somebody there, and who?"""

from __future__ import annotations

import os
from typing import Any

from supervisor import __version__
from supervisor.core.admission import Conditions, Decision, Verdict
from supervisor.core.window import why_batch_waits
from supervisor.daemon import capacity, gateway_report
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """pid, version, slots, the latest alerts, and why tasks wait that could start: `no_gateway` (text, or empty), and as verdicts `closed`
    (of the whole crew), `held_back` (by class), `slots_free` and `nights`. `gateway` is what that said last, and null where none is needed.
    `tick_ms_p99`: of `Loop.ticks`. With `settings` the file is read first, and `outdated` names what needs a restart."""
    outdated = loop.read_settings() if args.get("settings") else []
    return {
        "pid": os.getpid(),
        "version": __version__,
        "slots": loop.crew.slots,
        "alerts": loop.alerts,
        "ready": loop.ready,
        "tick_ms_p99": round(1000 * sorted(loop.ticks)[len(loop.ticks) * 99 // 100], 3) if loop.ticks else 0.0,
        "outdated": outdated,
        "no_gateway": loop.no_gateway(),
        "gateway": gateway_report.to_ping(loop.of_gateway()),
        **gateway_report.conditions_to_ping(conditions(loop)),
    }


def conditions(loop: Loop) -> Conditions:
    """Why tasks that are ready do not start."""
    window = why_batch_waits(loop.settings.batch_window, loop.crew.batch_time)
    return capacity.conditions(loop.crew, _closed(loop), window, loop.capacity.seen)


def _closed(loop: Loop) -> Verdict:
    """Why nothing at all starts, or next to nothing."""
    outage, now = loop.crew.health.outage, loop.admission.verdict
    if now.decision is not Decision.ADMIT or outage is None:
        return now
    return Verdict(Decision.DEFER, "outage", outage.words(), loop.clock.wall() - (loop.clock.monotonic() - outage.since))
