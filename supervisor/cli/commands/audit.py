"""`nightcrew audit verify` and `nightcrew audit show`."""

from __future__ import annotations

import json
from collections import deque

import click

from supervisor.cli import common
from supervisor.core.errors import NotFound, one_line
from supervisor.host.paths import home


@click.group(name="audit")
def command() -> None:
    """Look at who was refused, and which keys came and went; each record is chained to the one before.

    \b
    nightcrew audit verify
    """


@command.command()
@common.json_option
def verify(as_json: bool) -> int:
    """Check that no record was changed, left out or cut off. Ends with 1 and names the first bad one.

    \b
    nightcrew audit verify
    """
    from supervisor.host import audit, secrets

    where = home()
    if not where.secret.exists():
        raise NotFound("there is no audit log", on=str(where.audit), hint="nightcrew up -d")
    verdict = audit.verify(where.audit, secrets.own(where.secret))
    if as_json:
        common.print_json(whole=not verdict.why, records=verdict.records, line=verdict.line or None, why=verdict.why)
    elif verdict.why:
        click.echo(f"line {verdict.line}: {verdict.why}")
        common.say(f"{verdict.records} records before it are as they were written")
    else:
        click.echo(f"{verdict.records} records, whole")
    return 1 if verdict.why else 0


@command.command()
@click.option("-n", "--number", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many of the newest.")
@common.json_option
def show(number: int, as_json: bool) -> None:
    """Print the newest records, oldest first.

    \b
    nightcrew audit show -n 100
    """
    where = home()
    if not where.audit.exists():
        raise NotFound("there is no audit log", on=str(where.audit), hint="nightcrew up -d")
    with where.audit.open(errors="replace") as file:
        lines = deque(file, maxlen=number)
    records = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    if as_json:
        common.print_json(records=records)
        return
    for record in records:
        said = ", ".join(f"{name} {value}" for name, value in record["data"].items())
        click.echo(one_line(f"{record['at']}  {record['who']:<10} {record['event']}" + (f": {said}" if said else "")))
