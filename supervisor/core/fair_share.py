"""Fair share of starts between submitters: start-time fair queueing (Goyal, Vin, Cheng 1996), each start costing 1.

A submitter's next start has a tag: the end of its last one (a start takes 1 / weight of its virtual time), or the virtual clock when
that is later; the clock is the tag of the newest start. The smallest tag goes first. So who has had many starts waits for who has had
few, and who comes anew begins at the clock: time without tasks is no credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Queue = tuple[str, str]
"""Class of the tasks, and submitter."""


@dataclass(frozen=True, slots=True)
class FairShare:
    """How many starts each submitter has had, as far as it still counts."""

    clocks: Mapping[str, float] = field(default_factory=dict)
    """Virtual time of each class."""
    ends: Mapping[Queue, float] = field(default_factory=dict)
    """Where each submitter's last start ends, of those for whom that is later than the clock."""

    def tag(self, queue: Queue) -> float:
        """Start tag of the queue's next task."""
        return max(self.ends.get(queue, 0.0), self.clocks.get(queue[0], 0.0))

    def first(self, queues: Iterable[Queue]) -> list[Queue]:
        """The queues, the one whose turn it is first; of equal ones the first by name."""
        return sorted(queues, key=lambda queue: (self.tag(queue), queue))

    def started(self, queue: Queue, weight: float, *, in_turn: bool) -> FairShare:
        """After a start of the queue. `in_turn` is False for one that did not go by its tag: it counts, and leaves the clock alone."""
        tag = self.tag(queue)
        clocks = {**self.clocks, queue[0]: tag} if in_turn else self.clocks
        ends = {**self.ends, queue: tag + 1.0 / weight}
        return FairShare(clocks, {each: end for each, end in ends.items() if end > clocks.get(each[0], 0.0)})
