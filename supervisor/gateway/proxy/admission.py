"""The only caller of `Traffic`: reports events to it, wakes requests that may be sent, and sets a timer for what time alone changes.

Everything here is synchronous and on one loop, so nothing can come between a decision and its reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.budget import Never, Wait
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    Alert,
    Arrived,
    BatchEnded,
    BatchHold,
    BreakerState,
    Command,
    End,
    Ended,
    Event,
    GatewaySettings,
    Journal,
    PoolKey,
    Refused,
    Send,
    Tick,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.gateway.keys import Log

_LATE_S = 0.001
"""A timer may fire this much too early by our clock; then it would find nothing to do, and be set again."""
BUSY_AGAIN_S = 2
"""What a client is told when the gateway stops: the next one is up within this time."""


class Admission:
    """Use it from one event loop."""

    def __init__(self, traffic: Traffic, account: Account, log: Log, now: Callable[[], float]) -> None:
        """`now` gives monotonic seconds."""
        self.traffic = traffic
        self._account = account
        self._log = log
        self._now = now
        self._waiting: dict[int, asyncio.Future[Send | TurnAway]] = {}
        self._breakers: dict[tuple[PoolKey, str], BreakerState] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """By the same clock as `now`."""
        self._closed = False

    async def turn(self, event: Arrived | Refused) -> Send | TurnAway:
        """Report that a request came, or was refused by its upstream, and wait until it may be sent.

        A caller that is cancelled leaves the queue. One that returns `Send` must tell what became of it: `Refused` by another `turn`, or
        `Ended`.
        """
        turn: asyncio.Future[Send | TurnAway] = asyncio.get_running_loop().create_future()
        self._waiting[event.ticket] = turn
        if self._closed:
            turn.set_result(_going(event.ticket))
        else:
            self.tell(event)
        try:
            return await turn
        except asyncio.CancelledError:
            self.tell(_left(event.ticket, turn))
            raise
        finally:
            self._waiting.pop(event.ticket, None)

    def tell(self, event: Event) -> None:
        """Tell what happened, and do what follows from it."""
        now = self._now()
        for command in self.traffic.handle(event, now):
            self._act(command)
        self._set_timer(now)

    def open_batch(self, batch: BatchHold) -> Wait | Never | None:
        """Reserve the most that a batch can take, to be given back by `close_batch` or by a `BatchEnded`; or why it may not be made now."""
        return self.traffic.crew.open_batch(batch, self._now())

    def close_batch(self, batch: BatchHold) -> None:
        """It was not made."""
        self.tell(BatchEnded(batch, 0.0, 0))

    def breaker(self, pool: PoolKey) -> BreakerState:
        """The worse state of the pool's two breakers."""
        states = {state for (of, _), state in self._breakers.items() if of == pool}
        return next((state for state in (BreakerState.OPEN, BreakerState.HALF_OPEN) if state in states), BreakerState.CLOSED)

    def reload(self, settings: GatewaySettings) -> None:
        """Other settings from now on; those who wait and those who are being served stay."""
        now = self._now()
        for command in self.traffic.reload(settings, now):
            self._act(command)
        self._set_timer(now)

    def close(self) -> None:
        """Answer all waiting requests so that their clients come back; nothing is sent any more."""
        self._closed = True
        for ticket, turn in self._waiting.items():
            if not turn.done():
                turn.set_result(_going(ticket))
        if self._timer is not None:
            self._timer.cancel()

    def _act(self, command: Command) -> None:
        match command:
            case Send() | TurnAway():
                self._wake(command)
            case Journal():
                self._breakers[command.pool, command.breaker] = command.after
                self._account.journal(command)
            case Alert():
                self._account.alert(command)
                self._log.alert(command.about, command.text)
            case _:
                assert_never(command)

    def _wake(self, command: Send | TurnAway) -> None:
        turn = self._waiting.get(command.ticket)
        if turn is not None and not turn.done():
            turn.set_result(command)
        elif isinstance(command, Send):  # its client left a moment ago, and its task has not run yet to say so
            self.tell(_nothing_sent(command.ticket))

    def _set_timer(self, now: float) -> None:
        """One timer for the next moment at which time alone changes something. One that comes too early is kept, and looks again."""
        due = self.traffic.wakes_at(now)
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now) + _LATE_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(Tick())


def _left(ticket: int, turn: asyncio.Future[Send | TurnAway]) -> Event:
    """A client that left at the moment its request could be sent: nothing was sent."""
    got_turn = turn.done() and not turn.cancelled() and isinstance(turn.result(), Send)
    return _nothing_sent(ticket) if got_turn else Withdrawn(ticket)


def _nothing_sent(ticket: int) -> Ended:
    return Ended(ticket, End.CLIENT_GONE, Usage(), cost_usd=0.0, tokens=0)


def _going(ticket: int) -> TurnAway:
    return TurnAway(ticket, 503, "the gateway is being restarted; try again", BUSY_AGAIN_S)
