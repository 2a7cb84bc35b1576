"""From a plan file, or a command line, to a submission: everything that can be wrong is found here, before a supervisor is asked.

Runs in the process of the command, where the plan, the repository and the environment are.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agents.kinds import kinds
from supervisor.client import common
from supervisor.client.terminal import Tail
from supervisor.config import plan, project, user
from supervisor.config.kinds import Choices
from supervisor.config.project import Project
from supervisor.config.toml import Once
from supervisor.host import cores, files
from supervisor.host.paths import Home, home, settings_file
from supervisor.kernel import spec as size
from supervisor.kernel.errors import NeedsHuman, NotFound, NotRunning, Refused, ToolFailed, ToolMissing, UsageError, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.kind import allowed
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import WHOLE, Snapshot, SnapshotState, chosen, overriding, staleness
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.snapshots import rows as snapshots_rows
from supervisor.store import sqlite
from worktrees import repository as commit_listing
from worktrees.git import Git
from worktrees.repository import Repository, discover, main_root, refuse_absent, resolve

if TYPE_CHECKING:
    from supervisor.snapshots.order import Order


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where work is handed over: a repository, what its project file says, and the user's settings."""

    repository: Repository
    project: Project
    settings: Settings
    choices: Choices
    """The user's own, for what a task does not say."""
    resolve: Callable[[Repository, str], str] = resolve
    """Finds the commit of a base."""


def workplace(where: Path, files_of: Once | None = None) -> Workplace:
    """The repository around `where`; its project file is as `files_of` has it.

    Raises ConfigError for a file, NotFound or Refused for the repository, ToolMissing for git.
    """
    settings = user.load(settings_file(), len(cores.usable()))
    state = home().root
    files.private_dir(state)
    repository = discover(Git(state / "git"), where)
    _refuse_strange_bytes(repository)
    choices = replace(user.choices(settings_file(), kinds()), repository=functools.partial(_measured, repository))
    return Workplace(repository, project.load(main_root(repository), kinds(), files_of), settings, choices)


def _choices(place: Workplace, base: str | None) -> Choices:
    """Those of `place`, for what starts from `base` whatever its plan says."""
    measure = place.choices.repository
    return place.choices if base is None else replace(place.choices, repository=lambda _: measure(base))


def _measured(repository: Repository, base: str) -> size.Repository:
    """Its files at the revision `base`. Raises NotFound when that names no commit."""
    found = commit_listing.extent(repository, resolve(repository, base), "")
    return size.Repository(found.files, found.size)


def from_plan(
    path: Path, where: Path, base: str | None, key: str | None, environ: Mapping[str, str], files_of: Once | None = None
) -> tuple[Submission, tuple[str, ...]]:
    """Read a plan for the repository around `where`. Returns the submission and one-line notes about the repository. The plan, its prompts
    and the project file are as `files_of` has them, which then knows the digest of each.

    Raises ConfigError for the plan too, and what `workplace` raises.
    """
    files_of = files_of or Once()
    place = workplace(where, files_of)
    names = {*place.project.snapshots, *_made(place.repository.project)}
    spec = plan.load(path, kinds(), place.project.defaults, place.project.base, names, _choices(place, base), files_of)
    return submission(spec, place, base, key, environ), place.repository.notes


def _made(project: str) -> set[str]:
    """Names of the snapshots that were made by hand, or before."""
    ledger = home().ledger
    if not ledger.exists():
        return set()
    with contextlib.closing(sqlite.connect_readonly(ledger)) as db:
        return {row.spec.name for row in snapshots_rows.every(db, project)}


def to_look_at(path: Path, place: Workplace, base: str | None, environ: Mapping[str, str], files_of: Once) -> Submission:
    """`from_plan` for a look that says everything that is wrong: a program that is missing is no error, nor is a base that names no commit,
    whose `base_oid` is empty then. Raises ConfigError for the plan."""
    measure = place.choices.repository

    def measured(revision: str) -> size.Repository | None:
        with contextlib.suppress(NotFound):
            return measure(base or revision)
        return None

    names = {*place.project.snapshots, *_made(place.repository.project)}
    choices = replace(place.choices, repository=measured)
    spec = plan.load(path, kinds(), place.project.defaults, place.project.base, names, choices, files_of)
    spec = replace(spec, base=base) if base is not None else spec
    try:
        oid = resolve(place.repository, spec.base)
    except NotFound:
        oid = ""
    return _submission(spec, place, oid, None, environ)


