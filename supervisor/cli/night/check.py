"""`nightcrew night check PLAN`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, night_check
from supervisor.cli.night_options import night_options, plan_argument


@click.command()
@plan_argument()
@night_options
@common.json_option
def command(plan: Path, as_json: bool, **options: Any) -> int:
    """Look whether a plan can go well tonight. Exit code 0: ready; 1: not.

    Looks at each agent's program and login, tries out every gate on the base commit and one free call with each credential, looks at the
    machine, and predicts end and cost from what such tasks took before. Nothing of the plan is started, and your checkout is not touched.

    \b
    nightcrew night check plan.toml --until 06:30 --cost-max 40
    nightcrew night check plan.toml --json
    """
    return night_check.show(plan, options, as_json=as_json)
