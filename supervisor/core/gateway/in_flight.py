"""The requests of one pool that are in flight: what is reserved for them, and how wrong that may be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from supervisor.core.gateway.types import Api

if TYPE_CHECKING:
    from supervisor.core.gateway.estimate import Guess
    from supervisor.core.gateway.ticket import Ticket

FIRST_SPEED = 60.0
"""Tokens of output a second, before an answer was measured."""
FIRST_LASTS_S = 10.0
"""Seconds from sending to the end, before a request was measured."""
FALL = 0.1
"""Weight of the newest request where it is quicker than those before; one that is slower counts at once."""
FASTER = 1.5
"""Output may be written so many times faster than the mean."""
LEAST_DOUBT = 0.05
SIGMAS = 1.0
"""Mean deviations by which all outputs together may be more than expected."""
REQUESTS, INPUT, OUTPUT, TOKENS = range(4)


class InFlight:
    """Amounts are tokens, times monotonic seconds."""

    __slots__ = (
        "_answered", "_answered_sum", "_deviation", "_input_doubt", "_promised", "_speed", "_tickets", "_variance", "input", "lasts_s",
        "late_s", "output",
    )  # fmt: skip

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self.input = 0.0
        """Reserved for inputs that the provider has not said."""
        self.output = 0.0
        """Reserved for output; the provider may have counted part of it."""
        self._input_doubt = 0.0
        self._answered = 0
        self._answered_sum = 0.0
        """Of the times at which the provider began to answer."""
        self._promised = 0.0
        self._deviation = self._variance = 0.0
        """Sums of the deviations in `output`, and of their squares."""
        self._speed = FIRST_SPEED
        self.late_s = 0.0
        """From sending to the head of the answer: the slowest of late."""
        self.lasts_s = FIRST_LASTS_S
        """From sending to the end, in the mean."""

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """It was sent, with its reservation."""
        self._tickets[ticket.id] = ticket
        self.input += ticket.input
        self.output += ticket.output
        ticket.doubt = ticket.input * max(2 * ticket.guess.habit.spread, LEAST_DOUBT)
        self._input_doubt += ticket.doubt
        ticket.deviation = caution(ticket.guess)
        self._vary(ticket, 1)
        if ticket.api is not Api.ANTHROPIC:
            self._promised += ticket.event.max_tokens or ticket.guess.output

    def expected_output(self, more: Guess | None = None) -> float:
        """Of all together, and of one more. Each is reserved with its deviation; the sum of many varies by less than the sum of what each
        may vary by."""
        output, deviation, variance = self.output, self._deviation, self._variance
        if more is not None:
            its = caution(more)
            output, deviation, variance = output + more.output, deviation + its, variance + its * its
        return output - deviation + min(deviation, SIGMAS * math.sqrt(max(0.0, variance)))

    @property
    def unanswered(self) -> int:
        """How many of them have no head yet."""
        return len(self._tickets) - self._answered

    def answered(self, ticket: Ticket, now: float) -> None:
        """The head of its answer came."""
        self.late_s = _slowest(self.late_s, now - ticket.sent_at)
        self._answered += 1
        self._answered_sum += now
        ticket.answered_at = now

    def input_known(self, ticket: Ticket) -> None:
        """The provider said its input."""
        self.input -= ticket.input
        self._input_doubt -= ticket.doubt

    def more_output(self, tokens: float) -> None:
        """More is reserved for its output."""
        self.output += tokens

    def close(self, ticket: Ticket) -> None:
        """It is over: free its reservation, as `add` and the later calls set it."""
        del self._tickets[ticket.id]
        if not self._tickets:  # float rounding does not pile up
            self.input = self.output = self._input_doubt = self._answered_sum = self._promised = 0.0
            self._deviation = self._variance = 0.0
            self._answered = 0
            return
        if not ticket.input_known:
            self.input_known(ticket)
        self.output -= ticket.output
        self._vary(ticket, -1)
        if ticket.answered_at is not None:
            self._answered -= 1
            self._answered_sum -= ticket.answered_at
        if ticket.api is not Api.ANTHROPIC:
            self._promised -= ticket.event.max_tokens or ticket.guess.output

    def served(self, ticket: Ticket, tokens_out: float, now: float) -> None:
        """It was served to its end, and wrote so much."""
        self.lasts_s += FALL * (now - ticket.sent_at - self.lasts_s)
        if ticket.answered_at is not None and now - ticket.answered_at >= 1.0:
            self._speed += FALL * (tokens_out / (now - ticket.answered_at) - self._speed)

    def lasting_s(self) -> float:
        """From sending to the end: as it was of late, and not less than what is expected now takes to be written."""
        each = self.expected_output() / len(self._tickets) if self._tickets else 0.0
        return max(self.lasts_s, each / self._speed)

    def reserved(self, index: int) -> float:
        """For requests of which the provider has not said yet what they took."""
        return (float(len(self._tickets)), self.input, self.output, self.input + self.output)[index]

    def written(self, now: float) -> float:
        """Output that has been written by now, of answers that are not complete."""
        return self._speed * (self._answered * now - self._answered_sum)

    def doubt(self, index: int, now: float) -> tuple[float, float]:
        """How much less, and how much more, than what is charged for them the provider may have counted by now: inputs may be off by as
        much as their estimates are, and output may be counted while it is written, at the speed at which it may have been."""
        if index == REQUESTS:
            return 0.0, 1.0
        if index == INPUT:
            return self._input_doubt, self._input_doubt
        output = FASTER * self.written(now) + self._promised
        return (0.0, output) if index == OUTPUT else (self._input_doubt, self._input_doubt + output)

    def _vary(self, ticket: Ticket, sign: int) -> None:
        self._deviation += sign * ticket.deviation
        self._variance += sign * ticket.deviation * ticket.deviation

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())


def caution(guess: Guess) -> float:
    """The part of a guessed output that is a deviation; of an agent that was never seen half of it."""
    return guess.output - guess.mean_output if guess.habit.turns else guess.output / 2


def _slowest(before: float, newest: float) -> float:
    return newest if newest > before else before + FALL * (newest - before)
