"""Asking the gateway for its own pages, over its socket. Standard library only: `status` imports this."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from supervisor.gateway.account.queries import Figures, Window
from supervisor.gateway.admission.budget import Budget, Budgets, Pot
from supervisor.gateway.admission.types import AgentView, PoolView, TrafficView
from supervisor.host import attempt_tokens, secrets
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotRunning, TimedOut, ToolFailed
from supervisor.kernel.format import duration

# Status client
# -------------


PING, STATUS, NOW, STOP, RELOAD, CREW, PAST = (f"/nightcrew/{page}" for page in ("ping", "status", "now", "stop", "reload", "crew", "past"))
METRICS = "/metrics"
RELOAD_S = 40.0
"""It reads the settings by a process of its own, and keys by programs that may take 30 s."""
_HINT = "nightcrew doctor"


def fetch(home: Home, page: str, *, post: bool = False, timeout_s: float = 5.0, body: Mapping[str, Any] | None = None) -> bytes:
    """The body of one page. `body` is posted. Blocks for at most about `timeout_s` between two pieces of the answer.

    Raises NotRunning when nobody listens, TimedOut, ToolFailed for any other answer than 200, Refused when the secret cannot be read.
    """
    connection = _OverSocket(str(home.gateway_socket), timeout_s)
    headers = {
        "Authorization": f"Bearer {attempt_tokens.admin(secrets.own(home.secret))}",
        **({"Content-Type": "application/json"} if body else {}),
    }
    try:
        connection.request("POST" if post or body else "GET", page, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        found = answer.read()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning("no gateway is running", hint="nightcrew up -d") from None
    except TimeoutError:
        raise TimedOut("the gateway did not answer", on=f"{page} in {duration(timeout_s)}", hint=_HINT) from None
    except (OSError, http.client.HTTPException) as error:
        raise ToolFailed("the gateway broke off", on=page, why=str(error) or type(error).__name__, hint=_HINT) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ToolFailed("the gateway would not", on=page, why=f"{answer.status}: {found[:200].decode('utf-8', 'replace')}", hint=_HINT)
    return found


def ask(home: Home, page: str, *, post: bool = False, timeout_s: float = 5.0) -> dict[str, Any]:
    """The same for a page that is a JSON object."""
    body = fetch(home, page, post=post, timeout_s=timeout_s)
    try:
        shape = json.loads(body)
    except ValueError:
        shape = None
    if not isinstance(shape, dict):
        raise ToolFailed("the gateway answered something strange", on=page, why=body[:60].decode("utf-8", "replace"), hint=_HINT)
    return shape


class _OverSocket(http.client.HTTPConnection):
    """To a UNIX socket; the Host header is the one that the gateway knows for it."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Of the standard library's class."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# Status
# ------
# What the status page says, from the queue as it is now and the account's last minutes.


def status(view: TrafficView, window: Window, problems: Iterable[NightcrewError]) -> dict[str, Any]:
    """`agents`, `pools`, `lanes`, `figures` and `problems` as JSON has them. Figures are None where nothing ended in the window."""
    return {
        "agents": [_agent(one, window.agents.get(one.name)) for one in view.agents],
        "pools": [_pool(one, window.pools.get(str(one.key))) for one in view.pools],
        "lanes": [
            {"lane": str(lane), "queued": queued, "delay_s": view.delay_s.get(lane, 0.0)}
            for lane, queued in sorted(view.queued.items(), key=str)
        ],
        "figures": {"window_s": window.seconds, **_figures(window.total)},
        "problems": [problem.line() for problem in problems],
    }


def _agent(view: AgentView, figures: Figures | None) -> dict[str, Any]:
    return {**asdict(view), "task_class": str(view.task_class), "figures": _figures(figures) if figures else None}


def _pool(view: PoolView, figures: Figures | None) -> dict[str, Any]:
    return {
        **asdict(view),
        "key": str(view.key),
        "account": view.key.account,
        "lane": str(view.key.lane),
        "breaker": str(view.breaker),
        "figures": _figures(figures) if figures else None,
    }


def _figures(figures: Figures) -> dict[str, Any]:
    rates: Mapping[str, float | None] = {
        "error_rate": figures.error_rate,
        "cache_hits": figures.cache_hits,
        "tokens_per_usd": figures.tokens_per_usd,
    }
    return {**asdict(figures), "models": [asdict(one) for one in figures.models], **rates}


def caps(crew: Budgets, now: float) -> dict[str, Any]:
    """What is shared, in US dollars: the crew's cap of 12 hours, and by run those of the nights."""
    spent = None if crew.night.cap is None else crew.night.spent.sum(now)
    nights = {run: _night(pot, crew.budgets.values()) for run, pot in crew.nights.items()}
    return {"cost_per_night": crew.night.cap, "night_usd": spent, "nights": nights}


def _night(pot: Pot, agents: Iterable[Budget]) -> dict[str, Any]:
    """As `core.night.NightSpent` has it, and its cap."""
    tasks = {one.agent.name: one.money.spent + one.money.bounds for one in agents if pot in one.pots}
    return {"cap": pot.cap, "usd": pot.spent.sum(0.0), "reserved": pot.bounds, "refused": pot.refused, "tasks": tasks}
