"""Submissions that arrive at one moment are one commit: the disk is waited for once, and each is on it before it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervisor.core.errors import LedgerError, NightcrewError
from supervisor.core.events import Event, Submitted
from supervisor.core.spec import Submission, TaskSpec
from supervisor.daemon import nights
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.ledger.ledger import Ledger, Settle

_TURNS = 8
"""Of the event loop: what has arrived at the socket by now is a request after so many."""
Made = tuple[str, bool]
"""As `Ledger.submit` returns it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    submission: Submission
    run: str
    settle: Settle | None
    made: asyncio.Future[Made]


class Submissions:
    """One supervisor's. It belongs to one event loop."""

    def __init__(self, ledger: Ledger, clock: Clock, offer: Callable[[Iterable[Event]], None]) -> None:
        """`offer` gets the events of each new run as soon as it is committed, also when its client has left meanwhile."""
        self._ledger, self._clock, self._offer = ledger, clock, offer
        self._waiting: list[_Waiting] = []
        self._committing: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> int:
        """That wait for their commit."""
        return sum(len(one.submission.spec.tasks) for one in self._waiting)

    def has(self, run: str) -> bool:
        """Whether a run of this id waits for its commit."""
        return any(one.run == run for one in self._waiting)

    async def commit(self, submission: Submission, run: str, settle: Settle | None = None) -> Made:
        """Commit as `Ledger.submit` does, together with all others that wait now. `settle` has the last word, see `Ledger.submit_all`."""
        loop = asyncio.get_running_loop()
        one = _Waiting(submission, run, settle, loop.create_future())
        self._waiting.append(one)
        if self._committing is None or self._committing.done():
            self._committing = loop.create_task(self._commit())
        return await one.made

    async def _commit(self) -> None:
        while self._waiting:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            batch, self._waiting = self._waiting, []
            for one, made in zip(batch, self._made(batch), strict=True):
                if not isinstance(made, NightcrewError) and made[1]:
                    failpoint("submit.committed")
                    self._taken(made[0], one.submission.spec.tasks if one.settle is None else ())
                if one.made.done():  # the client left
                    continue
                if isinstance(made, NightcrewError):
                    one.made.set_exception(made)
                else:
                    one.made.set_result(made)

    def _taken(self, run: str, known: tuple[TaskSpec, ...]) -> None:
        """Offer the tasks of a committed run, after those of earlier runs that they come after: the loop forgets tasks that have ended."""
        now = self._clock.monotonic()
        tasks = self._ledger.tasks_of_run(run, now, known)
        needed = sorted({need for task in tasks for need in task.after} - {task.id for task in tasks})
        before = [self._ledger.task(need, now) for need in needed]
        self._offer([*nights.began(self._ledger, run), Submitted((*before, *tasks))])

    def _made(self, batch: list[_Waiting]) -> list[Made | NightcrewError]:
        try:
            settle = {one.run: one.settle for one in batch if one.settle is not None}
            return self._ledger.submit_all([(one.submission, one.run) for one in batch], settle)
        except LedgerError as error:
            if len(batch) == 1:
                return [error]
            return [made for one in batch for made in self._made([one])]  # one of them cannot be written: the others can
        except NightcrewError as error:  # a full disk, for all of them
            return [error] * len(batch)
