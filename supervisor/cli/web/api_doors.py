"""How the API acts: as `nightcrew add`, `kill`, `diff` and `capacity` do, with nothing that a client named as a path."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.config.plan import TITLE_MAX
from supervisor.core.access import Token
from supervisor.core.errors import NotFound, NotRunning, Refused
from supervisor.core.spec import Submission, TaskSpec
from supervisor.daemon import lock, protocol, results, submit
from supervisor.daemon.handlers.submit import to_wire
from supervisor.daemon.submit import Workplace
from supervisor.faces.web.api.doors import Order
from supervisor.faces.web.api.models import PATCH_MAX, TaskRequest
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.ledger import archive
from supervisor.ledger.queries import TaskView

PLACE_S = 1.0
"""A repository and what its files say are looked at again after this."""


class VerbDoors:
    """As `supervisor.faces.web.api.doors.Doors`."""

    def __init__(self, where: Home) -> None:
        self._where = where
        self._places: dict[str, tuple[float, Workplace]] = {}
        self._locks: dict[str, threading.Lock] = {}

    def submit(self, order: Order) -> str:
        """Checked as a plan is, by the same code."""
        if lock.holder(self._where.lock) is None:
            raise NotRunning("no supervisor is running", kept="nothing of it", hint="nightcrew up -d")
        submission = self._submission(order, self._place(order.root))
        if any(task.snapshot for task in submission.spec.tasks):
            from supervisor.cli import snapshot_progress

            submission = snapshot_progress.ready_for(self._where, submission)
        run = str(self._ask("submit", to_wire(submission))["run"])
        failpoint("api.submitted")
        return run

    def _submission(self, order: Order, place: Workplace) -> Submission:
        asked = order.request
        made, _ = submit.of_words((), _options(asked), place, asked.base, order.key, os.environ)
        tasks = tuple(_within(task, order.token) for task in made.spec.tasks)
        return replace(made, spec=replace(made.spec, tasks=tasks), token=order.token.id, digest=order.digest)

    def _place(self, root: str) -> Workplace:
        """The repository at `root`; who comes while it is looked at shares what is found."""
        with self._locks.setdefault(root, threading.Lock()):
            at, place = self._places.get(root, (0.0, None))
            if place is None or time.monotonic() - at > PLACE_S:
                began = time.monotonic()
                place = submit.workplace(Path(root))
                self._places[root] = began, place
            return place

    def cancel(self, task: str) -> bool:
        """As `nightcrew kill`, without waiting for its end."""
        if archive.has(self._where.archive, task.partition("/")[0]):
            return False
        return task in self._ask("kill", {"tasks": [task]})["asked"]

    def result(self, view: TaskView, *, patch: bool) -> dict[str, Any]:
        """As `nightcrew diff`."""
        with contextlib.closing(archive.reader(self._where.ledger, self._where.archive, view.run)) as db:
            try:
                found = results.result(db, view)
                stat = results.diff(db, view, stat=True)
                text = results.patch(db, view, PATCH_MAX) if patch else None
            except (NotFound, Refused):  # there is no branch yet, or no more
                return {"base": view.base_oid, "tip": None, "stat": "", "patch": None}
        shown = None if text is None else text.decode("utf-8", "replace")
        return {"base": view.base_oid, "tip": found.tip, "stat": stat.encode("utf-8", "replace").decode(), "patch": shown}

    def capacity(self) -> dict[str, Any]:
        """As `nightcrew capacity`."""
        return self._ask("capacity", {})

    def used(self, token: str) -> None:
        """Noted in the ledger."""
        self._ask("token", {"op": "used", "tokens": [token]})

    def _ask(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        return protocol.call(self._where.daemon_socket, verb, args)


def _options(asked: TaskRequest) -> dict[str, Any]:
    """As a plan has them. What is a command stays one, and a prompt a prompt, whatever the kind is: else it is refused."""
    command = asked.command
    said = command if isinstance(command, str) else " ".join(command or ())
    title = asked.title if asked.title is not None or command is None else said[:TITLE_MAX]
    return {**asked.options(), "command": command, "prompt": asked.prompt, "title": title}


def _within(task: TaskSpec, token: Token) -> TaskSpec:
    """The task as this token may have it: its user is its submitter, and a sandbox holds it unless a person said otherwise."""
    tier = task.sandbox or (2 if task.network is not True else 1)
    return replace(task, submitter=token.user, sandbox=tier if token.confined else task.sandbox)
