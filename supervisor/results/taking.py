"""What becomes of a result: look at it, offer it, merge it."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agents.agent_state import AgentState, Evidence, fuse
from agents.kinds import of_task
from supervisor.client import protocol
from supervisor.host import audit_log, files
from supervisor.host.paths import Home, home
from supervisor.kernel import codec, names, records
from supervisor.kernel.errors import HostError, NightcrewError, NotFound, Refused, some_of
from supervisor.kernel.gate_files import flags, what_runs
from supervisor.kernel.states import TaskState
from supervisor.results import candidates, verdicts
from supervisor.server.attempts.worktree_records import Environments
from supervisor.store import queries, rows, sqlite
from supervisor.store.queries import TaskView
from worktrees import collect_work, landing, merge, tree_merge
from worktrees.backends import UserOverlay
from worktrees.collect_work import Why
from worktrees.environments import Environment, open_env
from worktrees.git import Git
from worktrees.landing import Moved
from worktrees.repository import Repository, discover, resolve

# Offers
# ------
# Choose the commit of a task that a person may merge, push or judge now: that of a result that is done, of an agent that sits idle
# at its prompt, and of a task that was cancelled. Runs in the process of the command.
#
# The commit is looked up once, and everything that follows acts on that commit, whatever its agent does meanwhile.


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


def make_offer(db: sqlite3.Connection, repository: Repository, view: TaskView, *, with_changes: bool = False) -> Offer:
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
            reasons = [one for one in collect_work.look_at_work(seen, objects=False).reasons if one.why in _LEFT]
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
    if held := _beside(view, repository, into):
        files = some_of(merge.changed(repository, branch_tip, held), _NAMED)
        return (f"{view.id} left work that is on no branch ({files}): nightcrew restore {view.id} makes a branch of it",)
    return ()


def _beside(view: TaskView, repository: Repository, into: str) -> str:
    """Return the commit of the rescue ref of a task where the commit `into` lacks it, else ""."""
    held = repository.commit(names.rescue_ref(view.id, view.epoch))
    return held if held and not repository.has(into, held) else ""


def is_attended(view: TaskView) -> bool:
    """Return whether a person works with the task's agent in its own terminal. Such an agent does not end by itself."""
    return of_task(view.kind).owns_terminal(interactive=view.interactive)


def environment(db: sqlite3.Connection, view: TaskView) -> Environment | None:
    """Return the worktree of the newest attempt of a task; None when its launch did not come so far."""
    row = rows.attempt(db, view.id, view.epoch)
    return Environments(Git(home().root / "git")).of(row, rows.launch(db, view.id).root) if row is not None else None


def _with_changes(made: Environment, repository: Repository, view: TaskView) -> Offer:
    hint = f"nightcrew send {view.id} to have them committed, or nightcrew kill {view.id}, which secures them"
    if _is_hidden(made):
        raise Refused("cannot include changes", on=view.id, why="its files are in its sandbox", kept="its worktree", hint=hint)
    with open_env(made) as seen:
        secured = collect_work.snapshot(seen, f"nightcrew: what {view.id} had not committed")
    tip, held = _tip(repository, view), secured.rescue
    if held is None:
        return Offer(view.branch or "", tip)
    if not repository.has(held, tip):
        raise Refused("cannot include changes", on=view.id, why=f"they do not stand on {view.branch}", kept=made.rescue_ref, hint=hint)
    return Offer(names.rescue_ref(view.id, view.epoch), held, tuple(secured.notes))


def _is_hidden(made: Environment) -> bool:
    """Return whether the files are mounted in the agent's sandbox alone. A second mount of the same layers could damage them."""
    return made.private is not None and made.layers is not None and made.layers.backend == UserOverlay.name


def _agent_state(view: TaskView) -> AgentState:
    """Return how the agent is, by its own words; unknown where no supervisor answers."""
    said: dict[str, object] = {}
    with contextlib.suppress(NightcrewError):
        asked = {"attempts": [(view.id, view.epoch)]}
        said = protocol.call(home().daemon_socket, "evidence", asked, timeout_s=_EVIDENCE_S)["agents"].get(view.id, {})
    pieces = said.get("evidence", ())
    found = [codec.load(Evidence, piece) for piece in pieces] if isinstance(pieces, Iterable) else []
    return fuse(found, str(said.get("session", ""))).state


# Results
# -------
# What becomes of a result: looking at it and merging it. Runs in the process of the command, in the person's own checkout.


@dataclass(frozen=True, slots=True)
class Taken:
    """What `take` did: merged, or the commands with which a person does it."""

    task: str
    merged: bool
    commit: str | None
    commands: tuple[str, ...]
    sentence: str
    notes: tuple[str, ...] = ()
    """Notes on the commits for the person, one line each."""


def diff(db: sqlite3.Connection, view: TaskView, *, stat: bool) -> str:
    """What the task's branch has over its base, as git prints it; once the branch was cleaned away, what the rescue ref kept of it.

    Of one that runs in a sandbox: what its agent has committed by now. Raises NotFound when there is no branch yet.
    """
    one = result(db, view)
    return merge.diff(one.repository, one.base or one.tip, one.tip, stat=stat)


