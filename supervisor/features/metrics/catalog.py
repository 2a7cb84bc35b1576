"""Every metric that is served, and how rows become counters. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from supervisor.gateway.admission.types import BreakerState
from supervisor.kernel.account import Measured
from supervisor.kernel.leases import WaitKind
from supervisor.kernel.names import attempt_name
from supervisor.kernel.states import FINAL, End, TaskClass, TaskState

# Catalog
# -------
# Every metric that is served: its name, type, labels and meaning. What is not listed here cannot be counted or shown.
#
# Labels are bounded: no metric has a task's id, a run or a session among its labels. `agent` is a task's name without its run.


class MetricType(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name."""

    name: str
    """As it is served; a counter ends in `_total`."""
    type: MetricType
    labels: tuple[str, ...]
    help: str
    fixed: tuple[tuple[str, ...], ...] = ()
    """Values of the labels that are shown from the start, as 0: whoever asks for a rate needs the zero before the first one."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in seconds, without the infinite one."""
    old: str = ""
    """The name of the release before, under which it is still served; empty: it had none."""


_MODEL_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0)
_CREW_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
_AGENT, _BOTH = ("agent",), ("agent", "model")
_COUNTER, _GAUGE = MetricType.COUNTER, MetricType.GAUGE


def _each(values: Iterable[object]) -> tuple[tuple[str, ...], ...]:
    return tuple((str(value),) for value in values)


def _counter(name: str, words: str, *labels: str, fixed: tuple[tuple[str, ...], ...] = (), old: str = "") -> Metric:
    return Metric(f"nightcrew_{name}", _COUNTER, labels, words, fixed or (((),) if not labels else ()), old=old)


def _gauge(name: str, words: str, *labels: str, old: str = "") -> Metric:
    return Metric(f"nightcrew_{name}", _GAUGE, labels, words, old=old)


def _histogram(name: str, words: str, *labels: str, buckets: tuple[float, ...], old: str = "") -> Metric:
    return Metric(f"nightcrew_{name}", MetricType.HISTOGRAM, labels, words, ((),) if not labels else (), buckets, old)


# The models: from the gateway's account, and of the moment --------------------------------------------------------------------------------

LLM_REQUESTS = _counter(
    "llm_requests_total", "Sendings to providers and refusals of our own, by status.", *_BOTH, "code", old="sup_llm_requests_total"
)
LLM_TOKENS = _counter("llm_tokens_total", "Tokens charged.", *_BOTH, "type", old="sup_llm_tokens_total")
COST = _counter("cost_usd_total", "US dollars, of requests with a known price.", *_BOTH, old="sup_cost_usd_total")
UNPRICED = _counter("unpriced_requests_total", "Requests whose model has no known price.", *_BOTH, old="sup_unpriced_requests_total")
THROTTLED = _counter(
    "budget_throttled_seconds_total", "Time that requests waited for tokens.", *_AGENT, old="sup_budget_throttled_seconds_total"
)
BREAKER_TRANSITIONS = _counter("breaker_transitions_total", "Changes of breakers.", "scope", "to", old="sup_breaker_transitions_total")
QUEUE_WAIT = _histogram(
    "queue_wait_seconds", "Of a request, from arrival to sending.", buckets=_MODEL_SECONDS, old="sup_queue_wait_seconds"
)
FIRST_TOKEN = _histogram(
    "llm_time_to_first_token_seconds",
    "Of a request, from arrival to the first byte.",
    buckets=_MODEL_SECONDS,
    old="sup_llm_time_to_first_token_seconds",
)
DURATION = _histogram(
    "llm_request_duration_seconds", "Of a request, from arrival to the end.", buckets=_MODEL_SECONDS, old="sup_llm_request_duration_seconds"
)
TOKENS_PER_MINUTE = _gauge("llm_tokens_per_minute", "Tokens charged in the last minute.", *_AGENT, old="sup_llm_tokens_per_minute")
SHARE = _gauge("budget_tokens_per_minute", "What its weight gives it while all others ask.", *_AGENT, old="sup_budget_tokens_per_minute")
QUEUE_DEPTH = _gauge("queue_depth", "Requests that wait for tokens, by class.", "priority", old="sup_queue_depth")
QUEUE_DELAY = _gauge("queue_delay_seconds", "How long a normal request that came now would wait.", "lane")
IN_FLIGHT = _gauge("llm_requests_in_flight", "Requests at the provider now.", "scope")
BREAKER = _gauge("breaker_state", "0 closed, 1 half-open, 2 open.", "scope", old="sup_breaker_state")
SATURATION = _gauge("limit_saturation", "Part of a limit that is used or reserved.", "scope", "limit", old="sup_limit_saturation")
LIMIT = _gauge("limit_per_minute", "What a limit allows in a minute, as far as it is known.", "scope", "limit")
OUTSIDE = _gauge("limit_outside_per_minute", "What others take of the same limit in a minute, as it is estimated.", "scope", "limit")
EXHAUSTED = _gauge("limit_exhausted_in_seconds", "Forecast; absent when it does not fall.", "scope", old="sup_limit_exhausted_in_seconds")
BUDGET_CAP = _gauge("budget_cap_usd", "Caps on dollars: of the crew in 12 hours, of the nights that are under way.", "budget")
BUDGET_SPENT = _gauge("budget_spent_usd", "What counts against such a cap.", "budget")
BUDGET_RESERVED = _gauge("budget_reserved_usd", "The most that requests under way may still add to it.", "budget")

