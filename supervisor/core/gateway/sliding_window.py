"""What was spent in the last span of time, kept in slots, so that a minute of thousands of requests is sixty numbers."""

from __future__ import annotations

from collections import deque

Slot = list[float]
"""[number of the slot, amount]; a slot that fell out of the span has the number -1."""


class SlidingWindow:
    """A sliding sum. An amount leaves it when its whole slot is older than the span: up to one `step_s` late, never early.

    What was spent beyond a cap is owed: it is part of the sum, and moves into the span as what was spent before leaves it. So a span holds
    at most the cap, and whoever passed the cap pays for it in the spans after, however many pass it at once.
    """

    __slots__ = ("_owed", "_slots", "_slots_kept", "_step_s", "_total")

    def __init__(self, span_s: float = 60.0, step_s: float = 1.0) -> None:
        self._step_s = step_s
        self._slots_kept = int(span_s / step_s)
        self._slots: deque[Slot] = deque()
        self._total = 0.0
        """Of all slots."""
        self._owed = 0.0

    def add(self, amount: float, now: float) -> Slot:
        """Count `amount` as spent now. The slot is for `change`."""
        slots = self._slots
        if not slots or slots[-1][0] < now // self._step_s:
            self._forget(now // self._step_s)
            slots.append([now // self._step_s, 0.0])
        slot = slots[-1]
        slot[1] += amount
        self._total += amount
        return slot

    def add_below(self, cap: float, amount: float, now: float) -> Slot:
        """The same; what does not fit below `cap` is owed."""
        room = max(0.0, cap - self.sum(now))
        self._owed += max(0.0, amount - room)
        return self.add(min(amount, room), now)

    def change(self, slot: Slot, delta: float) -> None:
        """Correct an amount that was counted. What is given back goes to what is owed first; else nothing happens when the slot left the
        span."""
        if delta < 0 and self._owed:
            paid = min(self._owed, -delta)
            self._owed -= paid
            delta += paid
        if slot[0] >= 0:
            delta = max(delta, -slot[1])  # what was counted there and given back to what is owed is not given back twice
            slot[1] += delta
            self._total += delta

    def forgive(self) -> None:
        """Nothing is owed any more: there is no cap."""
        self._owed = 0.0

    def sum(self, now: float) -> float:
        """The amount of the span before now, and what is owed."""
        self._forget(now // self._step_s)
        return self._total + self._owed

    def at_most_at(self, amount: float, now: float) -> float:
        """When the sum will be `amount` or less, if nothing is added: now, or the end of a slot."""
        total, when, owed = self.sum(now), now, self._owed
        slots = deque((number, spent) for number, spent in self._slots)
        while total > amount and slots:
            number, spent = slots.popleft()
            left = number + self._slots_kept + 1
            moved = min(spent, owed)
            if moved > 0:
                slots.append((left, moved))
                owed -= moved
            total -= spent - max(0.0, moved)
            when = left * self._step_s
        return when

    def _forget(self, number: float) -> None:
        slots = self._slots
        while slots and slots[0][0] + self._slots_kept < number:
            old = slots.popleft()
            self._total -= old[1]
            moved = min(old[1], self._owed)
            if moved > 0:
                slots.append([old[0] + self._slots_kept + 1, moved])
                self._total += moved
                self._owed -= moved
            old[0] = -1
        if not slots:
            self._total = 0.0  # float rounding does not pile up
