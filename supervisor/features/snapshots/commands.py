"""`nightcrew snapshot` and `nightcrew fork`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common, follow
from supervisor.client.isolation import network_option
from supervisor.client.names import environment_name, snapshot_name
from supervisor.client.tail import Tail
from supervisor.features.snapshots import rows as snapshots_rows
from supervisor.features.snapshots import view as snapshots_view
from supervisor.features.snapshots.rules import WHOLE, Snapshot, SnapshotState, chosen, overriding, staleness
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NeedsHuman, NotFound, NotRunning, Refused, ToolFailed, UsageError, one_line
from supervisor.kernel.format import duration
from supervisor.store import sqlite

if TYPE_CHECKING:
    from supervisor.client.submit import Workplace
    from supervisor.features.snapshots.forks import Asked
    from supervisor.features.snapshots.order import Order
    from supervisor.kernel.spec import Submission


# Snapshot progress
# -----------------
# Making a snapshot and watching it: `snapshot create`, and whatever starts tasks that name one.


LOOK_S = 0.2


def build(home: Home, order: Order, *, agreed: bool = False, may_ask: bool = True) -> Snapshot:
    """Have the supervisor make it, printing what its commands print (on stderr) until it is ready; the snapshot.

    A snapshot that exists stays as it is; one that another command builds now is waited for. `agreed`: the person asked for this set-up by
    the command; else the person is asked where the supervisor wants that, on a terminal and with `may_ask`.
    Raises NeedsHuman when the person did not agree, ToolFailed when a command failed, NotRunning when the supervisor went away.
    """
    from supervisor.server import lock

    begun = _begun(home, order, agreed=agreed, may_ask=may_ask)
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
            time.sleep(LOOK_S)
    if row.state is SnapshotState.FAILED:
        raise ToolFailed("no snapshot was made", on=order.spec.name, why=row.reason, kept="nothing of it", hint=f"less {begun['log']}")
    took = f"{duration(row.setup_s)} to set up, {duration(row.freeze_s)} to freeze" if begun["new"] else "it was made of the same before"
    common.say(f"snapshot {row.spec.name} is ready: {took}")
    return row


def _begun(home: Home, order: Order, *, agreed: bool, may_ask: bool) -> dict[str, Any]:
    request = {"op": "create", "order": order}
    try:
        return common.ask(home, "snapshot", {**request, "agreed": agreed})
    except NeedsHuman as error:
        if not (may_ask and sys.stdin.isatty()):
            raise
        common.say(f"the set-up of snapshot {order.spec.name} {one_line(error.why.removeprefix('it '))}")
        click.confirm("Run it?", abort=True, err=True)
        return common.ask(home, "snapshot", {**request, "agreed": True})


def ready_for(home: Home, submission: Submission, *, may_ask: bool = True) -> Submission:
    """Make the snapshots that tasks of `submission` name, where there is none or a stale one. Returns `submission` with the id of each, so
    that its tasks start from these, whatever is made meanwhile.

    A snapshot that differs only in its base commit is used as it is: what differs is checked out in each environment. A task that brings
    an id gets the snapshot of that id while it exists.
    Raises as `build`, NotFound for a name that neither the project file nor the ledger knows, and Refused for a task that asks for other
    resources than its memory snapshot has; nothing is made then.
    """
    wanted = {task.snapshot: task.snapshot_id for task in submission.spec.tasks if task.snapshot}
    if not wanted:
        return submission
    from supervisor.client import submit

    place = submit.workplace(Path(submission.root))
    found = {name: _found(home, name, noted, place, submission) for name, noted in wanted.items()}
    made = {name: _made(home, name, row, order, may_ask=may_ask) for name, (row, order) in found.items()}
    tasks = tuple(replace(task, snapshot_id=made.get(task.snapshot, "")) for task in submission.spec.tasks)
    return replace(submission, spec=replace(submission.spec, tasks=tasks))


def _found(home: Home, name: str, noted: str, place: Workplace, submission: Submission) -> tuple[Snapshot | None, Order | None]:
    """What there is of that name, and what it would be made of now; no order for one that is taken as it is."""
    from supervisor.features.snapshots import order as snapshots_order

    row = chosen(_rows(home, name, submission.project), noted)
    if row is not None and row.id == noted and row.state in WHOLE:
        spec, order = row.spec, None
    else:
        spec = place.project.snapshots.get(name) or (row.spec if row else None) or snapshots_order.asked_for(name, place, {})
        order = snapshots_order.order(spec, place, submission.base_oid, os.environ)
    for task in submission.spec.tasks:
        if task.snapshot == name and (refusal := overriding(spec, task)) is not None:
            raise refusal
    return row, order


def _made(home: Home, name: str, row: Snapshot | None, order: Order | None, *, may_ask: bool) -> str:
    """The id of the snapshot that is there now, made when it has to be."""
    if row is not None and (order is None or row.state is SnapshotState.READY):
        changed = staleness(row, order.spec, row.base_oid, order.digests) if order is not None else ()
        if not changed:
            return row.id
        common.say(f"snapshot {name} is stale: {one_line('; '.join(changed))}")
    assert order is not None  # noqa: S101 - only a row that is taken as it is comes without
    return build(home, order, may_ask=may_ask).id


def _rows(home: Home, name: str, project: str) -> list[Snapshot]:
    if not home.ledger.exists():
        return []
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        return [row for row in snapshots_rows.every(db, project) if row.spec.name == name]


# Snapshot
# --------
# `nightcrew snapshot create`, `ls`, `show`, `rm`, `prune` and `advise`.


_REPO = click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")


@click.group(name="snapshot")
def command_snapshot() -> None:
    """Prepare an environment once, freeze it, and start tasks from it in milliseconds; docs/environments.md.

    \b
    nightcrew snapshot create deps --setup 'npm ci' --verify 'node -e 1'
    nightcrew add --snapshot deps 'npm test'
    """


def _modules(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's shape
    return tuple(name.strip() for word in words for name in word.split(","))


@command_snapshot.command()
@click.argument("name")
@click.option("--setup", multiple=True, metavar="COMMAND", help="Prepares the environment, in a checkout. May be repeated.")
@click.option("--verify", multiple=True, metavar="COMMAND", help="Must end well before anything is frozen. May be repeated.")
@click.option("--kind", type=click.Choice(["filesystem", "memory"]), help="Default: memory with --preload, else filesystem.")
@click.option(
    "--preload", multiple=True, metavar="MODULE[,MODULE]", callback=_modules, help="Imported by a process that is forked for each agent."
)
@click.option("--copy", multiple=True, metavar="PATTERN", help='Files of your checkout that git ignores, such as ".env.local".')
@click.option("--base", help="The commit (default: HEAD).")
@_REPO
@common.json_option
def create(name: str, repo: Path, base: str | None, as_json: bool, **options: Any) -> int:
    """Make a snapshot: as [snapshot.NAME] of nightcrew.toml says, or as the options do.

    A set-up or a check that fails leaves nothing behind. One of this name that was made of something else becomes stale.

    \b
    nightcrew snapshot create deps
    nightcrew snapshot create deps --setup 'uv sync --frozen'
    """
    from supervisor.client import submit
    from supervisor.features.snapshots import order as snapshots_order

    place = submit.workplace(repo)
    if options["preload"]:
        options["kind"] = options["kind"] or "memory"
    spec = snapshots_order.asked_for(name, place, options)
    row = build(home(), snapshots_order.order(spec, place, base, os.environ), agreed=True)
    if as_json:
        common.print_json(**snapshots_view.as_json(row))
    else:
        click.echo(row.id.partition("/")[2])
    return 0


@command_snapshot.command(name="ls")
@click.option("--all", "everywhere", is_flag=True, help="Of every repository.")
@_REPO
@common.json_option
def list_all(everywhere: bool, repo: Path, as_json: bool) -> None:
    """List snapshots, the newest of a name first.

    \b
    nightcrew snapshot ls --json
    """
    with contextlib.closing(common.ledger(home())) as db:
        rows = snapshots_rows.every(db, None if everywhere else _project(repo))
    if as_json:
        common.print_json(snapshots=[snapshots_view.as_json(row) for row in rows])
    elif rows:
        click.echo(snapshots_view.table(rows, time.time()))
    else:
        common.say("no snapshots; next: nightcrew snapshot create NAME --setup COMMAND")


@command_snapshot.command()
@click.argument("name", shell_complete=snapshot_name)
@_REPO
@common.json_option
def show(name: str, repo: Path, as_json: bool) -> None:
    """Show what a snapshot is made of, what has changed since, and what tasks took that started from it.

    \b
    nightcrew snapshot show deps
    """
    from supervisor.client import submit
    from supervisor.features.snapshots import order as snapshots_order
    from supervisor.features.snapshots.rules import staleness

    place = submit.workplace(repo)
    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots_rows.find(db, common.typed(name), place.repository.project)
        taken = snapshots_view.measured(db, row.id)
    now = snapshots_order.order(place.project.snapshots.get(row.spec.name, row.spec), place, None, os.environ)
    changed = staleness(row, now.spec, now.base_oid, now.digests)
    if as_json:
        common.print_json(
            **snapshots_view.as_json(row), changed=list(changed), attempts=taken.attempts, fork_s=taken.fork_s, work_s=taken.work_s
        )
    else:
        click.echo(snapshots_view.page(row, changed, taken, time.time()))


@command_snapshot.command()
@click.argument("names", nargs=-1, required=True, shell_complete=snapshot_name)
@_REPO
@common.json_option
def rm(names: tuple[str, ...], repo: Path, as_json: bool) -> None:
    """Remove snapshots. One on which environments stand stays.

    \b
    nightcrew snapshot rm deps
    """
    answer = _ask({"op": "remove", "project": _project(repo), "names": [common.typed(name) for name in names]})
    if as_json:
        common.print_json(**answer)
    else:
        for item in answer["removed"]:
            click.echo(f"removed  {item['id'].partition('/')[2]}")
    if answer["kept"]:
        first = answer["kept"][0]
        raise Refused("not removed", on=first["name"], why=first["why"], kept="it as it was", hint="nightcrew clean, then try again")


@command_snapshot.command()
@click.option("-y", "--yes", is_flag=True, help="Remove them.")
@common.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Show which snapshots nobody needs any more: failed, replaced, or stale and unused for a week. With --yes remove them.

    \b
    nightcrew snapshot prune --yes
    """
    answer = _ask({"op": "prune", "remove": yes})
    if as_json:
        common.print_json(**answer)
        return
    for item in answer["prunable"]:
        click.echo(f"{'removed' if yes else 'would remove'}  {item['id'].partition('/')[2]}  {one_line(item['why'])}")
    if not answer["prunable"]:
        common.say("nothing to prune")
    elif not yes:
        common.say("nothing was removed; next: nightcrew snapshot prune --yes")


