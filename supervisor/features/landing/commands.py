"""`nightcrew land` and `nightcrew take`."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common
from supervisor.client.resolving import done_name, ended_name
from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing import view as landing_view
from supervisor.features.landing.rows import TrainRow
from supervisor.features.landing.rules import EntryState, Train, TrainState, is_open
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NeedsHuman, NotFound, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.kernel.train_orders import Method
from supervisor.store.queries import TaskView

if TYPE_CHECKING:
    from supervisor.client.submit import Workplace
    from supervisor.features.landing.plan import Planned
    from worktrees.landing import Restored
    from worktrees.repository import Repository


# Land
# ----
# `nightcrew land`.


@click.command()
@click.argument("names", nargs=-1, shell_complete=done_name)
@click.option("--ready", is_flag=True, help="Every result that is done, not rejected, and not there yet.")
@click.option("--into", metavar="BRANCH", help="The branch that moves (default: the one that is checked out here).")
@click.option("--gate", "gates", multiple=True, metavar="COMMAND", help="What each merged tree has to pass; may be given several times.")
@click.option("--no-gate", is_flag=True, help="Merge without any gate.")
@click.option("--method", type=click.Choice([str(one) for one in Method]), help="How a result comes in.")
@click.option("--repairs", type=click.IntRange(0, 5), help="How often the agent of a result that does not fit mends it; 0: never.")
@click.option("--width", type=click.IntRange(1, 64), help="Gates that run side by side.")
@click.option("--with-changes", is_flag=True, help="Also what idle agents have not committed.")
@click.option("--force", is_flag=True, help="Also results that were rejected, and what agents at work have committed by now.")
@click.option("--dry-run", is_flag=True, help="Say what would merge, what would conflict, and which gates would run.")
@click.option("-d", "--detach", is_flag=True, help="Return at once; the train goes on.")
@click.option("--status", "act", flag_value="status", help="Show the train into the branch, or the newest one.")
@click.option("--follow", "act", flag_value="follow", help="Follow the train that is under way.")
@click.option("--stop", "act", flag_value="stop", help="Stop it: its gates end, nothing moves.")
@click.option("--resume", "act", flag_value="resume", help="Let a train that stopped go on.")
@common.json_option
def command_land(names: tuple[str, ...], act: str | None, as_json: bool, **options: Any) -> int:
    """Merge results one on another, run the gate on each merged tree, leave out what breaks, and move the branch once, at the end.

    The branch moves only forward, only when it stands where it stood, and only when everything that is in passed together. Gates run side
    by side, in sandboxes. A result that conflicts or breaks is left out with its reason and the log of its gate.

    \b
    nightcrew land lint docs
    nightcrew land --ready --dry-run
    nightcrew land --ready --into main --method squash
    """
    where = home()
    if options["gates"] and options["no_gate"]:
        raise UsageError("a gate or none?", why="--gate and --no-gate exclude each other")
    if act is not None:
        if names or options["ready"]:
            raise UsageError(f"--{act} takes no results", hint="nightcrew land --help")
        return _of_train(where, act, options, as_json=as_json)
    if bool(names) == options["ready"]:
        raise UsageError("which results?", why="give names of tasks, or --ready")
    return _land(where, names, options, as_json=as_json)


def _land(where: Home, names: tuple[str, ...], options: dict[str, Any], *, as_json: bool) -> int:
    from supervisor.client import submit

    place = submit.workplace(Path.cwd())
    done = _planned(where, place, names, options)
    if done is None:
        common.say("no result waits to be merged")
        if as_json:
            common.print_json(train=None, entries=[])
        return 0
    _say_first(done)
    if options["dry_run"]:
        return _tried(done, place, as_json=as_json)
    return _begun(where, done, detach=options["detach"], as_json=as_json)


def _planned(where: Home, place: Workplace, names: tuple[str, ...], options: dict[str, Any]) -> Planned | None:
    from supervisor.features.landing import plan as landing_plan
    from supervisor.store import queries

    gates = () if options["no_gate"] else options["gates"] or None
    asked = landing_plan.Asked(
        options["into"], options["method"], gates, options["width"], options["repairs"], options["force"], options["with_changes"]
    )
    with contextlib.closing(common.ledger(where)) as db:
        for line in () if names else landing_plan.left_out(db, place, asked.into):
            common.say(line)
        tasks = common.tasks_named(where, names) if names else landing_plan.ready(db, place, asked.into)
        if not tasks:
            return None
        return landing_plan.planned(db, [queries.one(db, task) for task in tasks], place, asked, os.environ)


def _say_first(done: Planned) -> None:
    train = done.train
    for note in done.notes:
        common.say(note)
    gates = " and ".join(train.commands) or "no gate"
    count = len(train.entries)
    common.say(f"{many(count, 'result')} into {train.branch}, by {done.orders.terms.method}; {gates} ({done.gates_from})")


def _tried(done: Planned, place: Workplace, *, as_json: bool) -> int:
    from supervisor.features.landing import plan as landing_plan
    from supervisor.features.landing import view as landing_view

    events = landing_plan.tried(done, place)
    if as_json:
        shapes = [landing_view.trial_shape(done.train, event) for event in events]
        common.print_json(train=None, into=done.train.branch, base=done.train.base, gates=list(done.train.commands), entries=shapes)
        return 0
    for event in events:
        common.show(landing_view.trial(done.train, event))
    return 0


def _begun(where: Home, done: Planned, *, detach: bool, as_json: bool) -> int:
    from supervisor.client import submit

    gate = submit.with_snapshots(where, done.template).spec.tasks[0]
    name = str(common.ask(where, "land", done.ready(gate).request())["train"])
    common.say(f"{name}: nightcrew land --status")
    if detach:
        if as_json:
            common.print_json(train=name)
        return 0
    return _ended(follow(where, name, quiet=as_json), as_json=as_json)


def _ended(row: TrainRow, *, as_json: bool) -> int:

    from supervisor.features.landing import view as landing_view

    if as_json:
        common.print_json(**landing_view.shape(row))
    else:
        conclude(row)
    return exit_code(row.train)


def _of_train(where: Home, act: str, options: dict[str, Any], *, as_json: bool) -> int:

    from supervisor.features.landing import view as landing_view

    row = _found(where, options["into"])
    if act in ("stop", "resume"):
        common.ask(where, "land", {"op": act, "train": row.train.id})
    if act == "resume" or act == "follow":
        return _ended(follow(where, row.train.id, quiet=as_json), as_json=as_json)
    if act == "stop":
        row = _found(where, row.train.branch)
    if as_json:
        common.print_json(**landing_view.shape(row))
        return 0
    for line in landing_view.lines(row):
        common.show(line)
    if row.train.by_hand:
        common.say(f"by hand: {row.train.by_hand}")
    return 0


def _found(where: Home, into: str | None) -> TrainRow:
    """The train into a branch of this repository that was asked for last; without a branch, the newest."""
    from supervisor.features.landing import rows as landing_rows
    from supervisor.store import queries

    with contextlib.closing(common.ledger(where)) as db:
        project = queries.project_at(db, str(Path.cwd()))
        found = landing_rows.newest(db, project, into or "")
    if not found:
        on = into or str(Path.cwd())
        raise NotFound(
            "no train", on=on, why="none was ever begun there", hint=f"nightcrew land --ready --into {shlex.quote(into or 'BRANCH')}"
        )
    return found[0]


# Take
# ----
# `nightcrew take`.


@click.command()
@click.argument("name", shell_complete=done_name)
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The checkout to merge into (default: here).")
@click.option("--print", "only_print", is_flag=True, help="Print the git commands instead of running them.")
@click.option("--with-changes", is_flag=True, help="Also what an idle agent has not committed.")
@click.option("--force", is_flag=True, help="Also a result that you rejected, and what an agent at work has committed by now.")
@common.json_option
def command_take(name: str, repo: Path, only_print: bool, with_changes: bool, force: bool, as_json: bool) -> int:
    """Merge a task's result into the branch that is checked out here.

    From an agent in its own terminal, which does not end by itself, take what it has committed, while it is idle. From a task that you
    stopped, take what it left.

    Refuses, with nothing changed, when the checkout is dirty, the merge would conflict, or you rejected the result in a review. Where your
    repository uses filters or hooks (LFS, for example) it prints the commands instead, because nightcrew runs git without them; exit
    code 8 then.

    \b
    nightcrew take lint
    nightcrew take --print lint
    """
    from supervisor.results import taking

    where = home()
    view = common.task_named(where, name)
    how = taking.How(only_print, force=force, with_changes=with_changes)
    taken = taking.take(common.ledger(where, view.id), view, repo, how)
    if as_json:
        common.print_json(task=taken.task, merged=taken.merged, commit=taken.commit, commands=list(taken.commands), notes=list(taken.notes))
    else:
        for line in taken.notes:
            common.say(line)
        for line in taken.commands:
            click.echo(line)
        common.say(taken.sentence)
    return 0 if taken.merged or only_print else NeedsHuman.exit_code


# Restore
# -------
# `nightcrew restore`.


@click.command()
@click.argument("name", shell_complete=ended_name)
@click.option("--branch", metavar="BRANCH", help="What to call the branch (default: restored/RUN/TASK.EPOCH).")
@click.option("--worktree", metavar="DIR", type=click.Path(path_type=Path), help="Also check it out, in a new worktree of yours.")
@click.option("--tips", is_flag=True, help="Instead of the result what was amended, reset or rebased away.")
@common.json_option
def command_restore(name: str, branch: str | None, worktree: Path | None, tips: bool, as_json: bool) -> None:
    """Bring back what an attempt of a task left, as a branch of yours.

    NAME may end with the number of the attempt, as in lint.1; else it is the newest. The rescue ref stays, and your checkout does not
    change.

    \b
    nightcrew restore lint
    nightcrew restore lint.1 --branch second-look
    nightcrew restore lint --worktree ../lint
    """
    from supervisor.results import taking

    where = home()
    view, epoch = _attempt(where, name)
    with contextlib.closing(common.ledger(where, view.id)) as db:
        repository, done = taking.restore(db, view, epoch, branch or "", tips=tips)
    place = worktree.resolve() if worktree is not None else None
    added = place is not None and _checked_out(where, repository, done, place)
    if as_json:
        facts = {"branch": done.branch, "commit": done.commit, "created": done.is_new, "repository": str(repository.root)}
        common.print_json(task=view.id, epoch=epoch, **facts, worktree=str(place) if place else None)
        return
    click.echo(done.branch)
    how = "is at" if done.is_new else "was already at"
    common.say(
        f"{done.branch} {how} {done.commit[:12]}; {_next_restore(repository.root, f'{view.name}.{epoch}', done.branch, place, new=added)}"
    )


def _checked_out(where: Home, repository: Repository, done: Restored, place: Path) -> bool:
    from worktrees import landing

    return landing.check_out(repository, done, place, where.root)


def _next_restore(root: Path, name: str, branch: str, place: Path | None, *, new: bool) -> str:
    if place is not None:
        return f"it is {'checked out' if new else 'checked out already'} in {one_line(str(place))}"
    return f"next: git -C {shlex.quote(str(root))} worktree add {shlex.quote(f'../{root.name}-{name}')} {shlex.quote(branch)}"


def _attempt(where: Home, name: str) -> tuple[TaskView, int]:
    """The task that was named, and which attempt of it: a name that a task has comes before one with a number."""
    try:
        view = common.task_named(where, name)
    except NotFound:
        task, _, number = name.rpartition(".")
        if not (task and number.isascii() and number.isdigit() and len(number) < 10):
            raise
        return common.task_named(where, task), int(number)
    return view, view.epoch


# Landing
# -------
# Following a train, and what is said of it at its end.


LOOK_S = 0.2
_NEWS = frozenset({EntryState.PASSED, EntryState.EJECTED, EntryState.CONTAINED, EntryState.REPAIRING})


def follow(where: Home, name: str, *, quiet: bool) -> TrainRow:
    """Print what is decided of each result, until the train rests."""
    shown: dict[int, EntryState] = {}
    supervisor = common.SupervisorWatch(where)
    into = ""
    try:
        with contextlib.closing(common.ledger(where)) as db:
            while True:
                row = landing_rows.one(db, name)
                into = shlex.quote(row.train.branch)
                if not quiet:
                    _news(row.train, shown)
                if not is_open(row.train.state):
                    return row
                supervisor.look()
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        common.say(f"the train goes on; nightcrew land --follow, nightcrew land --stop --into {into}")
        raise


def _news(train: Train, shown: dict[int, EntryState]) -> None:
    for entry in train.entries:
        if entry.state in _NEWS and shown.get(entry.position) is not entry.state:
            shown[entry.position] = entry.state
            common.show(landing_view.line(train, entry))


def conclude(row: TrainRow) -> None:
    """Say what came of it and what to do next."""
    train = row.train
    landed, out = _count(train, EntryState.LANDED), _count(train, EntryState.EJECTED)
    match train.state:
        case TrainState.LANDED:
            common.say(f"{train.branch} is at {train.tip[:12]} with {many(landed, 'result')}; {out} left out")
            _next(train)
        case TrainState.EMPTY:
            common.say(
                f"nothing landed: {out} left out, {_count(train, EntryState.CONTAINED)} had nothing new; {train.branch} is as it was"
            )
            _next(train)
        case _:
            common.say(f"{landing_view.summary(train)}; {train.branch} is as it was")
            if train.by_hand:
                common.show(train.by_hand)
            common.say(
                f"next: nightcrew land --resume --into {shlex.quote(train.branch)}" + (", or the line above" if train.by_hand else "")
            )


def _next(train: Train) -> None:
    if left := [entry.task for entry in train.entries if entry.state is EntryState.EJECTED]:
        more = f", and {len(left) - 1} more" if left[1:] else ""
        common.say(f"to see what was left out: nightcrew review {left[0]}{more}; then retry it, or take what you mend by hand")


def exit_code(train: Train) -> int:
    """0 when every result is in, 1 when one was left out, 8 when a person has to do something."""
    if train.state is TrainState.STOPPED:
        return NeedsHuman.exit_code
    return 1 if any(entry.state is EntryState.EJECTED and not _replaced(train, entry.repair) for entry in train.entries) else 0


def _replaced(train: Train, repair: str) -> bool:
    return bool(repair) and any(entry.task == repair and entry.state is EntryState.LANDED for entry in train.entries)


def _count(train: Train, state: EntryState) -> int:
    return sum(entry.state is state for entry in train.entries)
