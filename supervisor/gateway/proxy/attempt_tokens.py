"""Who the agents are: what the ledger says of the attempt that a token names. It is only read here, in a thread of its own, so that a
slow disk holds up new requests and never a stream."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from supervisor.features.night import rows as night_rows
from supervisor.gateway.admission.types import Agent, NightCap
from supervisor.kernel import codec, tokens
from supervisor.kernel.errors import LedgerError
from supervisor.kernel.kind import is_patient
from supervisor.kernel.night import NightState
from supervisor.kernel.records import attempt_name
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import LIVING
from supervisor.store import history, sqlite

FRESH_S = 1.0
"""What was read is believed for so long: a token dies at most this much after its attempt."""
_CACHED = 10_000
MAP_WORKER = "map-prompt"
"""The kind of the workers of a map that ask models. The same map, asked for again, has other tasks: they go on with its batches."""


class Roster:
    """Use it from one event loop; `close` it."""

    def __init__(self, ledger: Path, secret: bytes, now: Callable[[], float]) -> None:
        """`now` gives monotonic seconds."""
        self._path = ledger
        self._secret = secret
        self._now = now
        self._thread = ThreadPoolExecutor(1, "roster")
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0)
        self._known: dict[str, tuple[float, Agent | None]] = {}
        """By tokens of ours: when it was read, and what."""

    async def agent(self, token: str) -> Agent | None:
        """Whose token it is; None for one that is not ours, or whose attempt has ended. Raises LedgerError when nobody can tell."""
        read_at, agent = self._known.get(token, (-FRESH_S, None))
        if self._now() - read_at < FRESH_S:
            return agent
        name = tokens.check(self._secret, token)
        if name is None:
            return None
        agent = await asyncio.get_running_loop().run_in_executor(self._thread, self._read, *name)
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[token] = (self._now(), agent)
        return agent

    async def nights(self) -> list[tuple[NightCap, list[str]]]:
        """The nights with a cap that have not ended, each with all its tasks. Raises LedgerError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._nights)

    def _nights(self) -> list[tuple[NightCap, list[str]]]:
        with contextlib.closing(sqlite.connect_readonly(self._path)) as db:
            found = [row for row in night_rows.every(db) if row.terms.cost_max and row.state is not NightState.ENDED]
            return [(NightCap(row.run, row.terms.cost_max), night_rows.tasks(db, row.run)) for row in found]

    def name(self, token: str) -> str:
        """`task:epoch` of a token of ours, whether or not its attempt lives; empty for any other."""
        found = tokens.check(self._secret, token)
        return attempt_name(*found) if found is not None else ""

    async def close(self) -> None:
        """Give the ledger back."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()

    def _read(self, task: str, epoch: int) -> Agent | None:
        try:
            return self._look(task, epoch)
        except LedgerError:  # the file may have been replaced, or migrated by a newer daemon: look at it afresh, once
            self._drop()
            return self._look(task, epoch)

    def _look(self, task: str, epoch: int) -> Agent | None:
        if self._db is None:
            self._db = sqlite.connect_readonly(self._path)
            self._opened = sqlite.file_identity(self._path)
        sqlite.check_same_file(self._path, self._opened)
        row = self._db.execute(
            """SELECT t.spec, t.project, a.state, n.run AS night, n.cost_max FROM task t
               JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch JOIN run r ON r.id = t.run
               LEFT JOIN night n ON n.run = r.night AND n.cost_max > 0 AND n.state <> 'ended'
               WHERE t.id = ? AND t.epoch = ?""",
            (task, epoch),
        ).fetchone()
        if row is None or row["state"] not in LIVING:
            return None
        agent = _agent(task, epoch, row["spec"], row["project"])
        if row["night"] is not None:
            agent = replace(agent, night=NightCap(row["night"], row["cost_max"]))
        if agent.cost_max is None:
            return agent
        return replace(agent, cost_max=max(0.0, agent.cost_max - history.given_to_children(self._db, task)))

    def _drop(self) -> None:
        if self._db is not None:
            with contextlib.suppress(LedgerError):
                self._db.close()
            self._db = None


@functools.lru_cache(maxsize=1000)  # of the thread; a spec does not change while its attempt lives
def _agent(task: str, epoch: int, text: str, project: str) -> Agent:
    spec = codec.loads(TaskSpec, text)
    return Agent(
        name=task,
        epoch=epoch,
        task_class=spec.task_class,
        weight=spec.weight,
        tpm_max=spec.tpm_max or None,
        cost_max=spec.cost_max or None,
        cost_assumed="cost_max" in spec.assumed,
        tokens_max=spec.tokens_max or None,
        size=spec.size,
        family=f"maps of {project}" if spec.kind == MAP_WORKER else task,
        patient=is_patient(spec.task_class),
    )
