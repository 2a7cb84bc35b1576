"""Keeps in the ledger's history when starting became allowed or forbidden, for whom and why."""

from __future__ import annotations

import contextlib

from supervisor.core.admission import ADMIT, Verdict
from supervisor.core.crew import Crew
from supervisor.core.errors import DiskFull, LedgerError
from supervisor.core.states import BatchTime
from supervisor.daemon.admission import Admission
from supervisor.ledger.ledger import Ledger

_Known = tuple[bool, tuple[tuple[str, str], ...], str]
_OPEN: _Known = (True, (), str(BatchTime.ALWAYS))


class AdmissionHistory:
    """Belongs to the loop's thread."""

    def __init__(self, ledger: Ledger, admission: Admission) -> None:
        self._ledger = ledger
        self._admission = admission
        self._kept = _OPEN

    def step(self, crew: Crew) -> None:
        """Journal what is not as it was last journalled. What a full disk keeps from that is kept by the next step."""
        now: _Known = crew.admitting, tuple(sorted((str(name), held.code) for name, held in crew.held_back.items())), str(crew.batch_time)
        if now == self._kept:
            return
        verdict: Verdict = next(iter(crew.held_back.values()), ADMIT) if now[0] else self._admission.verdict
        data = {"admitting": now[0], "held_back": dict(now[1]), "batch": now[2], "code": verdict.code, "why": verdict.words}
        with contextlib.suppress(DiskFull, LedgerError):
            self._ledger.journal(None, None, "admission", data)
            self._kept = now
