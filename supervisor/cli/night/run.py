"""`nightcrew night run PLAN`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, follow
from supervisor.cli.night_options import night_options, plan_argument
from supervisor.core.errors import UsageError
from supervisor.host.paths import home


@click.command()
@plan_argument(required=False)
@night_options
@click.option("-d", "--detach", is_flag=True, help="Do not follow the night; return when it is accepted.")
@click.option("--key", help="Idempotency key: the same key twice is one night.")
@click.option("--check", "only_check", is_flag=True, help="Only look whether it can go well: nightcrew night check.")
@click.option("--installed", metavar="NAME", help="Start an installed night, as its timer does.")
@common.json_option
def command(plan: Path | None, only_check: bool, installed: str | None, as_json: bool, **rest: Any) -> int:
    """Run a plan until a deadline and within a cost cap, and follow it to its end.

    What you do not say is as [night] of config.toml has it. Ctrl-C only stops following: the night goes on.

    \b
    nightcrew night run plan.toml --until 06:30 --cost-max 40
    nightcrew night run plan.toml --until 8h --parallel 6 --on-cap stop -d
    """
    if installed is not None:
        return _start(installed)
    if plan is None:
        raise UsageError("which plan?", hint="nightcrew night run PLAN")
    if only_check:
        from supervisor.cli import night_check

        return night_check.show(plan, rest, as_json=as_json)
    return _run(plan, as_json=as_json, **rest)


def _run(plan: Path, repo: Path, base: str | None, detach: bool, key: str | None, as_json: bool, **terms: Any) -> int:
    from supervisor.config.reading import Once
    from supervisor.daemon import night_terms, submit

    files = Once()
    submission, notes = submit.from_plan(plan, repo, base, key, os.environ, files)
    submission = replace(submission, night=night_terms.order(plan, terms, files))
    return follow.submit_and_follow(home(), submission, notes, detach=detach, as_json=as_json)


def _start(name: str) -> int:
    """What a timer asks for: hand the night over and leave. The night itself is the supervisor's."""
    from datetime import datetime

    from supervisor.daemon import night_start

    where = home()
    run = night_start.begin(
        where, name, datetime.now().astimezone(), lambda submission, notes: follow.hand_over(where, submission, notes).run
    )
    click.echo(run)
    return 0