# The crew: from the ledger ----------------------------------------------------------------------------------------------------------------

TASKS = _gauge("tasks_open", "Tasks that have not ended, by state.", "state")
TASKS_ENDED = _counter("tasks_total", "Tasks that came to an end, by what became of them.", "outcome", fixed=_each(sorted(FINAL)))
ATTEMPTS_STARTED = _counter("attempts_started_total", "Attempts that were started.")
ATTEMPTS_ENDED = _counter("attempts_total", "Attempts that ended, by how.", "end", fixed=_each(End))
ATTEMPT_SECONDS = _histogram("attempt_duration_seconds", "Of an attempt, from its start to its end.", buckets=_CREW_SECONDS)
SLOT_WAIT = _histogram("slot_wait_seconds", "Of an attempt that ended, from when it could start to its start.", buckets=_CREW_SECONDS)
AGENTS = _gauge("agents", "Attempts that live, by what their agents do.", "state")
AGENT_STATE = _gauge("agent_state", "Attempts that live, by agent and what it does; only states in which one is.", "agent", "state")
CPU = _counter("agent_cpu_seconds_total", "Processor time of agents with all that they started.", *_AGENT)
TOOL_CPU = _counter("agent_tool_cpu_seconds_total", "The part of it that was not the agent's own process: its tools.", *_AGENT)
MEMORY = _gauge("agent_resident_memory_bytes", "Memory of what lives of an agent; shared parts count once.", *_AGENT)
PROCESSES = _gauge("agent_processes", "Processes of an agent that live.", *_AGENT)
GPU_MEMORY = _gauge("agent_gpu_memory_peak_bytes", "The most that it had on graphics processors; absent where nobody measures.", *_AGENT)
GPU_USE = _gauge("agent_gpu_utilization_ratio", "Share of the time of graphics processors; absent where nobody measures.", *_AGENT)
HUMAN_WAIT = _counter("human_wait_seconds_total", "Time that attempts which ended had waited for a person.", *_AGENT)
LEASES = _gauge("leases", "Leases on files that are held.", "mode")
WAITS = _gauge("waits", "Waits of agents that last, by what they wait for.", "kind")
WAIT_SECONDS = _histogram("wait_seconds", "Waits of agents that are over, by what they waited for.", "kind", buckets=_CREW_SECONDS)
DEADLOCKS = _counter(
    "deadlocks_total",
    "Waits that could never end: not begun (refused), or ended by us (given_up).",
    "how",
    fixed=_each(("refused", "given_up")),
)
NIGHTS = _counter(
    "nights_total",
    "Nights: refused before they began, or ended with all, some or none of their tasks done.",
    "outcome",
    fixed=_each(("done", "partly", "failed", "refused")),
)
NIGHTS_OPEN = _gauge("nights_open", "Nights that are under way.")

# The supervisor: what it says every few seconds -------------------------------------------------------------------------------------------

