"""`nightcrew night install PLAN`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from supervisor.cli import common
from supervisor.cli.night_options import night_options, plan_argument
from supervisor.core import timetable
from supervisor.core.errors import NotFound, Refused, UsageError, one_line
from supervisor.core.timetable import Timetable
from supervisor.host.paths import home

Parsed = TypeVar("Parsed")


def _time(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    return _parsed("--at", timetable.parse_time, text)


def _days(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    return timetable.EVERY_DAY if text is None else _parsed("--days", timetable.parse_days, text)


def _parsed(option: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError("bad value", on=option, why=str(error)) from None


@click.command()
@plan_argument()
@click.option("--at", metavar="TIME", required=True, callback=_time, help='When it starts, local time: "22:30".')
@click.option("--days", metavar="DAYS", callback=_days, help='On which days it starts: "mon-fri", "mon,wed" (default: every day).')
@night_options
@click.option("--name", help="Its name, for the other verbs (default: the plan's file name).")
@click.option("--by", type=click.Choice(["systemd", "cron"]), help="What starts it (default: systemd where its user manager answers).")
@click.option("--no-check", is_flag=True, help="Install it without a look whether it can go well.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def command(plan: Path, at: int, days: tuple[int, ...], repo: Path, base: str | None, **rest: Any) -> int:
    """Have a plan run by itself at a time of day: by a user timer of systemd, or a line of your crontab.

    First looks whether it can go well, as `night check` does. Then shows all that it writes, and asks. Your consent is for the plan as it
    is now: when the plan, a prompt_file of it or the repository's nightcrew.toml has changed, that night is not started, and you are told.

    \b
    nightcrew night install plan.toml --at 22:30 --until 06:30 --cost-max 40
    nightcrew night install plan.toml --at 23:00 --days mon-fri --yes
    """
    from supervisor.config.reading import Once
    from supervisor.daemon import autostart, installed_nights, night_terms, submit

    no_check, yes, by, wish = (rest.pop(name) for name in ("no_check", "yes", "by", "name"))
    where, plan, files = home(), plan.absolute(), Once()
    submission, notes = submit.from_plan(plan, repo, base, None, os.environ, files)
    night_terms.order(plan, rest, files)  # what is wrong with the terms is said now
    name = installed_nights.name_of(plan, wish)
    _refuse_taken(name, plan)
    chosen, why = autostart.chosen(by or "")
    if not no_check:
        _refuse_unready(plan, {"repo": repo, "base": base, **rest}, Timetable(at, days).next(datetime.now()))
    for note in notes:
        common.say(note)
    consent = installed_nights.Consent(
        name=name,
        plan=os.fspath(plan),
        repo=submission.root,
        base=base,
        table=Timetable(at, days),
        terms={key: text for key, text in rest.items() if text is not None},
        files=files.digests(),
        by=chosen,
        env=installed_nights.consented(os.environ),
        at=time.time(),
    )
    _show(consent, len(submission.spec.tasks), why)
    if not yes:
        _ask()
    installed_nights.install(where, consent)
    common.say(f"installed: {name} starts at {consent.table.words}; next: nightcrew night list, nightcrew night uninstall {name}")
    return 0


def _refuse_taken(name: str, plan: Path) -> None:
    from supervisor.daemon import installed_nights

    try:
        other = installed_nights.load(home(), name)
    except (NotFound, Refused):  # a damaged one is replaced
        return
    if other.plan != os.fspath(plan):
        raise Refused("the name is taken", on=name, why=f"by {other.plan}", kept="it", hint="--name gives this one another")


def _refuse_unready(plan: Path, options: dict[str, Any], due: datetime) -> None:
    from supervisor.cli import night_check

    if night_check.show(plan, options, as_json=False, err=True, due=due):
        raise Refused(
            "the night is not ready",
            on=os.fspath(plan),
            why="see above",
            kept="nothing was installed",
            hint="--no-check installs it all the same",
        )


def _show(consent: Any, tasks: int, why_no_systemd: str) -> None:
    from supervisor.daemon import autostart

    terms = ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in consent.terms.items()) or "the terms of [night] in config.toml"
    common.say(one_line(f"{consent.plan} ({tasks} task{'s' if tasks != 1 else ''}) in {consent.repo}, {consent.table.words}: {terms}"))
    common.say(f"agents work unattended then, with what you give them now; consent {consent.digest[:16]} to {len(consent.files)} files")
    common.say("this is written:")
    for line in consent.entry(home()).shown():
        click.echo(f"  {one_line(line)}", err=True)
    for line in autostart.remarks(consent.by, why_no_systemd):
        common.say(line)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked", why="stdin is not a terminal", hint="--yes writes it without a question")
    click.confirm("nightcrew: install it?", abort=True, err=True)