@dataclass(frozen=True, slots=True)
class Result:
    """What one task left, or has by now."""

    task: str
    base: str | None
    """The commit it began at."""
    repository: Repository
    tip: str


def result(db: sqlite3.Connection, view: TaskView) -> Result:
    """Of a group of candidates the chosen one's. Raises as `diff`."""
    view = candidates.of_group(db, view)
    repository, tip = seen(db, view)
    return Result(view.id, view.base_oid, repository, tip)


def between(one: Result, other: Result, *, stat: bool) -> str:
    """What would have to change in the files of the first for them to be those of the second, as git prints it. Raises Refused where they
    are of two repositories."""
    if one.repository.common_dir != other.repository.common_dir:
        why = f"they are of two repositories, {one.repository.root} and {other.repository.root}"
        raise Refused("cannot compare", on=f"{one.task} and {other.task}", why=why, kept="both", hint=f"nightcrew diff {one.task}")
    return merge.diff(one.repository, one.tip, other.tip, stat=stat)


def patch(db: sqlite3.Connection, view: TaskView, limit: int) -> bytes | None:
    """The same without what is in binary files; None when it is larger than `limit` bytes."""
    repository, tip = seen(db, view)
    return merge.patch(repository, view.base_oid or tip, tip, limit)


def seen(db: sqlite3.Connection, view: TaskView) -> tuple[Repository, str]:
    """The repository of a task, and the newest commit of it that can be seen from outside its sandbox."""
    repository = _repository(Path(queries.run(db, view.run).root))
    if view.state is TaskState.RUNNING and (made := environment(db, view)) is not None:
        with contextlib.suppress(HostError):  # it ended a moment ago: what is there is shown
            _publish(made)
    return repository, _tip(repository, view)


@dataclass(frozen=True, slots=True)
class How:
    """Options of `take`."""

    only_print: bool = False
    only: str = ""
    """No commit but this one."""
    force: bool = False
    """Also a result that a person rejected, and the commits of an agent at work."""
    with_changes: bool = False
    """Also what an idle agent has not committed."""


def take(db: sqlite3.Connection, view: TaskView, where: Path, how: How) -> Taken:
    """Merge the task's commits into the branch checked out at `where`: a result that is done, what a cancelled task left, and what an agent
    that is idle in its terminal has committed.

    Raises Refused, with nothing changed, when the task is unfit (see `refuse_unfit`; the command for one that failed can still be
    printed), a person rejected its result, `where` is another repository, the branch was cleaned away, the checkout is dirty, or the merge
    would conflict.
    """
    view = candidates.of_group(db, view)
    if not view.final:
        refuse_unfit(view, "cannot take", force=how.force)
    branch = _branch(view)
    if view.final and not how.only_print:
        refuse_unfit(view, "cannot take")
    repository = _repository(where)
    if repository.project != view.project:
        owner = queries.run(db, view.run).root
        raise Refused(
            "cannot take",
            on=view.id,
            why=f"it belongs to {owner}, not to {repository.root}",
            hint=f"nightcrew take {view.id} -C {shlex.quote(owner)}",
        )
    if has := _cleaned(db, repository, view, branch):
        return Taken(view.id, merged=True, commit=repository.head, commands=(), sentence=has)
    offer = make_offer(db, repository, view, with_changes=how.with_changes)
    if runs := _what_runs(db, view, repository, offer.tip):
        offer = replace(offer, notes=(runs, *offer.notes))
    if how.only_print:
        command = f"git -C {shlex.quote(str(repository.root))} merge {shlex.quote(offer.ref)}"
        said = "nothing was merged; this is what would do it"
        return Taken(view.id, merged=False, commit=None, commands=(command,), sentence=said, notes=offer.notes)
    decision = verdicts.decision(db, view.id)
    if decision is not None and decision.rejects(offer.tip) and not how.force:
        hint = f"nightcrew review {view.id}, or nightcrew take --force {view.id}"
        raise Refused("will not take", on=view.id, why="you rejected it", kept=f"the checkout, {decision.ref}", hint=hint)
    message = f"Merge {view.id}: {view.title.splitlines()[0] if view.title.strip() else view.name}"
    done = landing.take(repository, offer.ref, message, only=how.only or offer.tip, generated=merge.generated_rules(repository))
    if isinstance(done, merge.ByHand):
        said = f"nothing was merged: {done.why}; run the line above"
        return Taken(view.id, merged=False, commit=None, commands=done.commands, sentence=said, notes=offer.notes)
    if done.commit == repository.head:
        if view.final:
            _refuse_elsewhere(repository, view)
        sentence = f"{repository.branch} has everything of {view.id} already" + _marked(view, repository, offer.tip)
    else:
        manner = "fast-forward" if done.commit == offer.tip else "a merge commit"
        sentence = f"{view.id} is in {repository.branch} ({manner}, {done.commit[:10]})" + _noted(view, repository, done)
        sentence += _marked(view, repository, offer.tip)
    return Taken(view.id, merged=True, commit=done.commit, commands=(), sentence=sentence, notes=offer.notes)


