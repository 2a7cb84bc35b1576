"""Whether new work may start: the host, an outage, and a machine that slept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from supervisor.kernel.format import duration
from supervisor.kernel.states import TaskClass

# Admission
# ---------
# Whether work is taken now: a verdict with its reason. Pure.
#
# The machine or the models can be too busy for more agents: then tasks of the class `batch` are held back first, then `normal`, and
# `interactive` never. What cannot be looked at counts as too busy. Which of the tasks that are not held back starts is
# `scheduler`'s.


class Decision(StrEnum):
    """What becomes of work that is offered."""

    ADMIT = "admit"
    DEFER = "defer"
    """It waits, and is looked at again by itself."""
    REFUSE = "refuse"
    """It is not taken: whoever offers it has to do something about it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and its reason."""

    decision: Decision
    code: str = ""
    """The reason for programs; docs/capacity.md lists them. Empty for `admit`."""
    words: str = ""
    """The reason for people."""
    since: float = 0.0
    """Wall-clock seconds since when the code has been the reason; 0: not known."""

    def shape(self) -> dict[str, object]:
        """As JSON has it."""
        return {"decision": str(self.decision), "code": self.code, "words": self.words, "since": self.since or None}


ADMIT = Verdict(Decision.ADMIT)
MODEL_CODES = ("breaker", "parked", "models", "cost")
"""Of a class that is held back because of the models, and not of the machine."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """How busy the models are, as the gateway says."""

    delay_s: float = 0.0
    """How long a request that came now would wait for its turn."""
    parked: bool = False
    """Nothing is served before a limit's reset."""
    closed: str = ""
    """Why no model that the crew uses is served at all (its breaker); empty when one is."""
    tpm: float | None = None
    """Tokens per minute that the limits in use give; None: no limit is known."""
    night: float | None = None
    """Part of `cost_per_night` that is spent; None without that cap."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """How busy the machine is. None: this machine does not tell."""

    load: float | None = None
    """Load average of a minute, for each usable core."""
    memory: float | None = None
    """Part of the memory that is taken, 0 to 1."""
    memory_stall: float | None = None
    """Part of the last 10 s in which all processes waited for memory, 0 to 1 (PSI, `full`)."""
    io_stall: float | None = None
    """The same for disks."""
    processes: float | None = None
    """Part of the processes and threads that the system allows."""
    trouble: str = ""
    """What could not be looked at although it should be there, and why; empty when nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on classes are held back, as far as it is a setting."""

    load_max: float = 50.0
    """Load for each usable core from which batch tasks are held back; twice that holds back normal ones too. 0: none are. The default is
    twice the load that 50 busy agents make on 2 cores."""
    waiting_max: int = 100_000
    """Unfinished tasks beyond which no more are taken."""


HOLDS_FROM_S: Mapping[TaskClass, float] = {TaskClass.BATCH: 30.0, TaskClass.NORMAL: 120.0}
"""A class is held back when a request would wait this long, and until it would wait less than half of it, so that one request more or
less does not start and stop the crew. 120 s is half of what a request is held for by default (`hold`, 240 s): beyond it, one more agent
brings those at work close to the answer 429. Batch tasks give way at a quarter of that."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One measure that holds classes back."""

    code: str
    batch: float
    """Batch tasks are held back from here on."""
    normal: float
    release: float
    """Part of the limit below which a class is let go again."""
    words: Callable[[float], str]
    value: Callable[[Traffic, Pressure], float | None]

    def holds(self, found: float, task_class: TaskClass, before: Verdict | None) -> bool:
        limit = self.batch if task_class is TaskClass.BATCH else self.normal
        return found >= limit or (before is not None and before.code == self.code and found >= limit * self.release)


def _percent(of: str) -> Callable[[float], str]:
    return lambda value: f"waits for the machine ({value:.0%} {of})"


_RULES = (
    _Rule("models", HOLDS_FROM_S[TaskClass.BATCH], HOLDS_FROM_S[TaskClass.NORMAL], 0.5, lambda s: _model_words(s), lambda t, _: t.delay_s),
    _Rule("cost", 0.95, 0.95, 0.95, lambda part: f"waits for cost_per_night ({part:.0%} of it is spent)", lambda t, _: t.night),
    _Rule("memory", 0.92, 0.96, 0.97, _percent("of the memory is taken"), lambda _, p: p.memory),
    _Rule("memory_stall", 0.1, 0.3, 0.5, _percent("of the time goes into waiting for memory"), lambda _, p: p.memory_stall),
    _Rule("io_stall", 0.8, 0.95, 0.5, _percent("of the time goes into waiting for disks"), lambda _, p: p.io_stall),
    _Rule("processes", 0.8, 0.9, 0.95, _percent("of the processes that the system allows are there"), lambda _, p: p.processes),
)


def _load_rule(limits: Limits) -> _Rule:
    most = limits.load_max
    return _Rule("load", most, 2 * most, 0.75, lambda load: f"waits for the machine (load {load:.0f} a core)", lambda _, p: p.load)


def _model_words(delay_s: float) -> str:
    if delay_s < 1.0:
        return "waits for the model limit"
    return f"waits for the model limit (a request waits {duration(delay_s)})"


Held = Mapping[TaskClass, Verdict]
"""The classes that are held back, and why."""


