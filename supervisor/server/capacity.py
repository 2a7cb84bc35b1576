"""How many agents the machine and the models carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.kinds import of_task
from supervisor.host import cores
from supervisor.host.clock import Clock
from supervisor.host.usage import Memory, PressureReader
from supervisor.kernel import capacity, schedule
from supervisor.kernel.capacity import AGENT, COMMAND, MIB, Capacity, Means, Need, Size
from supervisor.kernel.crew import Crew, Task
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.events import Event, PressureChanged, SlotsChanged, StartCostLearned
from supervisor.kernel.pressure import ADMIT, Conditions, Decision, Pressure, Verdict
from supervisor.kernel.settings import Settings
from supervisor.kernel.states import TaskClass
from supervisor.store.conversations import Needs

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


# Capacity
# --------
# How many agents the machine and the models carry, looked at every few seconds, and what is learned of each kind of agent.
#
# Belongs to the loop's thread: what it looks at answers at once.


Key = tuple[str, int]
LOOK_S = 2.0
YOUNG_S = 60.0
"""An attempt that is younger has not taken its memory yet: what it needs is kept for it."""
RESERVE, RESERVE_PART = 512 * MIB, 0.05
"""Memory that is not for agents: as many bytes, or that part of all when it is more."""
CONTENDED = 0.8
"""The processors were contended while something waited for one for this part of the time, ..."""
CONTENDED_PART = 0.2
"""... and an attempt was when they were for this part of its life."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last look."""

    pressure: Pressure
    memory: Memory | None
    means: Means
    found: Capacity


class CapacityWatch:
    """One supervisor's."""

    def __init__(self, needs: Needs, settings: Settings, clock: Clock, reader: PressureReader | None = None) -> None:
        self._ledger = needs
        self._settings = settings
        self._clock = clock
        usable = len(cores.usable())
        self._cores = len(cores.for_agents(settings.cores_reserve))
        self._reader = reader or PressureReader(usable)
        self.start = capacity.start(usable) if not settings.grows else settings.slots
        self.needs = needs.all()
        self._unwritten: set[str] = set()
        self._contended, self._contended_s = False, 0.0
        self._since: dict[Key, float] = {}
        self._looked_at: float | None = None
        self.seen: Seen | None = None
        """None before the first look."""

    # What is learned ---------------------------------------------------------------------------------------------------------------

    def need(self, kind: str) -> Need:
        """What one agent of the kind takes, as far as it is known."""
        return self.needs.get(kind) or (AGENT if of_task(kind).is_agent else COMMAND)

    def ended(self, key: Key) -> None:
        """Learn from an attempt that the ledger says has ended."""
        since = self._since.pop(key, None)
        if (found := self._ledger.took(*key)) is None:
            return
        kind, took = found
        calm = since is not None and self._contended_s - since < CONTENDED_PART * took.wall_s
        self.needs[kind] = capacity.learn(self.need(kind), took if not calm else replace(took, contended=False))
        self._unwritten.add(kind)

    def _keep(self) -> None:
        """Write what was learned since the last look. It is kept in memory when the disk is full, and tried again."""
        try:
            if self._unwritten:
                self._ledger.keep({kind: self.needs[kind] for kind in self._unwritten})
                self._unwritten.clear()
        except NightcrewError:  # a full disk says so in many other places
            return

    # The look ----------------------------------------------------------------------------------------------------------------------

    def step(self, crew: Crew) -> list[Event]:
        """What changed for the crew since the last look; before it is time for the next one, only what attempts were learned to cost."""
        now = self._clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_S:
            return self._cost(crew)
        self._watch_processors(crew, now - (now if self._looked_at is None else self._looked_at))
        self._looked_at = now
        self._keep()
        pressure, memory = self._reader.look()
        living = [task for task in crew.living.values() if takes_slot(crew, task)]
        means = self._means(crew, memory, now)
        found = capacity.capacity(means, [self.need(task.kind) for task in living], self._waiting(crew.waiting))
        self.seen = Seen(pressure, memory, means, found)
        slots = capacity.grown(Size(crew.slots, len(living), crew.waiting.total()), found, means, self._settings.growth)
        changed: list[Event] = [PressureChanged(**asdict(pressure)), *self._cost(crew)]
        return changed if slots == crew.slots else [SlotsChanged(slots), *changed]

    def _cost(self, crew: Crew) -> list[Event]:
        usd = {kind: need.usd for kind, need in self.needs.items() if need.usd}
        return [StartCostLearned(usd)] if usd != crew.start_usd else []

    def _watch_processors(self, crew: Crew, passed_s: float) -> None:
        stall = self._reader.cpu_stall()
        self._contended = stall is None or stall >= CONTENDED
        self._contended_s += passed_s * self._contended
        keys = {(task.id, task.epoch) for task in crew.living.values()}
        self._since = {key: self._since.get(key, self._contended_s) for key in keys}

    def _waiting(self, kinds: Counter[str]) -> Iterable[tuple[Need, int]]:
        return [(self.need(kind), count) for kind, count in kinds.items() if count > 0]

    def _means(self, crew: Crew, memory: Memory | None, now: float) -> Means:
        free = None
        if memory is not None:
            young = [task for task in crew.living.values() if task.attempt is not None and now - task.attempt.since < YOUNG_S]
            kept = max(RESERVE, round(RESERVE_PART * memory.total)) + sum(self.need(task.kind).memory for task in young)
            free = memory.available - kept
        cap = None if self._settings.grows else self._settings.slots
        return Means(cap, self.start, float(self._cores), free, crew.traffic.tpm, self._contended)


