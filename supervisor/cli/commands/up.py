"""`nightcrew up`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core import log_lines
from supervisor.core.states import TaskState
from supervisor.daemon import provider_keys
from supervisor.host.paths import Home, home
from supervisor.ledger import queries


@click.command()
@click.option("-d", "--detach", is_flag=True, help="In the background: a session 'supervisor' of our own tmux server.")
@click.option("--home", "root", type=click.Path(path_type=Path), help="State directory (default: NIGHTCREW_HOME or the user's).")
@click.option("--config", "config", type=click.Path(path_type=Path), help="Settings file (default: the user's config.toml).")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Of its log and the gateway's (default: log_format of the settings)."
)
def command(detach: bool, root: Path | None, config: Path | None, log_format: str | None) -> None:
    """Start the supervisor. It adopts every agent that is still alive, in this terminal or with -d in the background.

    A provider's key in ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY is put into a file of the gateway's, which only you can read,
    once; agents get a token in its place.

    In a terminal the first Ctrl-C drains and leaves, a second one leaves at once; agents go on in both cases.

    \b
    nightcrew up -d
    nightcrew up
    """
    if log_format:
        os.environ[log_lines.VARIABLE] = log_format
    where = Home(root.absolute()) if root else home()
    file = config or common.settings_file()
    rest = provider_keys.take(where, os.environ, common.say)
    if detach:
        from supervisor.daemon import start

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
    from supervisor.cli.live_view import LiveView
    from supervisor.daemon import wiring

    os.environ["NIGHTCREW_CONFIG"] = str(file.absolute())  # what lies beside it, a person's kinds of agent, is found by it too
    _never_wait_for_the_terminal()
    wiring.serve(where, file, LiveView(where).refresh)
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
