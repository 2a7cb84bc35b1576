"""`nightcrew answer`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import running_name
from supervisor.host.paths import home


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
    answer = common.ask(where, "answer", {"task": task, "allow": what == "yes"})
    if as_json:
        common.print_json(**answer)
    else:
        common.say(common.answered(answer))
    return 0 if answer["gone"] else 1