def from_words(
    words: tuple[str, ...], options: Mapping[str, Any], where: Path, base: str | None, key: str | None, environ: Mapping[str, str]
) -> tuple[Submission, tuple[str, ...]]:
    """The same for the run of one task that `nightcrew add` describes. Raises UsageError for what a plan would refuse too."""
    return of_words(words, options, workplace(where), base, key, environ)


def of_words(
    words: tuple[str, ...], options: Mapping[str, Any], place: Workplace, base: str | None, key: str | None, environ: Mapping[str, str]
) -> tuple[Submission, tuple[str, ...]]:
    """The same at a place that is known already."""
    spec = plan.single(words, kinds(), options, place.project.defaults, place.project.base, _choices(place, base))
    spec = replace(spec, title=_text(spec.title), tasks=tuple(replace(task, title=_text(task.title)) for task in spec.tasks))
    return submission(spec, place, base, key, environ), place.repository.notes


def of_prompt(
    prompt: str | None, options: Mapping[str, Any], place: Workplace, base: str | None, environ: Mapping[str, str]
) -> tuple[Submission, tuple[str, ...]]:
    """The same for the one agent that `nightcrew start` describes. Raises UsageError also for a kind that takes no prompt."""
    kind = kinds().get(str(options["kind"]))
    if kind is not None and not kind.is_agent:
        raise UsageError("cannot start", on=kind.name, why="its tasks take a command and no prompt", hint="nightcrew kinds ls")
    spec = plan.single(
        (prompt,) if prompt is not None else (), kinds(), options, place.project.defaults, place.project.base, _choices(place, base)
    )
    return submission(spec, place, base, None, environ), place.repository.notes


def submission(spec: RunSpec, place: Workplace, base: str | None, key: str | None, environ: Mapping[str, str]) -> Submission:
    """`spec` at `place`, ready to be handed over; `base` overrides its own. Raises NotFound when that names no commit, Refused
    when a partial clone lacks files of it."""
    for task in spec.tasks:
        refuse_missing(task, environ)
    if base is not None:
        spec = replace(spec, base=base)
    oid = place.resolve(place.repository, spec.base)
    if not place.repository.git.is_sparse(place.repository.store):  # it needs a part of them only
        refuse_absent(place.repository, oid)
    return _submission(spec, place, oid, key, environ)


def _submission(spec: RunSpec, place: Workplace, base_oid: str, key: str | None, environ: Mapping[str, str]) -> Submission:
    repository = place.repository
    return Submission(
        key=key or secrets.token_hex(16),
        project=repository.project,
        root=os.fspath(repository.root),
        common_dir=os.fspath(repository.common_dir),
        base_oid=base_oid,
        spec=spec,
        env=allowed(environ, place.settings.pass_env),
    )


def _refuse_strange_bytes(repository: Repository) -> None:
    """The ledger holds text: a path that is no text cannot be kept there."""
    try:
        os.fspath(repository.common_dir).encode() + os.fspath(repository.root).encode()
    except UnicodeEncodeError:
        raise Refused("cannot work here", on=os.fspath(repository.root), why="its path is not UTF-8", hint="rename the directory") from None


def refuse_missing(task: TaskSpec, environ: Mapping[str, str]) -> None:
    """An agent that is not installed is found out now and not in the night. Raises ToolMissing."""
    if task.argv:
        return
    binary = kinds()[task.kind].binary
    if binary and shutil.which(binary, path=task.params.get("PATH") or environ.get("PATH", os.defpath)) is None:
        why = f"a task of kind {task.kind} runs it, and it is not on the PATH"
        raise ToolMissing("no program", on=binary, why=why, hint=f"install {binary}, or nightcrew kinds ls for others")


def _text(title: str) -> str:
    """A title typed as bytes that are not UTF-8, shown as escapes. The command itself keeps its bytes."""
    return title.encode("utf-8", "backslashreplace").decode()


# Snapshots
# ---------
# Make the snapshots that tasks start from, before the tasks are handed over.


_LOOK_S = 0.2