SUPERVISOR_UP = _gauge("supervisor_up", "1 while a supervisor speaks, else 0.")
TICK = _gauge("supervisor_tick_seconds", "Processor time of its steps, the 99th of a hundred.")
SLOTS = _gauge("slots", "Attempts that may live at once.")
SLOTS_USED = _gauge("slots_used", "Slots that are taken.")
CARRIES = _gauge("capacity_slots", "How many attempts each resource carries.", "resource")
PREDICTED_WAIT = _gauge("predicted_wait_seconds", "How long a task that came now would wait for its start; absent while nothing is known.")
HUMANS_ASKED = _gauge("needs_human", "Agents that wait for a person.")
HUMAN_OLDEST = _gauge("needs_human_oldest_seconds", "For how long the first of them waits; 0 when none does.")
ALERTS = _gauge("alerts", "What the supervisor said last that a person should know.")
FS_OVERFLOWS = _counter("fs_overflows_total", "Times that the kernel dropped file events of the memories; they are walked through then.")
PRESSURE = _gauge(
    "machine_pressure_ratio",
    "How busy the machine is: load for each core; parts of memory, of processes, and of the time stalled.",
    "resource",
)

# This page --------------------------------------------------------------------------------------------------------------------------------

DISK_FREE = _gauge("disk_free_bytes", "Free for the user on the disk of nightcrew's state.")
DISK_SIZE = _gauge("disk_size_bytes", "Size of that disk.")
SOURCE_UP = _gauge("source_up", "Whether what is shown could be read at the last look; what could not is as it was before.", "source")
BUILD = _gauge("build_info", "1; which nightcrew serves this page.", "version", old="sup_build_info")

PRESET_GAUGES = {
    QUEUE_DEPTH: _each(TaskClass),
    TASKS: _each(state for state in TaskState if state not in FINAL),
    LEASES: _each(("shared", "exclusive")),
    WAITS: _each(WaitKind),
}
"""Gauges that show 0 for what is not there."""
BREAKER_VALUES = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 1.0, BreakerState.OPEN: 2.0}


def every() -> Iterator[Metric]:
    """All of them, in the order above."""
    return (item for item in globals().values() if isinstance(item, Metric))


BY_NAME = {metric.name: metric for metric in every()}


# Counts
# ------
# Counters that outlive every process: what was counted by now, and up to where the rows were read that it was counted from.
#
# Both are written down together (`to_json`), so that a row is counted once, whoever was killed in between, and no counter ever goes
# back.


Labels = tuple[str, ...]
OTHER = "other"
MOST = {"agent": 100, "model": 50, "scope": 100}
"""So many different values of a label are kept apart for ever, the first ones; every later one is `other`."""
SERIES_MAX = 2000
"""Of one metric; what would be more is counted under `other`."""
LABEL_MAX = 80
"""Characters of a label's value."""