def takes_slot(crew: Crew, task: Task) -> bool:
    """Whether a living attempt counts against the slots: one that is paused or has unfinished children does not, see `scheduler.pick`."""
    return task.attempt is not None and task.attempt.holds_slot and not crew.children.get(task.id)


def slots_verdict(crew: Crew, seen: Seen | None) -> Verdict:
    """Whether a slot is free, and else what keeps the crew from having more."""
    taken = sum(takes_slot(crew, task) for task in crew.living.values())
    if taken < crew.slots:
        return ADMIT
    return Verdict(Decision.DEFER, "slots", f"waits for a slot ({taken} of {crew.slots} taken{_why_no_more(crew, seen)})")


def _why_no_more(crew: Crew, seen: Seen | None) -> str:
    if seen is not None and crew.slots < seen.found.slots:
        return "; the crew grows"
    if seen is None or seen.found.binding == "cap":
        return ""
    return f"; {seen.found.binding} {'carry' if seen.found.binding in ('cores', 'tokens') else 'carries'} no more"


def conditions(crew: Crew, closed: Verdict, window: str, seen: Seen | None) -> Conditions:
    """Why tasks that are ready do not start. `window`: why batch tasks do not, by the time; empty when that is not the reason."""
    held = dict(crew.held_back)
    if window:
        held[TaskClass.BATCH] = Verdict(Decision.DEFER, "window", window)
    return Conditions(closed, held, slots_verdict(crew, seen), schedule.waits(crew))


def shape(watch: CapacityWatch, crew: Crew, settings: Settings) -> dict[str, Any]:
    """What `nightcrew capacity --json` prints; `seen` parts are null before the first look."""
    seen = watch.seen
    means = asdict(seen.means) if seen is not None else None
    return {
        "slots": crew.slots,
        "cap": None if settings.grows else settings.slots,
        "start": watch.start,
        "living": sum(takes_slot(crew, task) for task in crew.living.values()),
        "waiting": crew.waiting.total(),
        "binding": seen.found.binding if seen is not None else None,
        "carries": dict(seen.found.carries) if seen is not None else None,
        "next": _need(seen.found.next) if seen is not None else None,
        "means": means,
        "pressure": asdict(seen.pressure) if seen is not None else None,
        "predicted_wait_s": _predicted(crew, seen),
        "held": {str(name): verdict.shape() for name, verdict in crew.held_back.items()},
        "growth": asdict(settings.growth),
        "needs": {kind: _need(need) for kind, need in sorted(watch.needs.items())},
    }


def _predicted(crew: Crew, seen: Seen | None) -> float | None:
    if seen is None or not seen.found.next.wall_s:
        return None
    return round(capacity.predicted_wait_s(crew.waiting.total(), crew.slots, seen.found.next), 1)


def _need(need: Need) -> dict[str, Any]:
    return {**asdict(need), "assumed": need.assumed()}


# Capacity
# --------
# How many agents the machine and the models carry, and what each kind takes.


async def handle(loop: Loop) -> dict[str, Any]:
    """As `capacity.shape`."""
    return shape(loop.machine.capacity, loop.crew, loop.settings)
