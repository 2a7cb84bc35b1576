"""What was spent in the last span of time, kept in slots, so that a minute of thousands of requests is sixty numbers."""

from __future__ import annotations

from collections import deque

Slot = list[float]
"""[number of the slot, amount]; a slot that fell out of the span has the number -1."""


class Recent:
    """A sliding sum. An amount leaves it when its whole slot is older than the span: up to one `step_s` late, never early."""

    __slots__ = ("_slots", "_slots_kept", "_step_s", "total")

    def __init__(self, span_s: float = 60.0, step_s: float = 1.0) -> None:
        self._step_s = step_s
        self._slots_kept = int(span_s / step_s)
        self._slots: deque[Slot] = deque()
        self.total = 0.0

    def add(self, amount: float, now: float) -> Slot:
        """Count `amount` as spent now. The slot is for `change`."""
        slots = self._slots
        if slots and slots[-1][0] >= now // self._step_s:
            slot = slots[-1]
            slot[1] += amount
            self.total += amount
            return slot
        self._forget(now // self._step_s)
        return self.add_later(amount, now)

    def add_later(self, amount: float, when: float) -> Slot:
        """Count `amount` from now on, as if it were spent at `when`, which is after all that was added before."""
        slot = [when // self._step_s, amount]
        self._slots.append(slot)
        self.total += amount
        return slot

    def change(self, slot: Slot, delta: float) -> None:
        """Correct an amount that `add` counted; nothing happens when it left the span."""
        if slot[0] >= 0:
            slot[1] += delta
            self.total += delta

    def sum(self, now: float) -> float:
        """The amount of the span before now."""
        self._forget(now // self._step_s)
        return self.total

    def at_most_at(self, amount: float, now: float) -> float:
        """When the sum will be `amount` or less, if nothing is added: now, or the end of a slot."""
        total, when = self.sum(now), now
        for number, spent in self._slots:
            if total <= amount:
                break
            total -= spent
            when = (number + self._slots_kept + 1) * self._step_s
        return when

    def _forget(self, number: float) -> None:
        slots = self._slots
        while slots and slots[0][0] + self._slots_kept < number:
            old = slots.popleft()
            self.total -= old[1]
            old[0] = -1
        if not slots:
            self.total = 0.0  # float rounding does not pile up
