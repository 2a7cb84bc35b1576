"""Fair share of starts between submitters: start-time fair queueing (Goyal, Vin, Cheng 1996), each start costing 1.

A submitter's next start has a tag: the end of its last one (a start takes 1 / weight of its virtual time), or the virtual clock when
that is later; the clock is the tag of the newest start. The smallest tag goes first. So who has had many starts waits for who has had
few, and who comes anew begins at the clock: time without tasks is no credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Queue = tuple[str, str, str]
"""Class of the tasks, submitter, and night."""


@dataclass(frozen=True, slots=True)
class FairShare:
    """How many starts each submitter has had, as far as it still counts."""

    clocks: Mapping[str, float] = field(default_factory=dict)
    """Virtual time of each class."""
    ends: Mapping[Queue, float] = field(default_factory=dict)
    """Where each submitter's last start ends. One that is not listed has had none, or none that still counts."""
    moved: Mapping[Queue, float] = field(default_factory=dict)
    """What goes before `ends`: those that started since. Copied at each start, which `ends` are too many for."""

    def end(self, queue: Queue) -> float:
        """Where the queue's last start ends; 0 for none. The queue with the least of a class has the smallest tag."""
        return self.moved.get(queue, self.ends.get(queue, 0.0))

    def is_over(self, queue: Queue) -> bool:
        """Whether its past starts count no more: its next one's tag is the clock."""
        return self.end(queue) <= self.clocks.get(queue[0], 0.0)

    def started(self, queue: Queue, weight: float, *, in_turn: bool) -> FairShare:
        """After a start of the queue. `in_turn` is False for one that did not go by its tag: it counts, and leaves the clock alone."""
        tag = max(self.end(queue), self.clocks.get(queue[0], 0.0))
        clocks = {**self.clocks, queue[0]: tag} if in_turn else self.clocks
        return FairShare(clocks, self.ends, {**self.moved, queue: tag + 1.0 / weight})