@command_snapshot.command()
@click.argument("name", shell_complete=snapshot_name)
@click.option("-n", "--runs", type=click.IntRange(0, 10**9), default=10, show_default=True, help="How often it will be used.")
@_REPO
@common.json_option
def advise(name: str, runs: int, repo: Path, as_json: bool) -> None:
    """Say from measured times whether a snapshot pays, and from which run on.

    \b
    nightcrew snapshot advise deps -n 50
    """
    from dataclasses import asdict

    from supervisor.features.snapshots.rules import Times
    from supervisor.features.snapshots.rules import advise as advice

    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots_rows.find(db, common.typed(name), _project(repo))
        taken = snapshots_view.measured(db, row.id)
    if taken.fork_s is None or taken.work_s is None:
        why = "no task that started from it has ended"
        raise UsageError("nothing was measured yet of", on=name, why=why, hint=f"nightcrew add --snapshot {name} -f true")
    times = Times(row.setup_s, row.freeze_s, taken.fork_s, taken.work_s)
    found = advice(times, runs)
    if as_json:
        common.print_json(**asdict(found), **asdict(times), runs=runs, attempts=taken.attempts)
    else:
        click.echo(found.why)


def _project(repo: Path) -> str:
    from supervisor.client import submit

    return submit.workplace(repo).repository.project


