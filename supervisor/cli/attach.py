"""`attach`, `shell`, `popup`, `top` and `web`."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import sys
import webbrowser
from pathlib import Path

import click

from supervisor.client import common
from supervisor.client.resolving import any_name, running_name
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound, Refused, UsageError
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
    from agents.tmux import quote

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


# Web
# ---
# `nightcrew web`.


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Of 127.0.0.1 (default: that of before, or 8421; 0: any).")
@click.option("--open", "show", is_flag=True, help="Open it in your browser.")
@click.option("--read-only", is_flag=True, help="Show, and let nobody act.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Under which a proxy of yours shows it by https; repeatable.")
@click.option("--new-token", is_flag=True, help="Make what was printed before worthless, and end every session.")
@common.json_option
def command_web(port: int | None, show: bool, read_only: bool, names: tuple[str, ...], new_token: bool, as_json: bool) -> None:
    """Show the crew on a page of this machine, live, and act there as with the verbs.

    It serves 127.0.0.1 alone until Ctrl-C, and prints the address to open, which holds the token. A second one prints
    the same address and leaves.

    \b
    nightcrew web --open
    nightcrew web --read-only --name laptop.tailnet.ts.net
    """
    from supervisor.views.web import serving

    for name in names:
        if _HOST.fullmatch(name) is None:
            raise UsageError("not the name of a host", on=name, hint="nightcrew web --name laptop.tailnet.ts.net")
    where = home()
    handle = serving.lock(where)
    if handle is None:
        if new_token:
            raise Refused("the page is served already", why="a new token needs a new server", hint="end that one, then again")
        _tell(_address_of_other(where), show=show, as_json=as_json)
        return
    _serve(where, port, names, read_only=read_only, new_token=new_token, show=show, as_json=as_json)


def _serve(where: Home, port: int | None, names: tuple[str, ...], *, read_only: bool, new_token: bool, show: bool, as_json: bool) -> None:
    from supervisor.cli.main import VERBS
    from supervisor.views.web import serving

    known = serving.read(where)
    secret = serving.new_secret() if new_token or known is None else known.secret
    wanted = serving.Wanted(port, names, read_only, getpass.getuser())
    serving.serve(
        where, wanted, secret, serving.features(where, VERBS), serving.tokens(where), lambda url: _tell(url, show=show, as_json=as_json)
    )


def _address_of_other(where: Home) -> str:
    from supervisor.views.web import serving

    known = serving.read(where)
    if known is None:
        raise Refused("the page is served already", why="it has not said where", hint="again")
    return serving.address(known.secret, known.port, serving.tokens(where))


def _tell(url: str, *, show: bool, as_json: bool) -> None:
    if as_json:
        common.print_json(url=url)
    else:
        click.echo(url)
        common.say("the page is at this address, for whoever has it; Ctrl-C ends its server, agents go on")
    sys.stdout.flush()
    if show and not webbrowser.open(url):
        common.say("no browser could be opened here: open the address yourself")
