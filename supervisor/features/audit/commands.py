"""`nightcrew audit verify` and `nightcrew audit show`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from supervisor.client import common
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound, one_line
from supervisor.kernel.format import rfc3339


class Since(common.Duration):
    """Seconds since 1970: of a duration before now, or of a date with a time; without a time zone it is this machine's."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            moment = datetime.fromisoformat(str(value).strip()).timestamp()
        except ValueError:
            moment = time.time() - super().convert(value, param, ctx)
        try:
            rfc3339(moment)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value} is not in the years 1 to 9999", param, ctx)
        return moment


@click.group(name="audit")
def command() -> None:
    """Look at what was done, by whom and why, and check that nobody changed the record of it.

    \b
    nightcrew audit verify
    """


@command.command()
@common.json_option
def verify(as_json: bool) -> int:
    """Check that no record was changed, left out or cut off, and no row that the records prove. Ends with 1 and names the first bad one.

    \b
    nightcrew audit verify
    """
    from supervisor.features.audit import views as audit_views

    where = home()
    verdict = audit_views.verify(where, _secret(where), time.time())
    if as_json:
        named = {"line": verdict.line or None, "table": verdict.table or None, "row": verdict.row or None}
        rows = {"proven": verdict.proven, "newer": verdict.newer}
        common.print_json(whole=not verdict.why, records=verdict.records, **named, why=verdict.why, warnings=verdict.warnings, **rows)
        return 1 if verdict.why else 0
    for warning in verdict.warnings:
        common.say(warning)
    if verdict.table and not verdict.row:
        click.echo(f"{verdict.table}: {verdict.why}")
    elif verdict.table:
        proof = f"; line {verdict.line} of {where.audit.name} proves it" if verdict.line else ""
        click.echo(f"{verdict.table}, row {verdict.row}: {verdict.why}{proof}")
    elif verdict.why:
        click.echo(f"line {verdict.line}: {verdict.why}")
        common.say(f"{verdict.records} records before it are as they were written")
    else:
        proven = (f"{rows} rows of the {table}" for table, rows in verdict.proven.items())
        click.echo(", ".join([f"{verdict.records} records", *proven, "whole"]))
        if newer := ", ".join(f"{rows} of the {table}" for table, rows in verdict.newer.items() if rows):
            common.say(f"newer rows, which no record proves yet: {newer}")
    return 1 if verdict.why else 0


@command.command()
@click.option("-n", "--number", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many of the newest.")
@click.option("--task", metavar="NAME", help="Only what was done to this task, with its model calls.")
@click.option("--since", type=Since(), metavar="MOMENT", help="Nothing older: a duration such as 2h, or a date with a time.")
@common.json_option
def show(number: int, task: str | None, since: float | None, as_json: bool) -> None:
    """Print the newest entries, oldest first.

    \b
    nightcrew audit show -n 100
    nightcrew audit show --task fix-login --since 2h
    """
    from supervisor.features.audit import views as audit_views

    where = home()
    secret = _secret(where)
    named = common.task_named(where, task).id if task else ""
    found = audit_views.entries(where, secret, most=number, task=named, since=since or 0.0)
    if as_json:
        common.print_json(entries=found)
        return
    for entry in found:
        click.echo(one_line(_line(entry)))


def _line(entry: dict[str, Any]) -> str:
    agent = f"{entry['task']}:{entry['epoch']}" if entry["epoch"] else entry["task"] or ""
    said = ", ".join(
        f"{name} {value}" for name, value in entry["data"].items() if value not in (None, "", {}) and name not in ("task", "epoch")
    )
    return f"{entry['at']}  {entry['who']:<10} {agent + ' ' if agent else ''}{entry['decision']}" + (f": {said}" if said else "")


def _secret(where: Home) -> bytes:
    from supervisor.host import secrets

    if not (where.audit.exists() or where.ledger.exists()):
        raise NotFound("there is no audit log", on=str(where.audit), hint="nightcrew up -d")
    if not where.secret.exists():
        why = "without it nothing can be checked, and a new one would fit no record that there is"
        raise NotFound("the secret is gone", on=str(where.secret), why=why, hint="put it back from a copy")
    return secrets.own(where.secret)