def _ask(args: dict[str, Any]) -> dict[str, Any]:
    return common.ask(home(), "snapshot", args, timeout_s=600.0)


# Fork
# ----
# `nightcrew fork`.


MOST = 1000
"""Forks of one command: as many as there can be slots."""


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [-- COMMAND...]", type=click.UNPROCESSED, shell_complete=snapshot_name)
@click.option("-n", "number", type=click.IntRange(1, MOST), default=1, show_default=True, help="How many.")
@click.option("--as", "environment", metavar="ENV", help="Give the environment a name, by which --reopen finds it.")
@click.option("--reopen", metavar="ENV", shell_complete=environment_name, help="Go on in the environment of that name, where it ended.")
@click.option("--base", help="Where the worktree starts (default: HEAD).")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier (default: 0, for a person sits there).")
@network_option
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")
@common.json_option
def command_fork(words: tuple[str, ...], repo: Path, as_json: bool, reopen: str | None, **options: Any) -> int:
    """Open environments that start from the snapshot NAME, each with your shell, or COMMAND, in a pane to attach to.

    The snapshot is made when it is not there. What is left in an environment is kept as after any task: on its branch, or on a
    rescue ref. One that was opened with --as is opened again with --reopen: a new worktree of the same snapshot, at the commit where
    the last one ended.

    \b
    nightcrew fork deps
    nightcrew fork deps -n 3 -- claude
    nightcrew fork deps --as review
    nightcrew fork --reopen review
    """
    from supervisor.client import submit
    from supervisor.features.snapshots.forks import Asked

    place = submit.workplace(repo)
    given = {key: value for key, value in options.items() if value is not None}
    if reopen is not None:
        submission = _reopened(reopen, Asked(words, **given), place)
    elif words:
        submission = _fresh(words[0], Asked(words[1:], **given), place)
    else:
        raise UsageError("which snapshot, or which environment?", hint="nightcrew fork NAME, or nightcrew fork --reopen ENV")
    accepted = follow.hand_over(home(), submission, place.repository.notes)
    task = submission.spec.tasks[0]
    if as_json:
        common.print_json(run=accepted.run, tasks=list(accepted.tasks), snapshot=task.snapshot, environment=task.environment or None)
        return 0
    click.echo("\n".join(accepted.tasks))
    common.say(f"to work in it: nightcrew attach {accepted.tasks[0]}; Ctrl-b d leaves, and it goes on")
    return 0


def _fresh(snapshot: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.config.task_keys import check_id
    from supervisor.features.snapshots import forks

    if asked.environment and asked.number != 1:
        raise UsageError("one name cannot be given to", on=f"{asked.number} environments", hint="without --as, or without -n")
    if asked.environment:
        try:
            check_id(asked.environment)
        except ValueError as error:
            raise UsageError("bad value", on="--as", why=str(error)) from None
    earlier = forks.newest(home(), common.typed(asked.environment), place.repository.project) if asked.environment else None
    submission = forks.forks(snapshot, asked, place, os.environ)
    if earlier is not None:
        forks.refuse_open(earlier[0])
        common.say(f"{asked.environment} starts anew; what it held before stays with {earlier[0].id}")
    return submission


def _reopened(name: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.features.snapshots import forks

    if asked.environment or asked.base or asked.number != 1:
        raise UsageError("--reopen goes with neither --as, --base nor -n", hint=f"nightcrew fork --reopen {name}")
    found = forks.newest(home(), common.typed(name), place.repository.project)
    if found is None:
        raise NotFound("no environment is called", on=name, hint=f"nightcrew fork SNAPSHOT --as {name}")
    return forks.reopened(found, asked, place, os.environ)
