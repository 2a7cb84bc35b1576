"""What becomes of a result: looking at it and merging it. Runs in the process of the command, in the person's own checkout."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core import records
from supervisor.core.errors import ConfigError, HostError, NotFound, Refused
from supervisor.core.gate_files import flags, what_runs
from supervisor.core.landing import EntryState
from supervisor.core.landing_terms import GeneratedRule
from supervisor.core.states import TaskState
from supervisor.daemon import choosing, offers
from supervisor.host import audit, files
from supervisor.host.paths import Home, home
from supervisor.ledger import queries, reviews, rows, store, trains
from supervisor.ledger.queries import TaskView
from worktrees import gate_changes, merge, restoring, securing
from worktrees.git import Git
from worktrees.repository import Repository, discover, main_root, resolve


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
    view = choosing.of_group(db, view)
    repository, tip = seen(db, view)
    return merge.diff(repository, view.base_oid or tip, tip, stat=stat)


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
    view = choosing.of_group(db, view)
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
    if view.state is TaskState.RUNNING:
        _publish(db, view)
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

    Raises Refused, with nothing changed, when the task is unfit (see `offers.refuse_unfit`; the command for one that failed can still be
    printed), a person rejected its result, `where` is another repository, the branch was cleaned away, the checkout is dirty, or the merge
    would conflict.
    """
    view = choosing.of_group(db, view)
    if not view.final:
        offers.refuse_unfit(view, "cannot take", force=how.force)
    branch = _branch(view)
    if view.final and not how.only_print:
        offers.refuse_unfit(view, "cannot take")
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
    offer = offers.offer(db, repository, view, with_changes=how.with_changes)
    if runs := _what_runs(db, view, repository, offer.tip):
        offer = replace(offer, notes=(runs, *offer.notes))
    if how.only_print:
        command = f"git -C {shlex.quote(str(repository.root))} merge {shlex.quote(offer.ref)}"
        said = "nothing was merged; this is what would do it"
        return Taken(view.id, merged=False, commit=None, commands=(command,), sentence=said, notes=offer.notes)
    decision = reviews.decision(db, view.id)
    if decision is not None and decision.rejects(offer.tip) and not how.force:
        hint = f"nightcrew review {view.id}, or nightcrew take --force {view.id}"
        raise Refused("will not take", on=view.id, why="you rejected it", kept=f"the checkout, {decision.ref}", hint=hint)
    message = f"Merge {view.id}: {view.title.splitlines()[0] if view.title.strip() else view.name}"
    done = merge.take(repository, offer.ref, message, only=how.only or offer.tip, generated=_generated(repository))
    if isinstance(done, merge.ByHand):
        said = f"nothing was merged: {done.why}; run the line above"
        return Taken(view.id, merged=False, commit=None, commands=done.commands, sentence=said, notes=offer.notes)
    if done.commit == repository.head:
        if view.final:
            _refuse_elsewhere(repository, view)
        sentence = f"{repository.branch} has everything of {view.id} already" + _marked(view, repository, offer.tip)
    else:
        manner = "fast-forward" if done.fast_forward else "a merge commit"
        sentence = f"{view.id} is in {repository.branch} ({manner}, {done.commit[:10]})" + _noted(view, repository, done)
        sentence += _marked(view, repository, offer.tip)
    return Taken(view.id, merged=True, commit=done.commit, commands=(), sentence=sentence, notes=offer.notes)


def _what_runs(db: sqlite3.Connection, view: TaskView, repository: Repository, tip: str) -> str:
    """Return what a merge of the commit `tip` would change of what runs in the checkout, as `gate_files.what_runs`."""
    left = merge.fork_point(repository, repository.head, tip, view.base_oid)
    return what_runs(flags(gate_changes.read(repository, left, tip), rows.launch(db, view.id).spec.gate_words))


def _refuse_elsewhere(repository: Repository, view: TaskView) -> None:
    """Raise Refused when the task left commits that neither its branch nor the checkout has: its agent worked on another branch, or on a
    detached HEAD."""
    rescue = records.rescue_ref(view.id, view.epoch)
    with contextlib.suppress(NotFound):
        left = resolve(repository, rescue)
        if repository.git.run(repository.store, "merge-base", "--is-ancestor", left, repository.head, accept=(0, 1)).code:
            why = f"its agent committed somewhere else than on {view.branch}"
            raise Refused("cannot take", on=view.id, why=why, kept=rescue, hint=f"nightcrew restore {view.id}")


def _generated(repository: Repository) -> tuple[GeneratedRule, ...]:
    """What the project's file says of generated files: here it only makes a refusal clearer, so one that cannot be read says nothing."""
    from supervisor.config import project  # with pydantic: looking at a result needs neither

    with contextlib.suppress(ConfigError):
        return project.load(main_root(repository)).generated
    return ()


def restore(db: sqlite3.Connection, view: TaskView, epoch: int, branch: str, *, tips: bool) -> tuple[Repository, restoring.Restored]:
    """Make a branch of the person's of what an attempt left, with `tips` of what it took back; the repository, and the branch.
    Raises as `restoring.restore`."""
    repository = _repository(Path(queries.run(db, view.run).root))
    ref = records.tips_ref(view.id, epoch) if tips else records.rescue_ref(view.id, epoch)
    name = branch or f"restored/{view.id}.{epoch}{'-tips' if tips else ''}"
    return repository, restoring.restore(repository, ref, name)


def _noted(view: TaskView, repository: Repository, done: merge.Merged) -> str:
    """Write the merge into the audit log; what else there is to say."""
    into = f"{repository.root} {repository.branch}"
    data = {"task": view.id, "epoch": view.epoch, "commit": done.commit, "into": into, "why": "taken by a person"}
    data |= {"unlocked": f"{repository.git_dir}/index.lock"} if done.unlocked else {}
    unlocked = "removed the lock of its index, which a killed git had left" if done.unlocked else ""
    return "".join(f"; {said}" for said in (unlocked, audit.by_person(home(), "merged", data)) if said)


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


def _publish(db: sqlite3.Connection, view: TaskView) -> None:
    made = offers.environment(db, view)
    if made is not None and made.private is not None:
        with contextlib.suppress(HostError):  # it ended a moment ago, or the supervisor is doing the same: what is there is shown
            securing.publish(made)


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
    landed, ref = trains.outcomes(db, [view.id]).get(view.id), records.rescue_ref(view.id, view.epoch)
    if landed is not None and landed.branch == repository.branch and landed.state in (EntryState.LANDED, EntryState.CONTAINED):
        return f"{repository.branch} has everything of {view.id} already: it landed with {landed.train}"
    tip = str((view.result or {}).get("tip") or "")
    if tip and merge.has(repository, tip):
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
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:
        return _repository(Path(queries.project_root(db, view.project) or ""))


def _repository(where: Path) -> Repository:
    state = home().root
    files.private_dir(state)
    return discover(Git(state / "git"), where)
