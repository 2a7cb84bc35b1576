"""`up` and `down`: the supervisor itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from supervisor.client import common
from supervisor.client import start as provider_keys
from supervisor.host.paths import Home, home
from supervisor.kernel import audit
from supervisor.kernel.errors import NotRunning, Refused, TimedOut
from supervisor.kernel.states import TaskState
from supervisor.store import queries

# Up
# --
# `nightcrew up`.


@click.command()
@click.option("-d", "--detach", is_flag=True, help="In the background: a session 'supervisor' of our own tmux server.")
@click.option("--home", "root", type=click.Path(path_type=Path), help="State directory (default: NIGHTCREW_HOME or the user's).")
@click.option("--config", "config", type=click.Path(path_type=Path), help="Settings file (default: the user's config.toml).")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Of its log and the gateway's (default: log_format of the settings)."
)
def command_up(detach: bool, root: Path | None, config: Path | None, log_format: str | None) -> None:
    """Start the supervisor. It adopts every agent that is still alive, in this terminal or with -d in the background.

    A provider's key in ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY is put into a file of the gateway's, which only you can read,
    once; agents get a token in its place.

    In a terminal the first Ctrl-C drains and leaves, a second one leaves at once; agents go on in both cases.

    \b
    nightcrew up -d
    nightcrew up
    """
    if log_format:
        os.environ[audit.VARIABLE] = log_format
    where = Home(root.absolute()) if root else home()
    file = config or common.settings_file()
    rest = provider_keys.take(where, os.environ, common.say)
    if detach:
        from supervisor.client import start

        answer = start.ensure_running(where, file, common.say, take_up=True)
        common.say(f"the supervisor runs (pid {answer['pid']}); nightcrew attach supervisor")
        for sentence in answer.get("outdated", ()):  # a supervisor of another version may not say it
            common.say(sentence)
        said, wrong = start.await_gateway(where)
        for line in filter(None, [said, *wrong]):
            common.say(line)
        return
    if rest != dict(os.environ):  # so that no key stands in /proc/PID/environ of the supervisor for as long as it lives
        os.execve(sys.executable, [sys.executable, "-I", "-m", "supervisor.cli.main", *sys.argv[1:]], rest)  # noqa: S606 - ourselves again
    from supervisor.cli import live_view
    from supervisor.features import registry
    from supervisor.server import wiring

    os.environ["NIGHTCREW_CONFIG"] = str(file.absolute())  # what lies beside it, a person's kinds of agent, is found by it too
    _never_wait_for_the_terminal()
    wiring.serve(where, file, (*registry.installed(), live_view.FEATURE))
    if sys.stdout.isatty():
        click.echo()  # below the last frame
    common.say_left(queries.unfinished_counts(common.ledger(where))[TaskState.RUNNING])


def _never_wait_for_the_terminal() -> None:
    """Ctrl-S in it, or a tmux that hangs, must not stop the supervisor: what the terminal does not take at once is left out.

    By a handle of our own: O_NONBLOCK on the given one would change it for every process that holds it.
    """
    for stream in (1, 2):
        if os.isatty(stream):
            fd = os.open(os.ttyname(stream), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.dup2(fd, stream)
            os.close(fd)


# Down
# ----
# `nightcrew down`.


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for launches and finishes under way; the next supervisor finds them.")
def command_down(now: bool) -> None:
    """Stop the supervisor. Agents go on in their sessions; the next supervisor adopts them. To end agents: nightcrew kill.

    If a supervisor was killed, this ends the gateway and the tmux server that it left, unless an agent lives.

    Without --now it first lets launches and finishes under way come to their end, for at most 30 s.

    \b
    nightcrew down
    """
    from supervisor.client import start

    where = home()
    try:
        pid = int(start.ask(where, "ping", {})["pid"])
    except NotRunning as error:
        _without_supervisor(where, error)
        return
    live = int(start.ask(where, "down", {"now": now})["live"])
    if not start.wait_until_gone(where, pid, 40.0):
        raise TimedOut("the supervisor did not leave", on=f"pid {pid}", why="40 s passed", hint="nightcrew down --now")
    start.stop_servers_when_empty(where)
    common.say_left(live)


def _without_supervisor(where: Home, error: NotRunning) -> None:
    """End what a killed supervisor left. Raises `error` when there is nothing to end, or a supervisor runs after all."""
    from supervisor.client import start

    try:
        ended, agents = start.stop_what_was_left(where)
    except Refused:
        raise error from None
    if agents:
        raise NotRunning(
            error.what, kept=f"agents go on ({agents}), with the gateway and the tmux server", hint="nightcrew up -d adopts them"
        )
    if not ended:
        raise error
    common.say(f"no supervisor was running; ended what a killed one left: {', '.join(ended)}")
