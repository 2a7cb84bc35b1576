"""`nightcrew popup`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import UsageError

_KEPT = ("NIGHTCREW_HOME", "NIGHTCREW_CONFIG")


@click.command()
@click.option("--key", default="N", show_default=True, help="After your prefix key.")
def command(key: str) -> None:
    """Print the line for your own tmux that opens nightcrew top in a popup over what you do.

    \b
    nightcrew popup >> ~/.tmux.conf
    nightcrew popup --key C-n | tmux source-file -
    """
    from agents.tmux.quoting import quote

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
