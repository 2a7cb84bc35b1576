"""A question to an agent whose work has ended: a task of its own that continues its conversation. Runs in the process of the command.

A task ends once, and others may have begun with what it came to; so a question never changes it (docs/decisions/0023).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agents.kinds import to_run
from supervisor.core.conversations import How
from supervisor.core.errors import NotFound, Refused
from supervisor.core.spec import RunSpec, Submission
from supervisor.daemon import follow_up, forks, submit
from supervisor.ledger import conversations, queries, rows
from supervisor.ledger.queries import TaskView

TITLE_MAX = 100


def question(db: sqlite3.Connection, view: TaskView, text: str, environ: Mapping[str, str]) -> Submission:
    """The run of one task that asks the agent of `view`, where its conversation ended. Raises Refused while that goes on, or when its kind
    cannot continue one; NotFound when nobody knows the conversation."""
    launch = rows.launch(db, view.id)
    if not view.final:
        raise Refused("cannot ask", on=view.id, why=f"it is {view.state}", hint=f"nightcrew send {view.id}, or nightcrew wait {view.id}")
    if not to_run(launch.spec.kind).continues(How.RESUME, interactive=False):
        raise Refused("cannot ask", on=view.id, why=f"kind {launch.spec.kind} cannot continue a conversation", hint="nightcrew kinds ls")
    held = conversations.newest(db, view.id)
    if held is None:
        raise NotFound("no conversation of", on=view.id, why="its agent never said how it is called", hint=f"nightcrew logs {view.id}")
    had = conversations.of_session(db, held.session)
    if (open_one := next((one for one in had if one.end is None), None)) is not None:
        raise Refused(
            "cannot ask", on=view.id, why=f"{open_one.task} goes on with its conversation", hint=f"nightcrew wait {open_one.task}"
        )
    place = submit.workplace(Path(queries.run(db, view.run).root))
    task = replace(
        launch.spec.alone, name=f"{view.name}-ask", title=" ".join(text.split())[:TITLE_MAX], prompt=text, after=(), after_on="done",
        together="", interactive=False, retries=0, environment="", continue_from=view.id, continue_how=How.RESUME,
    )  # fmt: skip
    base = forks.tip(place.repository, queries.one(db, had[0].task))
    return submit.submission(RunSpec(task.title, (task,)), place, base, None, {**environ, **follow_up.same_place(launch.env)})
