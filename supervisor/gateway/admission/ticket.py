"""One request on its way through the gateway, as the decisions see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from supervisor.gateway.admission.breaker import Refusals
    from supervisor.gateway.admission.bucket import Mark
    from supervisor.gateway.admission.budget import Guess, Pot, Slot
    from supervisor.gateway.admission.events import Arrived
    from supervisor.gateway.admission.types import Api, Observed


QUEUED, LATER, SENT, GONE = range(4)
"""Where a ticket is. LATER: it failed, and waits for its next attempt before it queues again at its old place. GONE: it ended; heaps that
still hold it pass over it. Numbers and no enum: Python 3.11 needs 90 ns to look up a member."""


class Ticket:
    """Mutable, and changed by its lane, fair queue, pool and budget alone, which `model_queue.RoutedTicket` names. Amounts are tokens."""

    __slots__ = (
        "answered", "answered_at", "api", "arrived_at", "attempt", "bound", "cost", "counted", "deadline", "deviation", "doubt",
        "event", "guess", "id", "input", "input_known", "marks", "observed", "order", "output", "pots", "probe", "refusals", "route",
        "sent_at", "serial", "slot", "start", "upstream", "weight", "where",
    )  # fmt: skip

    def __init__(self, event: Arrived, api: Api, route: Hashable, weight: float, guess: Guess, now: float) -> None:
        self.id = event.ticket
        self.event = event
        self.api = api
        self.route = route
        """Requests of one agent with the same route go one after another."""
        self.weight = weight
        """Of its agent."""
        self.guess = guess
        self.arrived_at = now
        self.bound = event.bound_usd
        self.attempt = 0
        self.refusals: Refusals | None = None
        self.where = QUEUED
        self.start: float
        """Start tag of its class's virtual clock: smaller goes first."""
        self.order = event.ticket
        """Of two with the same tag the smaller goes first."""
        self.cost: float
        """What its agent's finish tag was raised by (before the weight)."""
        self.deadline: float
        # From here on only while it is sent.
        self.pots: tuple[Pot, ...]
        """What it was reserved in, beside its agent's own caps."""
        self.upstream: str
        self.serial: int
        self.sent_at: float
        self.marks: dict[int, Mark | None]
        """By each dimension that it was charged to the mark of the provider's level when it was sent; None: it was charged later, when the
        limit became known."""
        self.input: float
        """Limited input that is charged for it."""
        self.doubt: float
        """How much more its input may be, while the provider has not said it."""
        self.deviation: float
        """The part of its reserved output that is caution."""
        self.answered_at: float | None
        self.output: float
        self.input_known: bool
        self.answered: bool
        self.probe: bool
        self.observed: Observed | None
        self.slot: Slot
        self.counted: float
        """Tokens that its agent's last minutes hold for it, up from `slot`."""

    @property
    def bound_tokens(self) -> int:
        """The most that it can take."""
        return self.event.bound_tokens

    @property
    def model(self) -> str:
        """As it is sent."""
        return self.event.model
