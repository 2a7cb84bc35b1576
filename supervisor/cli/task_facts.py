"""What is known of one task, a line for each thing, for `status` and for the page of the screen."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from supervisor.core.deliveries import Delivery
from supervisor.core.errors import NightcrewError, one_line
from supervisor.faces import conflicts, model_usage, usage
from supervisor.faces import status as text
from supervisor.host.paths import Home
from supervisor.ledger import deliveries, queries, reviews

SENT = 20
"""Texts that were sent to a task and are shown."""


def lines(where: Home, db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """A line for each thing that is known of a task, but for its history."""
    from supervisor.ledger import added_tasks

    yield f"  title     {one_line(view.title)}"
    yield f"  repo      {one_line(queries.run(db, view.run).root)}"
    if view.branch:
        yield f"  branch    {view.branch}"
        yield f"  worktree  {view.worktree}"
    for name, said in text.made_of(view) + text.said_of_itself(view.result):
        yield f"  {name:<9} {one_line(said)}"
    if view.parent:
        yield f"  added by  {view.parent}:{view.parent_epoch}"
    if below := queries.several(db, added_tasks.children(db, view.id)):
        yield f"  children  {text.tally(text.counted(below))}: {', '.join(child.id for child in below[:SENT])}"
    if view.epoch:
        yield f"  records   {where.attempt(view.id, view.epoch)}"
    if taken := model_usage.of([view.result]):
        yield f"  models    {model_usage.text(taken, text.age(taken['wait_s']))}"
    yield from (f"  note      {one_line(str(note))}" for note in (view.result or {}).get("notes", ()))
    yield from (f"  past      {said}" for said in _past(where, db, view))
    for name, said in usage.facts(view):
        yield f"  {name:<9} {said}"
    yield from (f"  conflicts {said}" for said in conflicts.of_one(conflicts.known(where, view.project), view.id))
    for one in reviews.decisions(db, [view.id]).values():
        yield f"  review    {one.verdict} {one.tip[:12]}{f': {one_line(one.why)}' if one.why else ''}"
    yield from (f"  {said}" for said in _conversation(db, view))
    for delivery in sent(db, [view]):
        yield f"  text {delivery.id:<4} {text.sent(delivery)}"


def _past(where: Home, db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """What its agents took past the gateway, where its result does not say that yet, and which cap that has used up."""
    if not where.gateway_account.exists():
        return
    from supervisor.daemon import model_usage as taken  # with the account, which the list of all does not need
    from supervisor.ledger import rows

    with contextlib.suppress(NightcrewError):
        if not view.final and (tokens := taken.past_of(where, view.id)):
            yield f"{tokens:,} tokens went past the gateway by its agent's own account; they count against its caps"
        if why := taken.used_up(where, view.id, rows.launch(db, view.id).spec):
            yield f"{why}; its next attempt, and texts for it, are refused"


def sent(db: sqlite3.Connection, views: list[queries.TaskView]) -> list[Delivery]:
    """The newest texts that were sent to one task; of several tasks those that wait."""
    if len(views) == 1:
        return deliveries.of_task(db, views[0].id, SENT)
    shown = {view.id for view in views}
    return [one for one in deliveries.pending(db) if one.task in shown]


def _conversation(db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """Whose conversation its agent continued, and how much of its first request a provider's cache had, beside that of the first."""
    from supervisor.ledger import conversations  # with what tasks are made of, which the list of all does not need

    held = conversations.one(db, view.id, view.epoch)
    before = None
    if held is not None and held.origin is not None:
        origin = held.origin
        yield f"from      {origin.task}, epoch {origin.epoch} ({origin.how})"
        before = conversations.first(db, origin.session)
    if hits := model_usage.first_request(view.result, before):
        yield f"cache     {hits}"
