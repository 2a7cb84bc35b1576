"""Choose the commit of a task that a person may merge, push or judge now: that of a result that is done, of an agent that sits idle at its
prompt, and of a task that was cancelled. Runs in the process of the command.

The commit is looked up once, and everything that follows acts on that commit, whatever its agent does meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agents.kinds import of_task
from agents.status import AgentState, Evidence, Source, fuse
from supervisor.core import records
from supervisor.core.errors import HostError, NightcrewError, NotFound, Refused, some_of
from supervisor.core.states import TaskState
from supervisor.daemon import protocol
from supervisor.daemon.environments import Environments
from supervisor.host.paths import home
from supervisor.ledger import rows
from supervisor.ledger.queries import TaskView
from worktrees import merge, securing
from worktrees.backends.overlay import UserOverlay
from worktrees.environment import Environment
from worktrees.environments import open_env
from worktrees.git import Git
from worktrees.inspection import Why
from worktrees.repository import Repository, resolve

_BUSY = {
    AgentState.WORKING: "works",
    AgentState.RATE_LIMITED: "waits for tokens",
    AgentState.WAITING_PERMISSION: "waits for a permission",
    AgentState.WAITING_INPUT: "waits for an answer",
}
_EVIDENCE_S = 2.0
_LEFT = frozenset({Why.DIRTY, Why.UNTRACKED, Why.NESTED})
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """One commit of a task, and what a person should know of it."""

    ref: str
    """A branch, or the full name of the ref that holds the changes that were not committed as well."""
    tip: str
    notes: tuple[str, ...] = ()
    """One line each; names in them are a stranger's."""


def refuse_unfit(view: TaskView, what: str, *, force: bool = False) -> None:
    """Raises Refused for a task whose commits are not to be merged as they are: `what` says to whom that is refused, such as "cannot take".
    With `force` also those of an agent at work are."""
    if view.state in (TaskState.DONE, TaskState.CANCELLED):
        return
    if view.final:
        why, hint = f"it is {view.state}: {view.end_cause or view.reason}", f"nightcrew diff {view.id}"
        raise Refused(what, on=view.id, why=why, kept="the checkout, its branch", hint=f"{hint}, then nightcrew take --print {view.id}")
    if view.state is not TaskState.RUNNING or not is_attended(view):
        raise Refused(what, on=view.id, why=f"it is {view.state}", kept="the checkout", hint=f"nightcrew wait {view.id}")
    if not force and (state := _agent_state(view)) in _BUSY:
        hint = f"again when it is idle (nightcrew status {view.id}), or --force for what it has committed by now"
        raise Refused(what, on=view.id, why=f"its agent {_BUSY[state]}", kept="the checkout, its branch", hint=hint)


def offer(db: sqlite3.Connection, repository: Repository, view: TaskView, *, with_changes: bool = False) -> Offer:
    """Return the commit of a task that `refuse_unfit` lets pass; with `with_changes` one that also holds what an idle agent has not
    committed. Raises NotFound where there is none, Refused where the changes cannot be included, HostError."""
    if view.branch is None:
        raise NotFound("no branch of", on=view.id, why="it changed nothing", hint=f"nightcrew status {view.id}")
    if view.state is not TaskState.RUNNING:
        stopped = f"{view.id} was stopped before it was done ({view.end_cause or view.reason}): no gate has judged its commits"
        return Offer(view.branch, _tip(repository, view), (stopped,) if view.state is TaskState.CANCELLED else ())
    made = environment(db, view)
    if made is None:
        raise NotFound("no commit of", on=view.id, why="its worktree is still being made", hint=f"nightcrew status {view.id}")
    _publish(made)
    has_gate = rows.launch(db, view.id).spec.gate_words
    said = "still runs: no gate has judged its commits" if has_gate else "has no gate: nothing has checked its commits"
    found = _with_changes(made, repository, view) if with_changes else Offer(view.branch, _tip(repository, view), uncommitted(made, view))
    return replace(found, notes=(f"{view.id} {said}", *found.notes))


def uncommitted(made: Environment, view: TaskView) -> tuple[str, ...]:
    """Say what an agent that lives has not committed, in a line for people; nothing where it has committed everything."""
    if _is_hidden(made):
        return (f"what {view.id} has not committed is not known: its files are in its sandbox",)
    try:
        with open_env(made) as seen:
            reasons = [one for one in securing.look(seen, objects=False).reasons if one.why in _LEFT]
    except NightcrewError as error:
        return (f"what {view.id} has not committed is not known: {error.line()}",)
    paths = [path for one in reasons for path in one.paths]
    more = sum(one.count for one in reasons) - len(paths)
    if not paths:
        return ()
    return (f"not committed, and left out: {some_of(paths, _NAMED, more)}; with these: nightcrew take --with-changes {view.id}",)


