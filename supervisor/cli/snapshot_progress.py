"""Making a snapshot and watching it: `snapshot create`, and whatever starts tasks that name one."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common
from supervisor.cli.tail import Tail
from supervisor.core.errors import NeedsHuman, NotRunning, ToolFailed, one_line
from supervisor.core.snapshots import WHOLE, Snapshot, SnapshotState, chosen, overriding, staleness
from supervisor.host.paths import Home
from supervisor.ledger import snapshots, store

if TYPE_CHECKING:
    from supervisor.core.spec import Submission
    from supervisor.daemon.snapshot_order import Order
    from supervisor.daemon.submit import Workplace

LOOK_S = 0.2


def build(home: Home, order: Order, *, agreed: bool = False, may_ask: bool = True) -> Snapshot:
    """Have the supervisor make it, printing what its commands print (on stderr) until it is ready; the snapshot.

    A snapshot that exists stays as it is; one that another command builds now is waited for. `agreed`: the person asked for this set-up by
    the command; else the person is asked where the supervisor wants that, on a terminal and with `may_ask`.
    Raises NeedsHuman when the person did not agree, ToolFailed when a command failed, NotRunning when the supervisor went away.
    """
    from supervisor.daemon import lock

    begun = _begun(home, order, agreed=agreed, may_ask=may_ask)
    if begun["new"]:
        common.say(f"making snapshot {order.spec.name} of {order.base_oid[:12]}; Ctrl-C leaves it being made")
    with contextlib.closing(store.connect_readonly(home.ledger)) as db:
        tail = Tail(Path(begun["log"]))
        while True:
            row = snapshots.find(db, begun["id"], order.project)
            tail.show()
            if row.epoch != begun["epoch"] or row.state is not SnapshotState.BUILDING:
                break
            if lock.holder(home.lock) is None:
                raise NotRunning("the supervisor went away while it made", on=order.spec.name, kept="nothing of it", hint="nightcrew up -d")
            time.sleep(LOOK_S)
    if row.state is SnapshotState.FAILED:
        raise ToolFailed("no snapshot was made", on=order.spec.name, why=row.reason, kept="nothing of it", hint=f"less {begun['log']}")
    took = f"{row.setup_s:.1f} s to set up, {row.freeze_s:.2f} s to freeze" if begun["new"] else "it was made of the same before"
    common.say(f"snapshot {row.spec.name} is ready: {took}")
    return row


def _begun(home: Home, order: Order, *, agreed: bool, may_ask: bool) -> dict[str, Any]:
    request = {"do": "create", "order": order.to_wire()}
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
    from supervisor.daemon import submit

    place = submit.workplace(Path(submission.root))
    found = {name: _found(home, name, noted, place, submission) for name, noted in wanted.items()}
    made = {name: _made(home, name, row, order, may_ask=may_ask) for name, (row, order) in found.items()}
    tasks = tuple(replace(task, snapshot_id=made.get(task.snapshot, "")) for task in submission.spec.tasks)
    return replace(submission, spec=replace(submission.spec, tasks=tasks))


def _found(home: Home, name: str, noted: str, place: Workplace, submission: Submission) -> tuple[Snapshot | None, Order | None]:
    """What there is of that name, and what it would be made of now; no order for one that is taken as it is."""
    from supervisor.daemon import snapshot_order

    row = chosen(_rows(home, name, submission.project), noted)
    if row is not None and row.id == noted and row.state in WHOLE:
        spec, order = row.spec, None
    else:
        spec = place.project.snapshots.get(name) or (row.spec if row else None) or snapshot_order.asked_for(name, place, {})
        order = snapshot_order.order(spec, place, submission.base_oid, os.environ)
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
    with contextlib.closing(store.connect_readonly(home.ledger)) as db:
        return [row for row in snapshots.every(db, project) if row.spec.name == name]
