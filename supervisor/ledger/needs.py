"""What agents take, in the ledger: what was learned of each kind, and what one attempt took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

from supervisor.core.capacity import Need, Took
from supervisor.ledger.write_access import WriteAccess

_COLUMNS = [field.name for field in fields(Need)]


class Needs:
    """The writer's door to them; `Ledger.needs`."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk

    def all(self) -> dict[str, Need]:
        """What was learned, by kind."""
        return {row["kind"]: Need(*(row[name] for name in _COLUMNS)) for row in self._desk.db.execute("SELECT * FROM need")}

    def keep(self, needs: Mapping[str, Need]) -> None:
        """Replace what was learned of these kinds. A power cut may undo it: it is learned again."""
        with self._desk.writing(durable=False):
            self._desk.db.executemany(
                f"INSERT OR REPLACE INTO need (kind, {', '.join(_COLUMNS)}) VALUES (?{', ?' * len(_COLUMNS)})",  # noqa: S608 - our columns
                [(kind, *astuple(need)) for kind, need in needs.items()],
            )

    def took(self, task: str, epoch: int) -> tuple[str, Took] | None:
        """The kind of an attempt that has ended, and what it took as far as it was measured; `contended` is left to the caller. None for
        one that never ran."""
        row = self._desk.db.execute(
            """SELECT json_extract(t.spec, '$.kind') AS kind, a.result, a.account, a.ended - a.started AS wall_s
               FROM attempt a JOIN task t ON t.id = a.task WHERE a.task = ? AND a.epoch = ?""",
            (task, epoch),
        ).fetchone()
        if row is None or not row["wall_s"] or row["wall_s"] <= 0:
            return None
        account, result = (json.loads(row[name]) if row[name] else {} for name in ("account", "result"))
        return str(row["kind"]), Took(
            wall_s=max(0.001, row["wall_s"] - (account.get("paused_s") or 0.0)),
            cpu_s=account.get("cpu_s", result.get("cpu_s")),
            peak_memory=account.get("peak_memory"),
            tokens=account.get("tokens", _tokens(result)),
            usd=result.get("cost_usd"),
        )


def _tokens(result: Mapping[str, Any]) -> int | None:
    """Those that count against a limit: what is read from a cache mostly does not."""
    counted = [(result.get("tokens") or {}).get(name) for name in ("input", "output", "cache_write")]
    return None if counted[0] is None else sum(number or 0 for number in counted)
