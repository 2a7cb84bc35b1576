"""Admission for an inference engine of the person's: its limit is its free slots.

There is nothing to learn and nothing to ramp up. A request is sent exactly when a slot is free, the engine is ready, and prompt and answer
fit into a slot's context. Both APIs and all models of an engine share its slots, and all engines share one queue.

What waits for an engine, by the engine's record:

    none, stopped, starting   waits; its hold time counts
    ready                     is sent in its turn
    failed                    waits while the engine was ready since it failed before (it is started again at once); else it is
                              answered 503 with the reason, also what comes later, until the record says something else

A request that the engine refuses or drops before its client saw anything is sent again after a pause, and answered 503 after `TRIES`.

A batch request may be interrupted for an interactive one that finds no free slot: while it decodes (an engine does not look for a hang-up
during a prompt), while its client has seen nothing, and `INTERRUPTS` times at most, so that it ends some time. vLLM and SGLang put
requests in order by a field `priority`, so nothing is cut there.
"""

from __future__ import annotations

from typing import Final

from supervisor.gateway.admission.breaker import BreakerPolicy, PoolHooks, Refusals, backoff_s
from supervisor.gateway.admission.pool import Pool
from supervisor.gateway.admission.types import NEVER, DimensionView, End, PoolKey, Refused, Ticket, TurnAway
from supervisor.kernel.engines import Engine, EngineKind, EngineRecord, EngineState
from supervisor.kernel.gateway_settings import Policy, Upstream
from supervisor.kernel.states import TaskClass

TRIES: Final = 5
INTERRUPTS: Final = 2
LEFT_S: Final = 60.0
"""A request whose hold time is over sooner is not interrupted: it would be told to come back."""
_ORDERING: Final = frozenset({EngineKind.VLLM, EngineKind.SGLANG})


class EngineSlots(Pool):
    """The slots of one engine. Never forgotten: it holds the engine's record."""

    __slots__ = ("_broken", "_restarts", "engine", "record")

    def __init__(self, key: PoolKey, upstream: Upstream, engine: Engine, policy: Policy, hooks: PoolHooks, now: float) -> None:
        super().__init__(key, upstream, policy, hooks, now)
        self.breakers = _NoBreaker(self, policy, hooks, now)
        self.engine = engine
        self.record: EngineRecord | None = None
        self._restarts = self._broken = False
        """It was ready since it failed; and it failed and was not."""

    def changed(self, record: EngineRecord | None) -> None:
        """The engine's record is another one; told twice, it counts once."""
        if record == self.record:
            return
        self.record = record
        self._broken = self.state is EngineState.FAILED and not self._restarts
        if self.state in (EngineState.READY, EngineState.FAILED):
            self._restarts = self.state is EngineState.READY

    @property
    def state(self) -> EngineState:
        """What the engine's process does."""
        return self.record.state if self.record is not None else EngineState.STOPPED

    @property
    def slots(self) -> int:
        """Requests that it serves at once: as the engine says, else as the settings do."""
        return (self.record.slots if self.record is not None else 0) or self.engine.slots

    @property
    def context(self) -> int:
        """Tokens of one slot, likewise; 0: nobody knows what an adopted engine has."""
        said = self.record.context if self.record is not None else 0
        return said or (0 if self.engine.kind is EngineKind.ADOPTED else self.engine.context)

    def reload(self, upstream: Upstream, policy: Policy, now: float) -> None:
        """Other settings from now on."""
        super().reload(upstream, policy, now)
        self.engine = upstream.engine or self.engine

    def fits(self, ticket: Ticket, share: float, now: float) -> bool:  # noqa: ARG002 - as a pool; no slot is kept free
        """Whether a slot is free."""
        return self.state is EngineState.READY and self.in_flight < self.slots

    def ready_at(self, ticket: Ticket, share: float, now: float) -> float:
        """Only an event frees a slot."""
        return now if self.fits(ticket, share, now) else NEVER

    def idle(self, now: float) -> bool:  # noqa: ARG002 - as a pool
        """It is never forgotten."""
        return False

    def send(self, ticket: Ticket, now: float) -> None:
        """Give it a slot, and decide whether it may be interrupted in it."""
        super().send(ticket, now)
        ticket.withheld = _is_batch(ticket) and self.engine.kind not in _ORDERING and ticket.interrupts < INTERRUPTS
        ticket.decodes_since = None
        ticket.interrupted = False

    def never(self, ticket: Ticket) -> TurnAway | None:
        """Why the engine cannot serve the request, however long it waits."""
        record = self.record
        engine = self.engine.name
        event = ticket.event
        if self._broken and record is not None:
            return TurnAway(ticket.id, 503, f"the engine {engine} does not run: {record.why or 'it failed'}")
        if event.tools and record is not None and not record.tools:
            what = "serves a model whose chat template has no place for tools, and this request brings some"
            do = f"send it without tools, or give [engine.{engine}] of the settings a model or a chat template that takes them"
            return TurnAway(ticket.id, 400, f"the engine {engine} {what}; {do}")
        # What fits must not be refused, so the estimate is on the low side; what does not fit after all the engine refuses itself.
        prompt = ticket.guess.habit.least_input(event.body_bytes)
        most = event.max_tokens or 1
        if 0 < self.context < prompt + most:
            return TurnAway(ticket.id, 400, _too_long(prompt, most, self.context, engine))
        if ticket.refusals is not None and ticket.refusals.count >= TRIES:
            return TurnAway(ticket.id, 503, f"the engine {engine} failed on this request {TRIES} times, at last: {ticket.refusals.why}")
        return None

    def victim(self, now: float) -> Ticket | None:
        """The request to interrupt for a more urgent one: that with the least output, which of requests that decode side by side is the
        one that began last. None: none may be, or one is being interrupted already."""
        if self.state is not EngineState.READY or self.in_flight < self.slots or any(one.interrupted for one in self._under_way):
            return None
        decoding = [(one.decodes_since, one.id, one) for one in self._under_way if one.decodes_since is not None]
        return max((one for one in decoding if now + LEFT_S <= one[2].deadline), default=(0.0, 0, None))[2]

    def views(self, now: float) -> tuple[DimensionView, ...]:  # noqa: ARG002 - as a pool
        """Its slots, for people."""
        slots = self.slots
        used = self.in_flight
        return (DimensionView("slots", None, slots - used, slots, used, 0.0, used / slots),)


class _NoBreaker(BreakerPolicy):
    """Always closed: the engine's record says whether it serves."""

    __slots__ = ()

    def refused(self, ticket: Ticket, event: Refused, now: float) -> float:
        """Count it; the seconds until it queues again."""
        ticket.refusals = ticket.refusals or Refusals()
        ticket.refusals.add(self._pool.key.account, event.why, now, others_served=False)
        ticket.refusals.why = f"{event.why}: {event.detail}" if event.detail else str(event.why)
        return backoff_s(ticket.refusals.count)

    def ended(self, ticket: Ticket, end: End, now: float) -> None:
        """Nothing follows from how it ended."""


def _is_batch(ticket: Ticket) -> bool:
    return ticket.event.agent.task_class is TaskClass.BATCH


def _too_long(prompt: int, most: int, context: int, engine: str) -> str:
    """In the words by which clients know that a conversation has grown too long, and how much room there is."""
    if prompt >= context:
        found = f"prompt is too long: {prompt} tokens > {context} maximum"
    else:
        found = f"input length and `max_tokens` exceed context limit: {prompt} + {most} > {context}, decrease input length or `max_tokens`"
    return f"{found} (the input is estimated; {context} tokens is the context length of a slot of the engine {engine})"
