"""Every metric that is served: its name, type, labels and meaning. What is not listed here cannot be counted or shown.

Labels are bounded: no metric has a task's id, a run or a session among its labels. `agent` is a task's name without its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from supervisor.core.gateway.types import BreakerState
from supervisor.core.states import FINAL, End, TaskClass, TaskState
from supervisor.core.wait_graph import WaitKind


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
