"""The account of an attempt that has ended: what was measured while it lived, what its runner and the gateway say, and how long it waited
for a person or stood still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.kinds import of_task
from supervisor.core import account, records
from supervisor.core.account import Life, Measured, Used
from supervisor.core.records import Exit
from supervisor.core.result import Spent
from supervisor.core.spec import TaskSpec
from supervisor.daemon import agent_evidence
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger.rows import AttemptRow


def closed(home: Home, row: AttemptRow, spec: TaskSpec, known: tuple[Exit | None, Spent], times: Mapping[str, float]) -> dict[str, Any]:
    """`known`: what its runner recorded and what the gateway counted. `times`: when it was `ready`, `started` and `ended`, wall
    clock, and what the monotonic clock says `now`."""
    record, spent = known
    directory = home.attempt(row.task, row.epoch)
    still_s, since = records.parse_stood_still(foreign.read_plain(directory / records.PAUSED, 100) or b"")
    kind = of_task(spec.kind)
    attended = kind.owns_terminal(interactive=spec.interactive)
    life = Life(
        queued=times["ready"],
        spawned=row.created,
        started=times.get("started") or row.started,
        ended=times["ended"],
        model=spent.busy,
        waited=spent.queued,
        human_s=agent_evidence.waited_for_person(directory, times["ended"], interactive=attended),
        paused_s=still_s + (max(0.0, times["now"] - since) if since else 0.0),
    )
    used = Used(
        cpu_s=record.cpu_s if record is not None else None,
        process_memory=record.max_rss if record is not None else 0,
        tokens=_limited(spent),
        all_tools=not kind.is_agent,
    )
    return account.closed(Measured.from_json(row.account), used, life)


def _limited(spent: Spent) -> int | None:
    known = [count for count in (spent.input, spent.cache_write, spent.output) if count is not None]
    return sum(known) if known else None
