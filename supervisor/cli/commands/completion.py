"""`nightcrew completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

INSTALL = {
    "bash": 'eval "$(nightcrew completion bash)" in ~/.bashrc (bash 4.4 or newer)',
    "zsh": 'eval "$(nightcrew completion zsh)" in ~/.zshrc, below compinit',
    "fish": "nightcrew completion fish > ~/.config/fish/completions/nightcrew.fish",
}
"""How each shell is told for good."""


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
def command(shell: str) -> None:
    """Print what makes SHELL complete verbs, options, files, and the names of tasks and runs as they are when you press Tab.

    \b
    eval "$(nightcrew completion bash)"
    eval "$(nightcrew completion zsh)"
    nightcrew completion fish | source
    """
    from supervisor.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has a class for each of the three
    lines = made(cli, {}, "nightcrew", "_NIGHTCREW_COMPLETE").source().strip().splitlines()
    lines.insert(lines[0].startswith("#compdef"), f"# To install: {INSTALL[shell]}")  # which zsh wants to see first
    click.echo("\n".join(lines))
