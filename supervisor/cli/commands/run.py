"""`nightcrew run PLAN`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from supervisor.cli import common, follow
from supervisor.host.paths import home


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@click.option("--base", help="Where worktrees start: a branch, tag or commit (default: the plan's base, else HEAD).")
@click.option("-d", "--detach", is_flag=True, help="Do not follow the run; return when it is accepted.")
@click.option("--key", help="Idempotency key: the same key twice is one run.")
@common.json_option
def command(plan: Path, repo: Path, base: str | None, detach: bool, key: str | None, as_json: bool) -> int:
    """Run a plan of tasks and follow it to its end.

    Starts the supervisor when none runs. Ctrl-C only stops following: the tasks go on. Exit code 1 when a task did not end well.

    \b
    nightcrew run plan.toml
    nightcrew run plan.toml -C ../shop --base main
    nightcrew run plan.toml -d --json
    """
    from supervisor.daemon import submit

    submission, notes = submit.from_plan(plan, repo, base, key, os.environ)
    return follow.submit_and_follow(home(), submission, notes, detach=detach, as_json=as_json)
