"""`nightcrew attach`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import running_name
from supervisor.core.errors import NotFound
from supervisor.core.states import TaskState
from supervisor.faces import status
from supervisor.host.paths import home
from supervisor.ledger import queries


@click.command()
@click.argument("name", required=False, shell_complete=running_name)
def command(name: str | None) -> int:
    """Look into an agent's pane, live; type into it when it is of kind terminal. Detach with Ctrl-b d: the agent goes on.

    One that was set aside in the night goes on, so that it can be answered.
    Without NAME: the agent that waits longest for you, or else the one that has run longest.
    `nightcrew attach supervisor` shows the supervisor.

    \b
    nightcrew attach lint
    nightcrew attach supervisor
    """
    from supervisor.daemon import sessions

    where = home()
    if name == "supervisor":
        return sessions.attach_supervisor(where)
    db = common.ledger(where)
    if name is None:
        running = queries.foremost(db, 0)
        if not running:
            raise NotFound("no agent is running", hint="nightcrew status")
        waiting = common.who_needs(where)
        view = queries.one(db, waiting[0]["task"]) if waiting else running[0]
    else:
        view = common.task_named(where, name, archived=False)
    if view.state is not TaskState.RUNNING:
        raise NotFound(
            "no live pane of",
            on=view.id,
            why=f"it is {_state(view)}",
            hint=f"nightcrew logs {view.id}" if view.epoch else "nightcrew status",
        )
    if any(view.id == task for task, _, _ in queries.set_aside(db)):
        common.ask(where, "resume", {"tasks": [view.id]})
    code = sessions.attach(where, view.id, view.epoch)
    common.say(f"{view.id} is {_state(queries.one(db, view.id))}")
    return code


def _state(view: queries.TaskView) -> str:
    why = status.why(view)
    return f"{view.state} ({why})" if why else str(view.state)