def build_snapshot(home: Home, order: Order, *, agreed: bool = False, may_ask: bool = True) -> Snapshot:
    """Have the supervisor make a snapshot, printing what its commands print (on stderr) until it is ready. Return the snapshot.

    A snapshot that exists stays as it is; one that another command builds now is waited for. `agreed`: the person asked for this set-up by
    the command; else the person is asked where the supervisor wants that, on a terminal and with `may_ask`.
    Raises NeedsHuman when the person did not agree, ToolFailed when a command failed, NotRunning when the supervisor went away.
    """
    from supervisor.server import lock

    begun = _begin_snapshot(home, order, agreed=agreed, may_ask=may_ask)
    if begun["new"]:
        common.say(f"making snapshot {order.spec.name} of {order.base_oid[:12]}; Ctrl-C leaves it being made")
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        tail = Tail(Path(begun["log"]))
        while True:
            row = snapshots_rows.find(db, begun["id"], order.project)
            tail.show()
            if row.epoch != begun["epoch"] or row.state is not SnapshotState.BUILDING:
                break
            if lock.holder(home.lock) is None:
                raise NotRunning("the supervisor went away while it made", on=order.spec.name, kept="nothing of it", hint="nightcrew up -d")
            time.sleep(_LOOK_S)
    if row.state is SnapshotState.FAILED:
        raise ToolFailed("no snapshot was made", on=order.spec.name, why=row.reason, kept="nothing of it", hint=f"less {begun['log']}")
    took = f"{duration(row.setup_s)} to set up, {duration(row.freeze_s)} to freeze" if begun["new"] else "it was made of the same before"
    common.say(f"snapshot {row.spec.name} is ready: {took}")
    return row


def _begin_snapshot(home: Home, order: Order, *, agreed: bool, may_ask: bool) -> dict[str, Any]:
    request = {"op": "create", "order": order}
    try:
        return common.ask(home, "snapshot", {**request, "agreed": agreed})
    except NeedsHuman as error:
        if not (may_ask and sys.stdin.isatty()):
            raise
        common.say(f"the set-up of snapshot {order.spec.name} {one_line(error.why.removeprefix('it '))}")
        click.confirm("Run it?", abort=True, err=True)
        return common.ask(home, "snapshot", {**request, "agreed": True})


def with_snapshots(home: Home, submission: Submission, *, may_ask: bool = True) -> Submission:
    """Make the snapshots that tasks of `submission` name, where there is none or a stale one. Returns `submission` with the id of each, so
    that its tasks start from these, whatever is made meanwhile.

    A snapshot that differs only in its base commit is used as it is: what differs is checked out in each environment. A task that brings
    an id gets the snapshot of that id while it exists. Raises as `build_snapshot`, NotFound for a name that neither the project file nor
    the ledger knows, and Refused, with nothing made, for a task that asks for other resources than its memory snapshot has.
    """
    wanted = {task.snapshot: task.snapshot_id for task in submission.spec.tasks if task.snapshot}
    if not wanted:
        return submission
    place = workplace(Path(submission.root))
    found = {name: _snapshot_and_order(home, name, noted, place, submission) for name, noted in wanted.items()}
    made = {name: _snapshot_id(home, name, row, order, may_ask=may_ask) for name, (row, order) in found.items()}
    tasks = tuple(replace(task, snapshot_id=made.get(task.snapshot, "")) for task in submission.spec.tasks)
    return replace(submission, spec=replace(submission.spec, tasks=tasks))


def _snapshot_and_order(
    home: Home, name: str, noted: str, place: Workplace, submission: Submission
) -> tuple[Snapshot | None, Order | None]:
    """What there is of that name, and what it would be made of now; no order for one that is taken as it is."""
    from supervisor.snapshots import order as snapshots_order  # it imports this module

    row = chosen(_snapshots_named(home, name, submission.project), noted)
    if row is not None and row.id == noted and row.state in WHOLE:
        spec, order = row.spec, None
    else:
        spec = place.project.snapshots.get(name) or (row.spec if row else None) or snapshots_order.asked_for(name, place, {})
        order = snapshots_order.order(spec, place, submission.base_oid, os.environ)
    for task in submission.spec.tasks:
        if task.snapshot == name and (refusal := overriding(spec, task)) is not None:
            raise refusal
    return row, order


def _snapshot_id(home: Home, name: str, row: Snapshot | None, order: Order | None, *, may_ask: bool) -> str:
    """The id of the snapshot that is there now, made when it has to be."""
    if row is not None and (order is None or row.state is SnapshotState.READY):
        changed = staleness(row, order.spec, row.base_oid, order.digests) if order is not None else ()
        if not changed:
            return row.id
        common.say(f"snapshot {name} is stale: {one_line('; '.join(changed))}")
    assert order is not None  # noqa: S101 - only a row that is taken as it is comes without
    return build_snapshot(home, order, may_ask=may_ask).id


def _snapshots_named(home: Home, name: str, project: str) -> list[Snapshot]:
    if not home.ledger.exists():
        return []
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        return [row for row in snapshots_rows.every(db, project) if row.spec.name == name]
