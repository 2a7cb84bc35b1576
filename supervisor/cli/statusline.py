"""`nightcrew statusline`."""

from __future__ import annotations

import click

from supervisor.cli import summary


@click.command()
def command() -> None:
    """Print the crew in a few characters, for the status line of tmux or a shell's prompt: `2? lint 3m 5W 3q`.

    2 need you, lint for 3 minutes; 5 work; 3 wait. An empty line says that nothing is to be done.

    \b
    tmux set-option -g status-right '#(nightcrew statusline)'
    """
    summary.main()
