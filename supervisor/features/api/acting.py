"""How the API acts: as `nightcrew add`, `kill`, `diff` and `capacity` do, with nothing that a client named as a path."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.kinds import kinds
from supervisor.client import protocol, submit
from supervisor.client.submit import Workplace
from supervisor.config.plan import TITLE_MAX
from supervisor.features.api.models import PATCH_MAX, Order, TaskRequest
from supervisor.features.api.rules import Token
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotFound, NotRunning, Refused, UsageError
from supervisor.kernel.spec import Submission, TaskSpec
from supervisor.results import taking
from supervisor.server import lock
from supervisor.store import archive
from supervisor.store.queries import TaskView
from worktrees.repository import KnownHead

FRESH_S, OLD_S = 1.0, 5.0
"""What a repository's files say is looked at again after the first, and never believed for longer than the second."""
_STEERS = "variables say what a sandbox opens for writing, and what is loaded before it is closed: set them in the command"
"""LD_PRELOAD, HOME, XDG_CACHE_HOME: no list of names could be complete."""


class _Place:
    """A repository and what its files say, which whoever submits shares. It is looked at again while the last look still serves."""

    def __init__(self, root: str) -> None:
        self._root, self._head = root, KnownHead()
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._at = 0.0
        self._known: Workplace | None = None

    def now(self) -> Workplace:
        """As it was FRESH_S ago at most, or while somebody submits all the time OLD_S. Raises what `submit.workplace` raises."""
        age = time.monotonic() - self._at
        if self._known is not None and age < OLD_S:
            if age > FRESH_S and self._looking.acquire(blocking=False):
                threading.Thread(target=self._beside, daemon=True).start()
            return self._known
        with self._lock:
            if self._known is None or time.monotonic() - self._at > FRESH_S:
                self._known = self._look()
            return self._known

    def _beside(self) -> None:
        try:
            with contextlib.suppress(NightcrewError):  # the next look that is waited for says what is wrong
                self._known = self._look()
        finally:
            self._looking.release()

    def _look(self) -> Workplace:
        began = time.monotonic()
        found = replace(submit.workplace(Path(self._root)), resolve=self._head.resolve)
        self._at = began
        return found


class VerbDoors:
    """What the handlers are given to act with. Each method runs in a thread, and raises NightcrewError."""

    def __init__(self, where: Home) -> None:
        self._where = where
        self._places: dict[str, _Place] = {}

    def submit(self, order: Order) -> str:
        """Hand a task over, after the checks of a plan; return the run, once it is on disk."""
        if lock.holder(self._where.lock) is None:
            raise NotRunning("no supervisor is running", kept="nothing of it", hint="nightcrew up -d")
        submission = self._submission(order, self._place(order.root))
        if any(task.snapshot for task in submission.spec.tasks):
            submission = submit.with_snapshots(self._where, submission, may_ask=False)
        run = str(self._ask("submit", submission)["run"])
        failpoint("api.submitted")
        return run

    def _submission(self, order: Order, place: Workplace) -> Submission:
        asked = order.request
        if asked.params and order.token.confined:
            raise UsageError("not for a token that is held to a sandbox", on="params", why=_STEERS)
        made, _ = submit.of_words((), _options(asked), place, asked.base, order.key, os.environ)
        if attended := next((task.kind for task in made.spec.tasks if kinds()[task.kind].attended), ""):
            raise UsageError("not for a program", on="kind", why=f"no person would sit at a task of kind {attended}")
        tasks = tuple(_within(task, order.token) for task in made.spec.tasks)
        return replace(made, spec=replace(made.spec, tasks=tasks), token=order.token.id, digest=order.digest)

    def _place(self, root: str) -> Workplace:
        return self._places.setdefault(root, _Place(root)).now()

    def cancel(self, task: str) -> bool:
        """Ask a task to end, as `nightcrew kill`; False: it had ended."""
        if archive.has(self._where.archive, task.partition("/")[0]):
            return False
        return task in self._ask("kill", {"tasks": [task]})["asked"]

    def result(self, view: TaskView, *, patch: bool) -> dict[str, Any]:
        """Return `base tip stat patch`, of what there is."""
        with contextlib.closing(archive.reader(self._where.ledger, self._where.archive, view.run)) as db:
            try:
                found = taking.result(db, view)
                stat = taking.diff(db, view, stat=True)
                text = taking.patch(db, view, PATCH_MAX) if patch else None
            except (NotFound, Refused):  # there is no branch yet, or no more
                return {"base": view.base_oid, "tip": None, "stat": "", "patch": None}
        shown = None if text is None else text.decode("utf-8", "replace")
        return {"base": view.base_oid, "tip": found.tip, "stat": stat.encode("utf-8", "replace").decode(), "patch": shown}

    def capacity(self) -> dict[str, Any]:
        """As `nightcrew capacity --json`."""
        return self._ask("capacity", {})

    def used(self, token: str) -> None:
        """Note that a token was used just now."""
        self._ask("token", {"op": "used", "tokens": [token]})

    def _ask(self, verb: str, args: object) -> dict[str, Any]:
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
