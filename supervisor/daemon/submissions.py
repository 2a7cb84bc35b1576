"""Submissions that arrive at one moment are one commit: the disk is waited for once, and each is on it before it is answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from supervisor.core.errors import LedgerError, NightcrewError
from supervisor.core.spec import Submission
from supervisor.ledger.ledger import Ledger

_TURNS = 8
"""Of the event loop: what has arrived at the socket by now is a request after so many."""
Made = tuple[str, bool]
"""As `Ledger.submit` returns it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    submission: Submission
    run: str
    made: asyncio.Future[Made]


class Submissions:
    """One supervisor's. It belongs to one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[_Waiting] = []
        self._committing: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> int:
        """That wait for their commit."""
        return sum(len(one.submission.spec.tasks) for one in self._waiting)

    def has(self, run: str) -> bool:
        """Whether a run of this id waits for its commit."""
        return any(one.run == run for one in self._waiting)

    async def commit(self, submission: Submission, run: str) -> Made:
        """As `Ledger.submit`, beside all others that wait now."""
        loop = asyncio.get_running_loop()
        one = _Waiting(submission, run, loop.create_future())
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
                if one.made.done():  # whoever asked was cancelled
                    continue
                if isinstance(made, NightcrewError):
                    one.made.set_exception(made)
                else:
                    one.made.set_result(made)

    def _made(self, batch: list[_Waiting]) -> list[Made | NightcrewError]:
        try:
            return self._ledger.submit_all([(one.submission, one.run) for one in batch])
        except LedgerError as error:
            if len(batch) == 1:
                return [error]
            return [made for one in batch for made in self._made([one])]  # one of them cannot be written: the others can
        except NightcrewError as error:  # a full disk, for all of them
            return [error] * len(batch)