def left_out(db: sqlite3.Connection, view: TaskView, repository: Repository, into: str = "") -> tuple[str, ...]:
    """Say what of a task's work is on no branch, in lines for people: what an agent in a person's terminal has not committed, and what one
    that ended committed on a detached HEAD or on a branch of its own. Work that the commit `into` has (default: the checkout's) is not
    named. Raises as `Git.run`."""
    if view.final:
        return _astray(view, repository, into or repository.head)
    made = environment(db, view) if view.state is TaskState.RUNNING and is_attended(view) else None
    return uncommitted(made, view) if made is not None else ()


def _astray(view: TaskView, repository: Repository, into: str) -> tuple[str, ...]:
    result = view.result or {}
    kept, branch_tip = str(result.get("rescue") or ""), str(result.get("tip") or view.base_oid)
    if kept in ("", branch_tip, view.base_oid):
        return ()
    with contextlib.suppress(NotFound):  # its ref was removed by hand
        held = resolve(repository, records.rescue_ref(view.id, view.epoch))
        if repository.git.run(repository.store, "merge-base", "--is-ancestor", held, into, accept=(0, 1)).code:
            files = some_of(merge.changed(repository, branch_tip, held), _NAMED)
            return (f"{view.id} left work that is on no branch ({files}): nightcrew restore {view.id} makes a branch of it",)
    return ()


def is_attended(view: TaskView) -> bool:
    """Return whether a person works with the task's agent in its own terminal. Such an agent does not end by itself."""
    return of_task(view.kind).owns_terminal(interactive=view.interactive)


def environment(db: sqlite3.Connection, view: TaskView) -> Environment | None:
    """Return the worktree of the newest attempt of a task; None when its launch did not come so far."""
    row = rows.attempt(db, view.id, view.epoch)
    return Environments(Git(home().root / "git")).of(row, rows.launch(db, view.id)) if row is not None else None


def _publish(made: Environment) -> None:
    """Bring the commits of a confined agent over. The supervisor may do the same at this moment; the second try then finds it done."""
    if made.private is None:
        return
    with contextlib.suppress(HostError):
        securing.publish(made)
        return
    securing.publish(made)


def _with_changes(made: Environment, repository: Repository, view: TaskView) -> Offer:
    hint = f"nightcrew send {view.id} to have them committed, or nightcrew kill {view.id}, which secures them"
    if _is_hidden(made):
        raise Refused("cannot include changes", on=view.id, why="its files are in its sandbox", kept="its worktree", hint=hint)
    with open_env(made) as seen:
        secured = securing.snapshot(seen, f"nightcrew: what {view.id} had not committed")
    tip, held = _tip(repository, view), secured.rescue
    if held is None:
        return Offer(view.branch or "", tip)
    if repository.git.run(repository.store, "merge-base", "--is-ancestor", tip, held, accept=(0, 1)).code:
        raise Refused("cannot include changes", on=view.id, why=f"they do not stand on {view.branch}", kept=made.rescue_ref, hint=hint)
    return Offer(records.rescue_ref(view.id, view.epoch), held, tuple(secured.notes))


def _is_hidden(made: Environment) -> bool:
    """Return whether the files are mounted in the agent's sandbox alone. A second mount of the same layers could damage them."""
    return made.private is not None and made.layers is not None and made.layers.backend == UserOverlay.name


def _tip(repository: Repository, view: TaskView) -> str:
    try:
        return resolve(repository, view.branch or "")
    except NotFound:
        if (kept := (view.result or {}).get("tip")) is None:
            raise
        return resolve(repository, kept)


def _agent_state(view: TaskView) -> AgentState:
    """Return how the agent is, by its own words; unknown where no supervisor answers."""
    said: dict[str, object] = {}
    with contextlib.suppress(NightcrewError):
        asked = {"attempts": [(view.id, view.epoch)]}
        said = protocol.call(home().daemon_socket, "evidence", asked, timeout_s=_EVIDENCE_S)["agents"].get(view.id, {})
    pieces = said.get("evidence", ())
    found = [_evidence(piece) for piece in pieces] if isinstance(pieces, Iterable) else []
    return fuse(found, str(said.get("session", ""))).state


def _evidence(shape: dict[str, object]) -> Evidence:
    made = Evidence(**shape)  # type: ignore[arg-type]
    return replace(made, source=Source(made.source), state=AgentState(made.state))
