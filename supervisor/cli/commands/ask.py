"""`nightcrew ask`."""

from __future__ import annotations

import os
import sys

import click

from supervisor.cli import common, follow
from supervisor.cli.names import ended_name
from supervisor.core.errors import UsageError
from supervisor.core.states import TaskState
from supervisor.faces import status
from supervisor.host.paths import home
from supervisor.ledger import queries


@click.command()
@click.argument("name", shell_complete=ended_name)
@click.argument("question")
@common.json_option
def command(name: str, question: str, as_json: bool) -> int:
    """Ask the agent of a task that has ended, and print its answer. Exit code 1 when there is none.

    Its conversation goes on, in a new worktree that begins with its work. QUESTION may be - for the standard input. The question is a
    task of its own, NAME-ask; what the agent changes is on that task's branch.

    \b
    nightcrew ask discounts 'Which of the tests covers rounding?'
    """
    from supervisor.daemon import asking

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if question == "-" else question
    if not text.strip() or "\0" in text:
        raise UsageError("there is no question", why="it is empty" if not text.strip() else "it holds a NUL character")
    where = home()
    db = common.ledger(where)
    submission = asking.question(db, common.task_named(where, name, archived=False), text, os.environ)
    accepted = follow.hand_over(where, submission, ())
    follow.to_the_end(where, accepted.run, quiet=True)
    view = queries.one(common.ledger(where), accepted.tasks[0])
    agent = (view.result or {}).get("agent") or {}
    if as_json:
        common.print_json(task=view.id, state=view.state, answer=agent.get("message", ""), reason=status.why(view), result=view.result)
    elif agent.get("message"):
        click.echo(agent["message"])
    if view.state is not TaskState.DONE and not as_json:
        common.say(f"{view.id} is {view.state}: {status.why(view)}; nightcrew logs {view.id}")
    if (view.result or {}).get("commits"):
        common.say(f"it changed something: nightcrew diff {view.id}")
    return follow.exit_code([view])
