"""`nightcrew land`."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common
from supervisor.cli.names import done_name
from supervisor.core.errors import NotFound, UsageError
from supervisor.core.landing_terms import Method
from supervisor.host.paths import Home, home

if TYPE_CHECKING:
    from supervisor.daemon.submit import Workplace
    from supervisor.daemon.train_plan import Planned
    from supervisor.ledger.trains import TrainRow


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
def command(names: tuple[str, ...], act: str | None, as_json: bool, **options: Any) -> int:
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
    from supervisor.daemon import submit

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
    from supervisor.daemon import train_plan
    from supervisor.ledger import queries

    gates = () if options["no_gate"] else options["gates"] or None
    asked = train_plan.Asked(
        options["into"], options["method"], gates, options["width"], options["repairs"], options["force"], options["with_changes"]
    )
    with contextlib.closing(common.ledger(where)) as db:
        for line in () if names else train_plan.left_out(db, place, asked.into):
            common.say(line)
        tasks = common.tasks_named(where, names) if names else train_plan.ready(db, place, asked.into)
        if not tasks:
            return None
        return train_plan.planned(db, [queries.one(db, task) for task in tasks], place, asked, os.environ)


def _say_first(done: Planned) -> None:
    train = done.train
    for note in done.notes:
        common.say(note)
    gates = " and ".join(train.commands) or "no gate"
    count = len(train.entries)
    common.say(f"{count} result{'s' if count != 1 else ''} into {train.branch}, by {done.orders.terms.method}; {gates} ({done.gates_from})")


def _tried(done: Planned, place: Workplace, *, as_json: bool) -> int:
    from supervisor.daemon import train_plan
    from supervisor.faces import landing as text

    events = train_plan.tried(done, place)
    if as_json:
        shapes = [text.trial_shape(done.train, event) for event in events]
        common.print_json(train=None, into=done.train.branch, base=done.train.base, gates=list(done.train.commands), entries=shapes)
        return 0
    for event in events:
        common.show(text.trial(done.train, event))
    return 0


def _begun(where: Home, done: Planned, *, detach: bool, as_json: bool) -> int:
    from supervisor.cli import landing, snapshot_progress

    gate = snapshot_progress.ready_for(where, done.template).spec.tasks[0]
    name = str(common.ask(where, "land", done.ready(gate).request())["train"])
    common.say(f"{name}: nightcrew land --status")
    if detach:
        if as_json:
            common.print_json(train=name)
        return 0
    return _ended(landing.follow(where, name, quiet=as_json), as_json=as_json)


def _ended(row: TrainRow, *, as_json: bool) -> int:
    from supervisor.cli import landing
    from supervisor.faces import landing as text

    if as_json:
        common.print_json(**text.shape(row))
    else:
        landing.conclude(row)
    return landing.exit_code(row.train)


def _of_train(where: Home, act: str, options: dict[str, Any], *, as_json: bool) -> int:
    from supervisor.cli import landing
    from supervisor.faces import landing as text

    row = _found(where, options["into"])
    if act in ("stop", "resume"):
        common.ask(where, "land", {"op": act, "train": row.train.id})
    if act == "resume" or act == "follow":
        return _ended(landing.follow(where, row.train.id, quiet=as_json), as_json=as_json)
    if act == "stop":
        row = _found(where, row.train.branch)
    if as_json:
        common.print_json(**text.shape(row))
        return 0
    for line in text.lines(row):
        common.show(line)
    if row.train.by_hand:
        common.say(f"by hand: {row.train.by_hand}")
    return 0


def _found(where: Home, into: str | None) -> TrainRow:
    """The train into a branch of this repository that was asked for last; without a branch, the newest."""
    from supervisor.ledger import queries, trains

    with contextlib.closing(common.ledger(where)) as db:
        project = queries.project_at(db, str(Path.cwd()))
        found = trains.newest(db, project, into or "")
    if not found:
        on = into or str(Path.cwd())
        raise NotFound(
            "no train", on=on, why="none was ever begun there", hint=f"nightcrew land --ready --into {shlex.quote(into or 'BRANCH')}"
        )
    return found[0]
