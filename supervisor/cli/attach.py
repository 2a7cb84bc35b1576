"""`attach`, `shell`, `popup` and `top`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from supervisor.client import common
from supervisor.client.names import any_name, running_name
from supervisor.host.paths import home
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.states import TaskState
from supervisor.store import queries
from supervisor.views import status

# Attach
# ------
# `nightcrew attach`.


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
    from supervisor.client import attach

    where = home()
    if name == "supervisor":
        return attach.attach_supervisor(where)
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
    code = attach.attach(where, view.id, view.epoch)
    common.say(f"{view.id} is {_state(queries.one(db, view.id))}")
    return code


def _state(view: queries.TaskView) -> str:
    why = status.why(view)
    return f"{view.state} ({why})" if why else str(view.state)


# Shell
# -----
# `nightcrew shell`.


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=any_name)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command_shell(name: str, words: tuple[str, ...]) -> int:
    """Open a shell where a task's agent works, or run a command there: its worktree, its own git repository, its environment and sandbox.

    \b
    nightcrew shell lint
    nightcrew shell lint -- git log --oneline --all
    """
    from supervisor.client import attach

    where = home()
    return attach.run(where, common.task_named(where, name, archived=False), words, os.environ)


# Popup
# -----
# `nightcrew popup`.


_KEPT = ("NIGHTCREW_HOME", "NIGHTCREW_CONFIG")


@click.command()
@click.option("--key", default="N", show_default=True, help="After your prefix key.")
def command_popup(key: str) -> None:
    """Print the line for your own tmux that opens nightcrew top in a popup over what you do.

    \b
    nightcrew popup >> ~/.tmux.conf
    nightcrew popup --key C-n | tmux source-file -
    """
    from agents.tmux.tmux_server import quote

    if not key.isprintable() or not key.strip():
        raise UsageError("not a key", on=key, why="tmux calls keys N, C-n or F5", hint="nightcrew popup --key N")
    typed = sys.argv[0] if os.path.basename(sys.argv[0]) == "nightcrew" else "nightcrew"  # noqa: PTH119 - a word, perhaps no path
    program = shutil.which(typed)
    words = [str(Path(program).absolute())] if program is not None else [sys.executable, "-I", "-m", "supervisor.cli.main"]
    named = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    called = shlex.join([*(["env", *named] if named else []), *words, "top"])
    click.echo(f"bind-key {quote(key)} display-popup -E -w 90% -h 85% -d {quote('#{pane_current_path}')} {quote(called)}")
    if sys.stdout.isatty():
        common.say("append it to ~/.tmux.conf; then your prefix key and this one open the screen, q closes it")


# Top
# ---
# `nightcrew top`.


@click.command()
def command_top() -> None:
    """Run the crew from one screen: who needs you, what they do, what can be taken; a key for each verb, ? shows them.

    Alone on a terminal, `nightcrew` does the same once there is a crew.

    \b
    nightcrew top
    """
    if not (common.can_redraw() and sys.stdin.isatty()):
        why = "TERM=dumb cannot move its cursor" if sys.stdout.isatty() and sys.stdin.isatty() else "stdin or stdout is not one"
        raise UsageError("top needs a terminal", why=why, hint="nightcrew status")
    from supervisor.cli.main import VERBS
    from supervisor.client.crew import Lookout, VerbActs
    from supervisor.views.top.app import TopApp

    where = home()
    TopApp(Lookout(where), VerbActs(where, VERBS)).run()