@dataclass(slots=True)
class Spread:
    """A histogram: how many fell into each bucket (the last one has no bound), and their sum."""

    buckets: list[int]
    total: float = 0.0

    def observe(self, bounds: tuple[float, ...], value: float) -> None:
        """Count one more."""
        self.buckets[bisect_left(bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Cursor:
    """How far a table was read whose rows are written when something begins and changed when it ends."""

    last: int = 0
    open: set[int] = field(default_factory=set)
    """Rows up to `last` that had not ended."""


@dataclass(slots=True)
class Read:
    """How far each table was read."""

    journal: int = 0
    waits: Cursor = field(default_factory=Cursor)
    requests: Cursor = field(default_factory=Cursor)
    turned_away: int = 0
    breakers: int = 0


class Counts:
    """All counters and histograms of the catalog."""

    def __init__(self) -> None:
        self.read = Read()
        self.values: dict[str, dict[Labels, float]] = {}
        self.spreads: dict[str, dict[Labels, Spread]] = {}
        self.seen: dict[str, dict[str, float]] = {}
        """By living attempt, what of it was counted already: `cpu` and `tools` in seconds. By supervisor, its `overflows`."""
        self._known: dict[str, set[str]] = {label: set() for label in MOST}

    # Counting ------------------------------------------------------------------------------------------------------------------------

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Count; less than nothing counts as nothing."""
        family = self.values.setdefault(metric.name, {})
        key = self._key(metric, labels, family)
        family[key] = family.get(key, 0.0) + max(0.0, by)

    def observe(self, metric: Metric, *labels: str, value: float) -> None:
        """Count a value in a histogram."""
        family = self.spreads.setdefault(metric.name, {})
        key = self._key(metric, labels, family)
        if key not in family:
            family[key] = Spread([0] * (len(metric.buckets) + 1))
        family[key].observe(metric.buckets, max(0.0, value))

    def ratchet(self, metric: Metric, *labels: str, of: str, what: str, to: float) -> None:
        """Count what the growing value `what` of `of` has grown by since it was last seen."""
        seen = self.seen.setdefault(of, {})
        self.add(metric, *labels, by=to - seen.get(what, 0.0))
        seen[what] = max(to, seen.get(what, 0.0))

    def forget(self, kept: Iterable[str]) -> None:
        """Drop what was seen of all others: they have ended."""
        self.seen = {name: self.seen[name] for name in kept if name in self.seen}

    def _key(self, metric: Metric, labels: Labels, family: Mapping[Labels, object]) -> Labels:
        key = tuple(self.bounded(name, value) for name, value in zip(metric.labels, labels, strict=True))
        if key in family or len(family) < SERIES_MAX:
            return key
        return tuple(OTHER if name in MOST else value for name, value in zip(metric.labels, key, strict=True))

    def bounded(self, name: str, value: str) -> str:
        """The value as it is shown."""
        value = tidy(value)
        known = self._known.get(name)
        if known is None or value in known:
            return value
        if len(known) >= MOST[name]:
            return OTHER
        known.add(value)
        return value

    # Keeping -------------------------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The form in which it is kept."""
        read = self.read
        cursors = {name: {"last": one.last, "open": sorted(one.open)} for name, one in (("waits", read.waits), ("requests", read.requests))}
        shape = {
            "read": {"journal": read.journal, "turned_away": read.turned_away, "breakers": read.breakers, **cursors},
            "values": {name: [[*key, value] for key, value in family.items()] for name, family in self.values.items()},
            "spreads": {name: [[*key, one.buckets, one.total] for key, one in family.items()] for name, family in self.spreads.items()},
            "seen": self.seen,
            "known": {name: sorted(values) for name, values in self._known.items()},
        }
        return json.dumps(shape, separators=(",", ":"))

    def copy(self) -> Counts:
        """One to try with."""
        return Counts.from_json(self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Counts:
        """What `to_json` wrote; a metric whose labels or buckets are others now begins anew. Raises ValueError, KeyError, TypeError or
        AttributeError for anything else."""
        shape: dict[str, Any] = json.loads(text)
        made, read = cls(), shape["read"]
        cursors = {name: Cursor(int(read[name]["last"]), set(map(int, read[name]["open"]))) for name in ("waits", "requests")}
        made.read = Read(int(read["journal"]), cursors["waits"], cursors["requests"], int(read["turned_away"]), int(read["breakers"]))
        for name, rows in shape["values"].items():
            if (metric := BY_NAME.get(name)) is not None and metric.type is MetricType.COUNTER:
                made.values[name] = {tuple(key): float(value) for *key, value in rows if len(key) == len(metric.labels)}
        for name, rows in shape["spreads"].items():
            if (metric := BY_NAME.get(name)) is not None:
                made.spreads[name] = {
                    tuple(key): Spread(list(map(int, buckets)), float(total))
                    for *key, buckets, total in rows
                    if len(key) == len(metric.labels) and len(buckets) == len(metric.buckets) + 1
                }
        made.seen = {str(of): {str(what): float(value) for what, value in seen.items()} for of, seen in shape["seen"].items()}
        made._known = {name: set(map(str, shape["known"].get(name, ()))) for name in MOST}
        return made


def tidy(value: str) -> str:
    """A label's value without what is no text, and cut: names are given by agents and clients."""
    shown = "".join(sign if sign.isprintable() else "�" for sign in value[:LABEL_MAX])
    return shown or "none"


def agent_name(task: str) -> str:
    """A task's name without its run: a job that runs every night is one agent."""
    return task.partition("/")[2] or task


# Folding
# -------
# How rows of the ledger and of the gateway's account become counters. A row is given once.


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
        counts.add(TASKS_ENDED, row.event)
    elif row.event == "start":
        counts.add(ATTEMPTS_STARTED)
    elif row.event in _DEADLOCKS:
        counts.add(DEADLOCKS, _DEADLOCKS[row.event])
    elif row.event == "night refused":
        counts.add(NIGHTS, "refused")
    elif row.event == "night ended" and row.night:
        counts.add(NIGHTS, night_outcome(row.night))


def _ended(counts: Counts, row: Entry) -> None:
    counts.add(ATTEMPTS_ENDED, _ENDS[row.event])
    if (state := str(row.data.get("task"))) in _FINAL:
        counts.add(TASKS_ENDED, state)
    agent, account = agent_name(row.task), row.account
    _processors(counts, row.task, row.epoch, account.get("cpu_s"), account.get("tool_cpu_s"))
    if account.get("human_s"):
        counts.add(HUMAN_WAIT, agent, by=account["human_s"])
    if account.get("slot_queue_s") is not None:
        counts.observe(SLOT_WAIT, value=account["slot_queue_s"])
    if account.get("wall_s") is not None:
        counts.observe(ATTEMPT_SECONDS, value=account["wall_s"])


def living(counts: Counts, task: str, epoch: int, measured: Measured) -> None:
    """Count what an attempt that lives has taken since it was last looked at."""
    cpu_s, own_s = measured.cpu_s, measured.agent_cpu_s
    _processors(counts, task, epoch, cpu_s, None if cpu_s is None or own_s is None else cpu_s - own_s)


def _processors(counts: Counts, task: str, epoch: int, cpu_s: float | None, tools_s: float | None) -> None:
    agent, of = agent_name(task), attempt_name(task, epoch)
    if cpu_s is not None:
        counts.ratchet(CPU, agent, of=of, what="cpu", to=cpu_s)
    if tools_s is not None:
        counts.ratchet(TOOL_CPU, agent, of=of, what="tools", to=tools_s)


def night_outcome(states: Mapping[str, int]) -> str:
    """`done` when every task is, `failed` when none is, else `partly`."""
    done, others = states.get(TaskState.DONE, 0), sum(number for state, number in states.items() if state != TaskState.DONE)
    if not others:
        return "done"
    return "partly" if done else "failed"


def waited(counts: Counts, kind: str, seconds: float) -> None:
    """Count a wait of an agent that is over."""
    counts.observe(WAIT_SECONDS, kind, value=seconds)


def settled(counts: Counts, row: Mapping[str, Any]) -> None:
    """Count a sending that is over: a row of the account's `request`. `served`: its upstream answered it."""
    agent, model = agent_name(row["agent"]), str(row["model"])
    counts.add(LLM_REQUESTS, agent, model, "none" if row["status"] is None else str(row["status"]))
    tokens = {kind: row[kind] or 0 for kind in ("input", "output", "cache_read", "cache_write")}
    for kind, number in tokens.items():
        if number:
            counts.add(LLM_TOKENS, agent, model, kind, by=number)
    if row["cost_usd"] is not None:
        counts.add(COST, agent, model, by=row["cost_usd"])
    elif any(tokens.values()):
        counts.add(UNPRICED, agent, model)
    if row["served"]:
        _timed(counts, agent, row)


def _timed(counts: Counts, agent: str, row: Mapping[str, Any]) -> None:
    counts.add(THROTTLED, agent, by=row["queued_ms"] / 1000)
    counts.observe(QUEUE_WAIT, value=row["queued_ms"] / 1000)
    if row["first_byte_ms"] is not None:
        counts.observe(FIRST_TOKEN, value=row["first_byte_ms"] / 1000)
    if row["total_ms"] is not None:
        counts.observe(DURATION, value=row["total_ms"] / 1000)


def turned_away(counts: Counts, row: Mapping[str, Any]) -> None:
    """Count a request that we answered ourselves: a row of the account's `turned_away`."""
    agent = agent_name(row["agent"])
    counts.add(LLM_REQUESTS, agent, str(row["model_class"]), f"own_{row['status']}")
    counts.add(THROTTLED, agent, by=row["waited_ms"] / 1000)
    counts.observe(QUEUE_WAIT, value=row["waited_ms"] / 1000)


def changed(counts: Counts, pool: str, data: Mapping[str, Any]) -> None:
    """Count a change of a breaker."""
    counts.add(BREAKER_TRANSITIONS, f"{pool}/{data['breaker']}", str(data["after"]))
