"""`nightcrew answer`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import running_name
from supervisor.host.paths import home

ANSWER_S = 30.0


@click.command()
@click.argument("name", shell_complete=running_name)
@click.argument("what", type=click.Choice(["yes", "no"]))
@common.json_option
def command(name: str, what: str, as_json: bool) -> int:
    """Allow or deny what an agent asks for on its screen, by the key of that dialog. Only of dialogs that nightcrew knows: Claude Code's.

    Exit code 1 when the dialog is still there some seconds later.

    \b
    nightcrew answer lint yes
    """
    where = home()
    task = common.task_named(where, name, archived=False).id
    answer = common.ask(where, "answer", {"task": task, "allow": what == "yes"}, timeout_s=ANSWER_S)
    if as_json:
        common.print_json(**answer)
    else:
        common.say(sentence(answer))
    return 0 if answer["gone"] else 1


def sentence(answer: dict[str, object]) -> str:
    """What became of it."""
    did = "allowed" if answer["allowed"] else "denied"
    return f"{did}: {answer['what'] or answer['task']}" + ("" if answer["gone"] else "; its dialog is still there")
