"""What the subverbs of `night` that take a plan have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here)."),
    click.option("--base", help="Where worktrees start: a branch, tag or commit (default: the plan's base, else HEAD)."),
    click.option("--until", metavar="TIME", help='No task starts from then on: "06:30" (the next one), "8h".'),
    click.option("--grace", metavar="DURATION", help="How long those that run then may still take (default: 10m)."),
    click.option("--cost-max", metavar="USD", help="What all its requests may cost together."),
    click.option("--parallel", metavar="N", help="Of its agents so many live at once (default: as many as there are slots)."),
    click.option("--on-cap", metavar="drain|stop", help="Whether what runs goes on when the cap is reached (default: drain)."),
)


def plan_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """PLAN, a file."""
    return click.argument("plan", type=click.Path(path_type=Path), required=required)


def night_options(command: Command) -> Command:
    """Where it works, and the terms: `until`, `grace`, `cost_max`, `parallel` and `on_cap`, texts or None."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
