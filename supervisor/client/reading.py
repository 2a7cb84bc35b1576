"""Look at the crew: from the ledger, the supervisor and the gateway."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory import mail as mail_rows
from supervisor.client import common, protocol
from supervisor.features.landing import view as landing_view
from supervisor.host.paths import Home
from supervisor.kernel.conversations import Delivery
from supervisor.kernel.errors import NightcrewError, NotFound, one_line
from supervisor.kernel.format import age
from supervisor.kernel.states import TaskState
from supervisor.results import conflicts, verdicts
from supervisor.server import lock
from supervisor.server.gateway_report import Heard
from supervisor.store import conversations, queries
from supervisor.views import figures, status, waits
from supervisor.views.status import Waiting

if TYPE_CHECKING:
    from agents.agent_state import Status
    from supervisor.results.conflicts import Matrix
    from supervisor.store.journal import Branch


# Looking
# -------
# Looking at the crew: what `nightcrew status` and `nightcrew mcp` show, read from the ledger, the supervisor and the gateway.


Shape = Mapping[str, Any]
EVIDENCE_S = 2.0
GATEWAY_S = 2.0
"""Seconds that a gateway which does not answer may hold this up."""


def named(db: sqlite3.Connection, name: str) -> list[queries.TaskView]:
    return queries.several(db, queries.match_tasks(db, common.typed(name), queries.project_at(db, str(Path.cwd()))))


def foremost(db: sqlite3.Connection, at_most: int) -> tuple[list[queries.TaskView], Counter[TaskState]]:
    """Return what a person looks at first, the unfinished tasks and the newest run, and how many there are of each state; among these also
    the failed tasks of earlier runs that still have a worktree."""
    views, counts = queries.foremost(db, at_most), queries.unfinished_counts(db)
    newest = queries.newest_run(db)
    if newest is not None:
        ended, numbers = queries.ended_of(db, newest, at_most)
        views, counts = views + ended, counts + numbers
    return views, counts + queries.failed_before_counts(db, newest or "")


def limited(gateway: Mapping[str, Any] | None) -> dict[str, str]:
    """The agents of which all requests wait for tokens, as the gateway says."""
    agents = (gateway or {}).get("agents", ())
    return {one["name"]: "rate_limited" for one in agents if one.get("queued") and not one.get("in_flight")}


def waiting(
    where: Home, db: sqlite3.Connection, views: Sequence[queries.TaskView], heard: Heard, needs: common.Needs, gateway: Shape | None = None
) -> Waiting:
    """What waits for a person or an agent beside these tasks: read from the ledger, with what supervisor and gateway have said."""
    return Waiting(
        asked={one["task"]: one for one in needs.asked},
        unsent=status.unsent(conversations.pending(db)),
        states={**needs.states, **limited(gateway)},
        reasons=waits.reasons(db, views, heard.conditions, runs=lock.holder(where.lock) is not None, wall=time.time()),
        mail=mail_rows.asked_of_person(db),
        conflicts=conflicts.of_living(where, views),
        trains=landing_view.of_results(where.root, db, views),
    )


def conflict_matrix(where: Home, db: sqlite3.Connection, project: str, limit_s: float, only: str = "") -> Matrix:
    """How the results of a project stand to each other and to its checkout now, within `limit_s`; what the supervisor knows is not compared
    again. `only`: the task that is asked about. Raises NotFound when the repository is gone or nothing was ever run in it, else as
    `Git.run`."""
    from supervisor.host import files
    from supervisor.results import trial_merges
    from supervisor.store import journal
    from worktrees.git import Git
    from worktrees.repository import discover

    root = queries.project_root(db, project)
    if root is None:
        raise NotFound("no results", on=str(Path.cwd()), why="nothing was ever run in this repository", hint="nightcrew status --all")
    found = journal.of_project(db, project, 2 * conflicts.SIDES_MAX)
    repository = discover(Git(files.private_dir(where.root) / "git"), Path(root))
    return trial_merges.look(repository, found, conflicts.known(where, project).known, time.monotonic() + limit_s, only)


def matrix_of(where: Home, root: str, branches: list[Branch]) -> tuple[Matrix, frozenset[str]]:
    """Return how these branches of the repository at `root` stand to each other and to its checkout, and the tasks whose branch is gone.
    Raises as `discover` and `Git.run`."""
    from supervisor.host import files
    from supervisor.results import trial_merges
    from worktrees.git import Git
    from worktrees.repository import discover

    repository = discover(Git(files.private_dir(where.root) / "git"), Path(root))
    stands = trial_merges.standing(repository, [branch.name for branch in branches])
    matrix = trial_merges.look(repository, (branches, 0), conflicts.known(where, repository.project).known, now=stands)
    return matrix, frozenset(branch.task for branch in branches if branch.name not in stands.tips)


def last_matrix(where: Home, db: sqlite3.Connection, project: str, limit_s: float, only: str = "") -> Matrix:
    """The same; where it cannot be found out, as the supervisor knew it last, and that is said."""
    try:
        return conflict_matrix(where, db, project, limit_s, only)
    except (NightcrewError, OSError) as error:
        why = error.line() if isinstance(error, NightcrewError) else one_line(str(error))
        common.say(f"conflicts are as they were known last: {why}")
        return conflicts.known(where, project)


def explained(where: Home, views: list[queries.TaskView], now: float) -> dict[str, Status]:
    """How the agents of these tasks are at `now` (wall clock), by task, with all evidence that there is."""
    from supervisor.views import agent_status

    said: dict[str, Any] = {}
    with contextlib.suppress(NightcrewError):  # what the ledger and the gateway say is shown without it
        pairs = [(view.id, view.epoch) for view in views if view.epoch]
        said = protocol.call(where.daemon_socket, "evidence", {"attempts": pairs}, timeout_s=EVIDENCE_S)["agents"]
    shape, _ = gateway(where)
    models = {agent["name"]: agent for agent in (shape or {}).get("agents", ())}
    return {view.id: agent_status.of(view, said.get(view.id, {}), models.get(view.id), now) for view in views}


def gateway(where: Home) -> tuple[dict[str, Any] | None, str]:
    """The gateway as JSON and on one line; None where there never was one. It must not keep anybody from seeing the crew."""
    if not where.gateway_record.exists():
        return None, ""
    from supervisor.views import gateway as gateway_json
    from supervisor.views import gateway as words

    try:
        shape = gateway_json.look(where, time.time(), timeout_s=GATEWAY_S)
    except NightcrewError as error:
        shape = {"running": False, "why": error.line()}
    return (None, "") if shape is None else (gateway_json.printed(shape), words.line(shape))


# Task facts
# ----------
# What is known of one task, a line for each thing, for `status` and for the page of the screen.


SENT = 20
"""Texts that were sent to a task and are shown."""


def lines(where: Home, db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """A line for each thing that is known of a task, but for its history."""
    from supervisor.store import journal

    yield f"  title     {one_line(view.title)}"
    yield f"  repo      {one_line(queries.run(db, view.run).root)}"
    if view.branch:
        yield f"  branch    {view.branch}"
        yield f"  worktree  {view.worktree}"
    for name, said in status.made_of(view) + status.said_of_itself(view.result):
        yield f"  {name:<9} {one_line(said)}"
    if view.parent:
        yield f"  added by  {view.parent}:{view.parent_epoch}"
    if below := queries.several(db, journal.children(db, view.id)):
        yield f"  children  {status.tally(status.counted(below))}: {', '.join(child.id for child in below[:SENT])}"
    if view.epoch:
        yield f"  records   {where.attempt(view.id, view.epoch)}"
    if taken := figures.of([view.result]):
        yield f"  models    {figures.text(taken, age(taken['wait_s']))}"
    yield from (f"  note      {one_line(str(note))}" for note in (view.result or {}).get("notes", ()))
    yield from (f"  past      {said}" for said in _past(where, db, view))
    for name, said in figures.facts(view):
        yield f"  {name:<9} {said}"
    yield from (f"  conflicts {said}" for said in conflicts.of_one(conflicts.known(where, view.project), view.id))
    for one in verdicts.decisions(db, [view.id]).values():
        yield f"  review    {one.verdict} {one.tip[:12]}{f': {one_line(one.why)}' if one.why else ''}"
    yield from (f"  {said}" for said in _conversation(db, view))
    for delivery in sent(db, [view]):
        yield f"  text {delivery.id:<4} {status.sent(delivery)}"


def _past(where: Home, db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """What its agents took past the gateway, where its result does not say that yet, and which cap that has used up."""
    if not where.gateway_account.exists():
        return
    from supervisor.server.attempts import model_usage  # with the account, which the list of all does not need
    from supervisor.store import rows

    with contextlib.suppress(NightcrewError):
        if not view.final and (tokens := model_usage.past_of(where, view.id)):
            yield f"{tokens:,} tokens went past the gateway by its agent's own account; they count against its caps"
        spec = rows.launch(db, view.id).spec
        if why := model_usage.used_up(where, view.id, spec.cost_max, spec.tokens_max):
            yield f"{why}; its next attempt, and texts for it, are refused"


def sent(db: sqlite3.Connection, views: list[queries.TaskView]) -> list[Delivery]:
    """The newest texts that were sent to one task; of several tasks those that wait."""
    if len(views) == 1:
        return conversations.of_task(db, views[0].id, SENT)
    shown = {view.id for view in views}
    return [one for one in conversations.pending(db) if one.task in shown]


def _conversation(db: sqlite3.Connection, view: queries.TaskView) -> Iterator[str]:
    """Whose conversation its agent continued, and how much of its first request a provider's cache had, beside that of the first."""
    from supervisor.store import conversations  # with what tasks are made of, which the list of all does not need

    held = conversations.one(db, view.id, view.epoch)
    before = None
    if held is not None and held.origin is not None:
        origin = held.origin
        yield f"from      {origin.task}, epoch {origin.epoch} ({origin.how})"
        before = conversations.first(db, origin.session)
    if hits := figures.first_request(view.result, before):
        yield f"cache     {hits}"