def held(before: Held, traffic: Traffic, pressure: Pressure, limits: Limits, wall: float) -> dict[TaskClass, Verdict]:
    """The classes to hold back now, given those `before`. `wall` is seconds since 1970."""
    found = {}
    for task_class in HOLDS_FROM_S:
        was = before.get(task_class)
        reason = next(_reasons(task_class, was, traffic, pressure, limits), None)
        if reason is not None:
            since = was.since if was is not None and was.code == reason[0] else wall
            found[task_class] = Verdict(Decision.DEFER, *reason, since)
    if TaskClass.NORMAL in found:  # for what it is not let go of yet, while batch was held for something else
        found.setdefault(TaskClass.BATCH, found[TaskClass.NORMAL])
    return found


def _reasons(task_class: TaskClass, was: Verdict | None, traffic: Traffic, pressure: Pressure, limits: Limits) -> Iterator[tuple[str, str]]:
    """Code and words of each reason, the weightiest first."""
    if traffic.closed:
        yield "breaker", f"waits for the models ({traffic.closed})"
    if traffic.parked:
        yield "parked", "waits for the model limit (nothing is served before its reset)"
    if pressure.trouble:
        yield "unknown", f"waits for the machine ({pressure.trouble})"
    for rule in (*_RULES, *([_load_rule(limits)] if limits.load_max else [])):
        value = rule.value(traffic, pressure)
        if value is not None and rule.holds(value, task_class, was):
            yield rule.code, rule.words(value)


def of_submission(unfinished: int, new: int, limits: Limits) -> Verdict:
    """Whether a run of `new` tasks is taken while so many are unfinished."""
    if unfinished + new > limits.waiting_max:
        why = f"{unfinished} tasks are unfinished, and with {new} more it would be over waiting_max ({limits.waiting_max})"
        return Verdict(Decision.REFUSE, "queue_full", why)
    return ADMIT


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides, beside the task itself, whether one that is ready may start."""

    closed: Verdict = ADMIT
    """Of the whole crew."""
    held: Held = field(default_factory=dict)
    slots: Verdict = ADMIT
    """`defer` when all slots are taken."""
    nights: Mapping[str, Verdict] = field(default_factory=dict)
    """By run, and by `run kind`: what its night keeps from starting."""


def of_start(task_class: TaskClass, now: Conditions, *, night: str = "", kind: str = "") -> Verdict:
    """Whether a ready task of a class may start, by what decides it first. `night`: the run whose terms hold for it."""
    if now.closed.decision is not Decision.ADMIT:
        return now.closed
    found = now.nights.get(night) or now.nights.get(f"{night} {kind}")
    return found or now.held.get(task_class, now.slots)


# Health
# ------
# Whether an outage goes on, as the crew keeps it: see `core.outage`.


@dataclass(frozen=True, slots=True)
class Outage:
    """One that goes on. Moments are monotonic seconds."""

    since: float
    why: str
    probe_at: float
    """When the next probe may start, if none lives."""
    provider: bool = False
    """The gateway says so, and says when it is over."""
    victims: frozenset[str] = frozenset()
    """Tasks whose attempts died in it."""
    probe: str = ""
    """The task that is started to see whether it is over."""
    failed: int = 0
    """Probes that died; while no provider serves anything, those that were started."""

    def words(self) -> str:
        """Why nothing else starts, in a person's words."""
        return f"an outage: {self.why}; one agent at a time tries whether it is over"


@dataclass(frozen=True, slots=True)
class Health:
    """What the crew knows of it."""

    deaths: tuple[tuple[float, str, str], ...] = ()
    """Moment, task and cause of the newest deaths, no older than two seconds when the newest came."""
    outage: Outage | None = None


WELL: Final = Health()


# Timekeeping
# -----------
# What two looks at the machine's three clocks say of the time between: that it slept, and that somebody set the wall clock. Pure.
#
# Every duration and deadline of ours is counted by the monotonic clock, which stands still while the machine sleeps: so nothing is
# late for having slept. What follows the wall clock (`not_after`, the end of a night, the reset of a limit) is due at once after a
# wake.


SLEPT_MIN_S: Final = 1.0
"""A shorter sleep changes nothing that anybody looks at."""
JUMPED_MIN_S: Final = 2.0
"""A wake sets the wall clock by the hardware's, which counts whole seconds, and NTP moves it by milliseconds: neither is a jump."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The three clocks, read at one moment."""

    wall: float
    """Seconds since 1970."""
    monotonic: float
    """Seconds that stand still while the machine sleeps."""
    boottime: float
    """Seconds that do not."""


@dataclass(frozen=True, slots=True)
class Slept:
    """The machine slept."""

    seconds: float
    begin: float
    """Wall-clock seconds of the look before."""
    end: float
    """Of the look after."""


@dataclass(frozen=True, slots=True)
class Jumped:
    """Somebody, or a time server, set the wall clock."""

    seconds: float
    """Positive: forward."""


def between(before: Moment, now: Moment) -> tuple[Slept | Jumped, ...]:
    """What happened between two looks of one boot, in this order. A process that was stopped meanwhile neither slept nor jumped."""
    passed = now.boottime - before.boottime
    slept = passed - (now.monotonic - before.monotonic)
    jumped = now.wall - before.wall - passed
    found: list[Slept | Jumped] = [Slept(slept, before.wall, now.wall)] if slept >= SLEPT_MIN_S else []
    return (*found, Jumped(jumped)) if abs(jumped) >= JUMPED_MIN_S else tuple(found)
