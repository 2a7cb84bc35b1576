"""How rows of the ledger and of the gateway's account become counters. A row is given once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.account import Measured
from supervisor.core.metrics import catalog
from supervisor.core.metrics.counts import Counts, agent_name
from supervisor.core.records import attempt_name
from supervisor.core.states import FINAL, End, TaskState

_FINAL = frozenset(map(str, FINAL))
_DEADLOCKS = {"wait refused": "refused", "wait given up": "given_up"}
_ENDS = {f"end {end}": str(end) for end in End}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger's journal."""

    event: str
    task: str
    epoch: int
    data: Mapping[str, Any]
    account: Mapping[str, Any] = field(default_factory=dict)
    """Of the attempt, as `core.account.closed` made it; empty when nothing is known."""
    night: Mapping[str, int] = field(default_factory=dict)
    """Of a night that has ended: how many of its tasks came to which state; empty when they have left the ledger."""


def entry(counts: Counts, row: Entry) -> None:
    """Count a line of the journal."""
    if row.event in _ENDS:
        _ended(counts, row)
    elif row.event in _FINAL and row.task:
        counts.add(catalog.TASKS_ENDED, row.event)
    elif row.event == "start":
        counts.add(catalog.ATTEMPTS_STARTED)
    elif row.event in _DEADLOCKS:
        counts.add(catalog.DEADLOCKS, _DEADLOCKS[row.event])
    elif row.event == "night refused":
        counts.add(catalog.NIGHTS, "refused")
    elif row.event == "night ended" and row.night:
        counts.add(catalog.NIGHTS, night_outcome(row.night))


def _ended(counts: Counts, row: Entry) -> None:
    counts.add(catalog.ATTEMPTS_ENDED, _ENDS[row.event])
    if (state := str(row.data.get("task"))) in _FINAL:
        counts.add(catalog.TASKS_ENDED, state)
    agent, account = agent_name(row.task), row.account
    _processors(counts, row.task, row.epoch, account.get("cpu_s"), account.get("tool_cpu_s"))
    if account.get("human_s"):
        counts.add(catalog.HUMAN_WAIT, agent, by=account["human_s"])
    if account.get("slot_queue_s") is not None:
        counts.observe(catalog.SLOT_WAIT, value=account["slot_queue_s"])
    if account.get("wall_s") is not None:
        counts.observe(catalog.ATTEMPT_SECONDS, value=account["wall_s"])


def living(counts: Counts, task: str, epoch: int, measured: Measured) -> None:
    """Count what an attempt that lives has taken since it was last looked at."""
    cpu_s, own_s = measured.cpu_s, measured.agent_cpu_s
    _processors(counts, task, epoch, cpu_s, None if cpu_s is None or own_s is None else cpu_s - own_s)


def _processors(counts: Counts, task: str, epoch: int, cpu_s: float | None, tools_s: float | None) -> None:
    agent, of = agent_name(task), attempt_name(task, epoch)
    if cpu_s is not None:
        counts.ratchet(catalog.CPU, agent, of=of, what="cpu", to=cpu_s)
    if tools_s is not None:
        counts.ratchet(catalog.TOOL_CPU, agent, of=of, what="tools", to=tools_s)


def night_outcome(states: Mapping[str, int]) -> str:
    """`done` when every task is, `failed` when none is, else `partly`."""
    done, others = states.get(TaskState.DONE, 0), sum(number for state, number in states.items() if state != TaskState.DONE)
    if not others:
        return "done"
    return "partly" if done else "failed"


def waited(counts: Counts, kind: str, seconds: float) -> None:
    """Count a wait of an agent that is over."""
    counts.observe(catalog.WAIT_SECONDS, kind, value=seconds)


def settled(counts: Counts, row: Mapping[str, Any]) -> None:
    """Count a sending that is over: a row of the account's `request`. `served`: its upstream answered it."""
    agent, model = agent_name(row["agent"]), str(row["model"])
    counts.add(catalog.LLM_REQUESTS, agent, model, "none" if row["status"] is None else str(row["status"]))
    tokens = {kind: row[kind] or 0 for kind in ("input", "output", "cache_read", "cache_write")}
    for kind, number in tokens.items():
        if number:
            counts.add(catalog.LLM_TOKENS, agent, model, kind, by=number)
    if row["cost_usd"] is not None:
        counts.add(catalog.COST, agent, model, by=row["cost_usd"])
    elif any(tokens.values()):
        counts.add(catalog.UNPRICED, agent, model)
    if row["served"]:
        _timed(counts, agent, row)


def _timed(counts: Counts, agent: str, row: Mapping[str, Any]) -> None:
    counts.add(catalog.THROTTLED, agent, by=row["queued_ms"] / 1000)
    counts.observe(catalog.QUEUE_WAIT, value=row["queued_ms"] / 1000)
    if row["first_byte_ms"] is not None:
        counts.observe(catalog.FIRST_TOKEN, value=row["first_byte_ms"] / 1000)
    if row["total_ms"] is not None:
        counts.observe(catalog.DURATION, value=row["total_ms"] / 1000)


def turned_away(counts: Counts, row: Mapping[str, Any]) -> None:
    """Count a request that we answered ourselves: a row of the account's `turned_away`."""
    agent = agent_name(row["agent"])
    counts.add(catalog.LLM_REQUESTS, agent, str(row["model_class"]), f"own_{row['status']}")
    counts.add(catalog.THROTTLED, agent, by=row["waited_ms"] / 1000)
    counts.observe(catalog.QUEUE_WAIT, value=row["waited_ms"] / 1000)


def changed(counts: Counts, pool: str, data: Mapping[str, Any]) -> None:
    """Count a change of a breaker."""
    counts.add(catalog.BREAKER_TRANSITIONS, f"{pool}/{data['breaker']}", str(data["after"]))