def _what_runs(db: sqlite3.Connection, view: TaskView, repository: Repository, tip: str) -> str:
    """Return what a merge of the commit `tip` would change of what runs in the checkout, as `gate_files.what_runs`."""
    left = merge.fork_point(repository, repository.head, tip, view.base_oid)
    return what_runs(flags(tree_merge.read_gate_changes(repository, left, tip), rows.launch(db, view.id).spec.gate_words))


def _refuse_elsewhere(repository: Repository, view: TaskView) -> None:
    """Raise Refused when the task left commits that neither its branch nor the checkout has: its agent worked on another branch, or on a
    detached HEAD."""
    if _beside(view, repository, repository.head):
        why, rescue = f"its agent committed somewhere else than on {view.branch}", names.rescue_ref(view.id, view.epoch)
        raise Refused("cannot take", on=view.id, why=why, kept=rescue, hint=f"nightcrew restore {view.id}")


def restore(db: sqlite3.Connection, view: TaskView, epoch: int, branch: str, *, tips: bool) -> tuple[Repository, landing.Restored]:
    """Make a branch of the person's of what an attempt left, with `tips` of what it took back; the repository, and the branch.
    Raises as `restoring.restore`."""
    repository = _repository(Path(queries.run(db, view.run).root))
    ref = names.tips_ref(view.id, epoch) if tips else names.rescue_ref(view.id, epoch)
    name = branch or f"restored/{view.id}.{epoch}{'-tips' if tips else ''}"
    return repository, landing.restore(repository, ref, name)


def _noted(view: TaskView, repository: Repository, done: Moved) -> str:
    """Write the merge into the audit log; what else there is to say."""
    into = f"{repository.root} {repository.branch}"
    data = {"task": view.id, "epoch": view.epoch, "commit": done.commit, "into": into, "why": "taken by a person"}
    data |= {"unlocked": f"{repository.git_dir}/index.lock"} if done.unlocked else {}
    unlocked = "removed the lock of its index, which a killed git had left" if done.unlocked else ""
    return "".join(f"; {said}" for said in (unlocked, audit_log.by_person(home(), "merged", data)) if said)


def _marked(view: TaskView, repository: Repository, tip: str) -> str:
    """Note beside the attempt's records that its commit `tip` was merged; return what to tell the person where that failed, else ""."""
    place = home().attempt(view.id, view.epoch)
    if tip == view.base_oid or not place.is_dir():
        return ""
    said = {"schema": records.SCHEMA, "tip": tip, "into": repository.branch or "a detached HEAD"}
    try:
        files.atomic_write(place / records.TAKEN, json.dumps(said).encode() + b"\n")
    except HostError as error:
        return f"; nightcrew status will not say that it was taken: {error.line()}"
    return ""


def _publish(made: Environment) -> None:
    """Bring the commits of a confined agent over. The supervisor may do the same at this moment; the second try then finds it done."""
    if made.private is None:
        return
    with contextlib.suppress(HostError):
        collect_work.publish(made)
        return
    collect_work.publish(made)


def _tip(repository: Repository, view: TaskView) -> str:
    try:
        return resolve(repository, _branch(view))
    except NotFound:
        kept = (view.result or {}).get("tip")
        if kept is None:
            raise
        return resolve(repository, kept)


def _cleaned(db: sqlite3.Connection, repository: Repository, view: TaskView, branch: str) -> str:
    """Of a result whose branch is gone and all of which the checkout has, that it has it; empty while its branch is there. Raises Refused
    when it is gone and the checkout lacks something of it."""
    with contextlib.suppress(NotFound):
        resolve(repository, branch)
        return ""
    ref = names.rescue_ref(view.id, view.epoch)
    sql = """SELECT t.id FROM train_entry e JOIN train t ON t.id = e.train
             WHERE e.task = ? AND e.epoch = ? AND t.branch = ? AND e.state IN ('landed', 'contained')"""
    if (landed := db.execute(sql, (view.id, view.epoch, repository.branch)).fetchone()) is not None:
        return f"{repository.branch} has everything of {view.id} already: it landed with {landed[0]}"
    tip = str((view.result or {}).get("tip") or "")
    if tip and repository.has(repository.head, tip):
        return f"{repository.branch} has everything of {view.id} already"
    why, hint = "its branch is gone, after nightcrew clean or by hand", f"git -C {shlex.quote(str(repository.root))} merge {ref}"
    raise Refused("cannot take", on=view.id, why=why, kept=ref, hint=hint)


def _branch(view: TaskView) -> str:
    if view.branch is None:
        why = "it changed nothing" if view.epoch else f"it is {view.state} and never started"
        raise NotFound("no branch of", on=view.id, why=why, hint=f"nightcrew status {view.id}")
    return view.branch


def repository_of(where: Home, view: TaskView) -> Repository:
    """The repository that a task works in. Raises NotFound when it is gone."""
    with contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        return _repository(Path(queries.project_root(db, view.project) or ""))


def _repository(where: Path) -> Repository:
    state = home().root
    files.private_dir(state)
    return discover(Git(state / "git"), where)
