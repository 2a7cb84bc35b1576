"""How often the agent of a task may ask to add one, whatever became of it."""

from __future__ import annotations

from collections import Counter, OrderedDict

from supervisor.core.errors import Refused
from supervisor.core.gateway.bucket import Bucket

RATE, BURST = 1.0, 50.0
"""Requests a second, and at once."""
SHOWN_S = 10.0
"""Between two lines of history about the refusals of one task: each is a commit."""
_TASKS_MAX = 1024


class AddRate:
    """Of all tasks. Belongs to the loop's thread; a restart begins anew, which gives each task one more burst."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._refused: Counter[str] = Counter()
        self._shown: dict[str, float] = {}

    def take(self, task: str, now: float) -> None:
        """Count one request at `now` (monotonic). Raises Refused when there were too many."""
        bucket = self._buckets.setdefault(task, Bucket(RATE, BURST, now))
        self._buckets.move_to_end(task)
        while len(self._buckets) > _TASKS_MAX:
            gone, _ = self._buckets.popitem(last=False)
            self._refused.pop(gone, None)
            self._shown.pop(gone, None)
        if (wait_s := bucket.wait_s(1.0, now)) > 0:
            why = f"it asked more than {BURST:.0f} times, and then more than {RATE:g} a second; again in {wait_s:.1f} s"
            raise Refused("not added", on=task, why=why, kept="what was added before")
        bucket.take(1.0, now)

    def refused(self, task: str, now: float) -> int:
        """Count a refusal. How many there were when it is time to show them, else 0."""
        self._refused[task] += 1
        if now - self._shown.get(task, -SHOWN_S) < SHOWN_S:
            return 0
        self._shown[task] = now
        return self._refused[task]
