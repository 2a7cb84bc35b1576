"""The gateway as JSON: what it says while it runs, and what its account says when it does not.

Standard library only: `status` imports this.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from supervisor.core.errors import NightcrewError, NotRunning
from supervisor.core.gateway.budget import NIGHT_S
from supervisor.core.gateway.types import AgentView, PoolView, TrafficView
from supervisor.core.states import FINAL
from supervisor.core.units import rfc3339
from supervisor.gateway import process_lock, status_client
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.reading import Figures, Window
from supervisor.gateway.status import status
from supervisor.host.paths import Home
from supervisor.ledger import store

WINDOW_S = 300.0
"""Figures of the account alone are of the five minutes before its last request."""
_NO_TRAFFIC = TrafficView((), (), {}, {})

Shape = Mapping[str, Any]


def look(home: Home, now: float, *, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """The gateway as JSON, with `running`; None where there never was one, or only one for its page of metrics.

    While it runs: what its status page says; `tonight_usd`, of the last 12 hours, null without a cap; for each agent `ended`, null when the
    ledger does not know the agent, and `cost_max`. While it does not run: `why`; `last`, the wall-clock time of the last request, null when
    there was none; and the account's figures of the five minutes before it. What only a running gateway knows is null then. `cost_usd` is
    null while a part of it is not known. Raises LedgerError when the account cannot be read.
    """
    why = ""
    if _passed_nothing(home):
        return None
    if home.gateway_record.exists():
        try:
            return _priced(_known({"running": True, **status_client.ask(home, status_client.STATUS, timeout_s=timeout_s)}, home, now))
        except NightcrewError as error:
            why = "" if isinstance(error, NotRunning) else error.line()
    elif not home.gateway_account.exists():
        return None
    return _priced({"running": False, "why": why or "no gateway is running", **_history(home, now)})


def _passed_nothing(home: Home) -> bool:
    """Whether the last gateway was for the page of metrics alone, and none before it passed anything on."""
    record = process_lock.read(home)
    if record is None or record.passes or not home.gateway_account.exists():
        return False
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.last(db) is None


def printed(shape: Shape) -> dict[str, Any]:
    """As every `--json` has it: times are RFC 3339 in UTC."""
    return {**shape, **{key: rfc3339(shape[key]) for key in ("since", "last") if key in shape}}


def _known(shape: dict[str, Any], home: Home, now: float) -> dict[str, Any]:
    """With what the ledger and the account know beside it."""
    cap, shape["tonight_usd"] = shape.get("caps", {}).get("cost_per_night"), None
    if cap is not None and home.gateway_account.exists():
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            shape["tonight_usd"] = reading.spent_since(db, now - NIGHT_S)
    found = {}
    if home.ledger.exists():
        with contextlib.closing(store.connect_readonly(home.ledger)) as db:
            names = json.dumps([agent["name"] for agent in shape["agents"]])
            found = {row["id"]: row for row in db.execute(_TASKS, (names,))}
    for agent in shape["agents"]:
        row = found.get(agent["name"])
        agent["ended"] = None if row is None else row["state"] in FINAL
        agent["cost_max"] = None if row is None else row["cost_max"] or None
    return shape


_TASKS = "SELECT id, state, json_extract(spec, '$.cost_max') AS cost_max FROM task WHERE id IN (SELECT value FROM json_each(?))"


def _history(home: Home, now: float) -> dict[str, Any]:
    last, window = None, Window(WINDOW_S, {}, {}, Figures())
    if home.gateway_account.exists():
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            last = reading.last(db)
            window = reading.window(db, now if last is None else last, WINDOW_S)
    agents = [_still(AgentView, {"name": name}, window.seconds, of) for name, of in sorted(window.agents.items())]
    nothing: Shape = {"dimensions": [], "windows": []}
    pools = [_still(PoolView, {"key": name, **nothing}, window.seconds, of) for name, of in sorted(window.pools.items())]
    return {"last": last, **status(_NO_TRAFFIC, window, ()), "agents": agents, "pools": pools}


def _still(view: type[AgentView | PoolView], known: Shape, seconds: float, of: Figures) -> dict[str, Any]:
    """As the status page shows one, but with nothing of the moment."""
    figures = status(_NO_TRAFFIC, Window(seconds, {}, {}, of), ())["figures"]
    return {**{field.name: None for field in fields(view)}, **known, "figures": figures}


def _priced(shape: dict[str, Any]) -> dict[str, Any]:
    for figures in (shape["figures"], *(one["figures"] for one in (*shape["agents"], *shape["pools"]))):
        if figures is not None:
            figures["cost_usd"] = None if figures["unpriced"] else figures["known_usd"]
    return shape
