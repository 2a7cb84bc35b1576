"""`nightcrew night` and its subverbs."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from supervisor.cli.main import LazyGroup
from supervisor.client import common, follow
from supervisor.client.resolving import run_id
from supervisor.features.night import morning_json as night_report
from supervisor.features.night import morning_report as morning_pages
from supervisor.features.night.morning_rows import DIFF_BYTES, DIFFS_BYTES, Diff, Found, Night, Task
from supervisor.host import files, untrusted_fs
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.kernel.night import EVERY_DAY, Timetable, parse_days, parse_time
from supervisor.kernel.retry import GATE
from supervisor.store import queries

if TYPE_CHECKING:
    import sqlite3

    from supervisor.doctor.examine import CheckContext, Checked
    from supervisor.features.night.check import Evening, Tried
    from supervisor.host.paths import Home
    from supervisor.kernel.gateway_settings import GatewaySettings
    from supervisor.kernel.pressure import Verdict
    from supervisor.kernel.spec import Submission
    from supervisor.store.queries import TaskView
    from worktrees.repository import Repository


# Night
# -----
# `nightcrew night run`, `list` and what else is about nights.


SUBVERBS = {
    "run": "Run a plan until a deadline and within a cost cap.",
    "check": "Look whether a night can go well, before you sleep.",
    "install": "Have a plan run by itself at a time of day.",
    "uninstall": "Remove an installed night.",
    "list": "List the nights, the newest first.",
    "report": "Write the morning report of a night, or of any run.",
}
"""Every subverb in the order in which `--help` shows them, with its line there."""

command_night = LazyGroup(
    {verb: f"{__name__}:command_{verb}" for verb in SUBVERBS},
    SUBVERBS,
    name="night",
    help="""Run a plan through the night, within a deadline and a cost cap; docs/night.md.

    \b
    nightcrew night run plan.toml --until 06:30 --cost-max 40
    """,
)


# Night check
# -----------
# The look before a night: `night check`, `night run --check`, and `night install`.


TERMS = ("until", "grace", "cost_max", "parallel", "on_cap")
SEEN_S = 5.0
"""A supervisor looks at the machine within two seconds of its start."""


def show(plan: Path, options: Mapping[str, Any], *, as_json: bool, err: bool = False, due: datetime | None = None) -> int:
    """Look, print what was seen (on stderr with `err`), and return 0 when the night is ready, else 1. `options`: `repo`, `base` and the
    terms as they were typed. `due`: when it begins, local time; None: now. Raises what keeps the plan from being read at all."""
    from supervisor.doctor import examine
    from supervisor.features.night import check as night_check

    evening = _evening(plan, options, due)
    checked = night_check.look(evening)
    ready = night_check.ready(checked)
    if as_json:
        predicted = evening.predicted.shape() if evening.predicted is not None else None
        common.print_json(ready=ready, verdict=verdict(checked), prediction=predicted, **examine.shape(checked, []))
    else:
        for line in examine.lines(checked, common.width(), color=common.use_color()):
            click.echo(line, err=err, color=common.use_color())
        common.say(verdict(checked))
    return 0 if ready else 1


def verdict(checked: list[Checked]) -> str:
    """The last line."""
    from supervisor.doctor import examine

    count = examine.counts(checked)
    if count["fail"]:
        return f"not ready: {count['fail']} of {sum(count.values())} would keep it from going well"
    open_ends = [f"{number} {word}" for number, word in ((count["warn"], "to look at"), (count["unknown"], "unknown")) if number]
    if count["unknown"]:
        return f"ready as far as is known: {', '.join(open_ends)}"
    return f"ready, with {', '.join(open_ends)}" if open_ends else "ready"


def _evening(plan: Path, options: Mapping[str, Any], due: datetime | None) -> Evening:
    from supervisor.client import start, submit
    from supervisor.config.toml import Once
    from supervisor.doctor import examine
    from supervisor.features.night import check as night_check
    from supervisor.features.night import install as night_install

    where, environ, files = home(), os.environ, Once()
    place = submit.workplace(options["repo"], files)
    submission = submit.to_look_at(plan, place, options["base"], environ, files)
    terms = night_install.order(plan, {name: options[name] for name in TERMS}, files, due=due.astimezone() if due else None).terms
    start.ensure_running(where, common.settings_file(), common.say)
    models, context = _models(where.keys), examine.here()
    tried = _tried(where, submission, models, context, place.repository)
    predicted = None
    with suppress(NightcrewError):  # then the prediction is unknown, and said to be
        predicted = night_check.predict(where, submission, terms, due.timestamp() if due else time.time(), _machine(where.daemon_socket))
    return night_check.Evening(
        context=context,
        submission=submission,
        terms=terms,
        repository=place.repository,
        tried=tried,
        models=models,
        predicted=predicted,
    )


def _tried(where: Home, submission: Submission, models: GatewaySettings, context: CheckContext, repository: Repository) -> list[Tried]:
    """What came of the gates and the calls. Nothing is begun on a disk that is too full for it; calls need no base of the plan's."""
    from supervisor.client import submit
    from supervisor.doctor import state_directory as state
    from supervisor.doctor.examine import State
    from supervisor.features.night import check as night_check

    gates, calls = night_check.gates(submission.spec.tasks), night_check.calls(models, submission.spec.tasks)
    if state.disk(context).state is State.FAIL:
        return night_check.untried([*gates, *calls], "the disk is too full for anything to start")
    missing: list[Tried] = []
    if submission.base_oid:
        submission = submit.with_snapshots(where, submission)
        gates = night_check.gates(submission.spec.tasks)
    else:
        missing, gates = night_check.untried(gates, f"{submission.spec.base} names no commit"), []
        submission = replace(submission, base_oid=repository.head, spec=replace(submission.spec, base="HEAD"))
    if trials := [*gates, *calls]:
        common.say(f"tries out {', '.join(task.name for task in trials)}")
    return [*missing, *night_check.run(where, submission, trials, functools.partial(reasons, where))]


def reasons(where: Home, db: sqlite3.Connection, views: Sequence[TaskView]) -> Mapping[str, Verdict]:
    """What those wait for that have not started, as `status` says it."""
    from supervisor.server import gateway_report, lock
    from supervisor.views import waits

    return waits.reasons(db, views, gateway_report.hear(where).conditions, runs=lock.holder(where.lock) is not None, wall=time.time())


def _models(keys: Path) -> Any:
    from supervisor.config import user

    return user.load_gateway(common.settings_file(), keys)


def _machine(socket: Path) -> dict[str, Any]:
    """What the supervisor says of its capacity, once it has looked."""
    from supervisor.client import protocol

    ends_at = time.monotonic() + SEEN_S
    while True:
        shape = protocol.call(socket, "capacity", {}, timeout_s=SEEN_S)
        if shape["means"] is not None or time.monotonic() > ends_at:
            return shape
        time.sleep(0.1)


# Night options
# -------------
# What the subverbs of `night` that take a plan have in common.


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


# Check
# -----
# `nightcrew night check PLAN`.


@click.command()
@plan_argument()
@night_options
@common.json_option
def command_check(plan: Path, as_json: bool, **options: Any) -> int:
    """Look whether a plan can go well tonight. Exit code 0: ready; 1: not.

    Looks at each agent's program and login, tries out every gate on the base commit and one free call with each credential, looks at the
    machine, and predicts end and cost from what such tasks took before. Nothing of the plan is started, and your checkout is not touched.

    \b
    nightcrew night check plan.toml --until 06:30 --cost-max 40
    nightcrew night check plan.toml --json
    """
    return show(plan, options, as_json=as_json)


# Install
# -------
# `nightcrew night install PLAN`.


Parsed = TypeVar("Parsed")


def _time(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    return _parsed("--at", parse_time, text)


def _days(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    return EVERY_DAY if text is None else _parsed("--days", parse_days, text)


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
def command_install(plan: Path, at: int, days: tuple[int, ...], repo: Path, base: str | None, **rest: Any) -> int:
    """Have a plan run by itself at a time of day: by a user timer of systemd, or a line of your crontab.

    First looks whether it can go well, as `night check` does. Then shows all that it writes, and asks. Your consent is for the plan as it
    is now: when the plan, a prompt_file of it or the repository's nightcrew.toml has changed, that night is not started, and you are told.

    \b
    nightcrew night install plan.toml --at 22:30 --until 06:30 --cost-max 40
    nightcrew night install plan.toml --at 23:00 --days mon-fri --yes
    """
    from supervisor.client import submit
    from supervisor.config.toml import Once
    from supervisor.features.night import install as night_install
    from supervisor.host import autostart

    no_check, yes, by, wish = (rest.pop(name) for name in ("no_check", "yes", "by", "name"))
    where, plan, files = home(), plan.absolute(), Once()
    submission, notes = submit.from_plan(plan, repo, base, None, os.environ, files)
    night_install.order(plan, rest, files)  # what is wrong with the terms is said now
    name = night_install.name_of(plan, wish)
    _refuse_taken(name, plan)
    chosen, why = autostart.chosen(by or "")
    if not no_check:
        _refuse_unready(plan, {"repo": repo, "base": base, **rest}, Timetable(at, days).next(datetime.now()))
    for note in notes:
        common.say(note)
    consent = night_install.Consent(
        name=name,
        plan=os.fspath(plan),
        repo=submission.root,
        base=base,
        table=Timetable(at, days),
        terms={key: text for key, text in rest.items() if text is not None},
        files=files.digests(),
        by=chosen,
        env=autostart.consented(os.environ),
        at=time.time(),
    )
    _show(consent, len(submission.spec.tasks), why)
    if not yes:
        _ask()
    night_install.install(where, consent)
    common.say(f"installed: {name} starts at {consent.table.words}; next: nightcrew night list, nightcrew night uninstall {name}")
    return 0


def _refuse_taken(name: str, plan: Path) -> None:
    from supervisor.features.night import install as night_install

    try:
        other = night_install.load(home(), name)
    except (NotFound, Refused):  # a damaged one is replaced
        return
    if other.plan != os.fspath(plan):
        raise Refused("the name is taken", on=name, why=f"by {other.plan}", kept="it", hint="--name gives this one another")


def _refuse_unready(plan: Path, options: dict[str, Any], due: datetime) -> None:

    if show(plan, options, as_json=False, err=True, due=due):
        raise Refused(
            "the night is not ready",
            on=os.fspath(plan),
            why="see above",
            kept="nothing was installed",
            hint="--no-check installs it all the same",
        )


def _show(consent: Any, tasks: int, why_no_systemd: str) -> None:
    from supervisor.host import autostart

    terms = ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in consent.terms.items()) or "the terms of [night] in config.toml"
    common.say(one_line(f"{consent.plan} ({many(tasks, 'task')}) in {consent.repo}, {consent.table.words}: {terms}"))
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


# List
# ----
# `nightcrew night list`.


@click.command()
@common.json_option
def command_list(as_json: bool) -> None:
    """List the nights that start by themselves, then those that were, the newest first.

    \b
    nightcrew night list
    """
    from supervisor.features.night import view as night_view

    where, found = home(), []
    installed = night_view.every_installed_night(where, datetime.now())
    if where.ledger.exists():
        with contextlib.closing(common.ledger(where)) as db:
            found = night_view.every_night(db)
    if as_json:
        common.print_json(nights=[night_view.as_json(night) for night in found], installed=installed)
        return
    for line in night_view.installed_night_lines(installed):
        common.show(line)
    if found:
        click.echo(night_view.table(found))
    elif not installed:
        common.say("no nights; next: nightcrew night run PLAN --until 06:30")


# Report
# ------
# `nightcrew night report [RUN]`.


_FORMATS = ("html", "md", "json")


@click.command()
@click.argument("run", required=False, shell_complete=run_id)
@click.option("--against", metavar="RUN", shell_complete=run_id, help="Compare with this run (default: the night before).")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="One form, on stdout or in --out (default: all three, with the run).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write one form into this file.")
@click.option("--open/--no-open", "opened", default=None, help="Open it in a browser (default: on a graphical desktop).")
def command_report(run: str | None, against: str | None, form: str | None, out: Path | None, opened: bool | None) -> int:
    """Write the morning report of a run as it stands: night.html, night.md, night.json. Without RUN the newest night of this repository.

    It works for every run, a night or not, while it still runs, and when the supervisor is down.

    \b
    nightcrew night report --open
    nightcrew night report 1122-n1gh --against 1121-k3f9
    nightcrew night report --format md | less
    """
    from supervisor.cli import reporting
    from supervisor.features.night import morning_rows

    form = form or (None if out is None else out.suffix.removeprefix(".") if out.suffix.removeprefix(".") in _FORMATS else "html")
    if opened and form not in (None, "html"):
        raise UsageError("--open shows the page", why=f"--format {form} is none")
    where = home()
    name = reporting.run_named(where, run, morning_rows.newest_night)
    shape = build(where, name, reporting.run_named(where, against) if against else None)
    page = publish(where, shape, form, out)
    if page is not None:
        reporting.show_in_browser(page, wanted=opened)
    return 0


# Run
# ---
# `nightcrew night run PLAN`.


@click.command()
@plan_argument(required=False)
@night_options
@click.option("-d", "--detach", is_flag=True, help="Do not follow the night; return when it is accepted.")
@click.option("--key", help="Idempotency key: the same key twice is one night.")
@click.option("--check", "only_check", is_flag=True, help="Only look whether it can go well: nightcrew night check.")
@click.option("--installed", metavar="NAME", help="Start an installed night, as its timer does.")
@common.json_option
def command_run(plan: Path | None, only_check: bool, installed: str | None, as_json: bool, **rest: Any) -> int:
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
        return show(plan, rest, as_json=as_json)
    return _run(plan, as_json=as_json, **rest)


def _run(plan: Path, repo: Path, base: str | None, detach: bool, key: str | None, as_json: bool, **terms: Any) -> int:
    from supervisor.client import submit
    from supervisor.config.toml import Once
    from supervisor.features.night import install as night_install

    files = Once()
    submission, notes = submit.from_plan(plan, repo, base, key, os.environ, files)
    submission = replace(submission, night=night_install.order(plan, terms, files))
    return follow.submit_and_follow(home(), submission, notes, detach=detach, as_json=as_json)


def _start(name: str) -> int:
    """What a timer asks for: hand the night over and leave. The night itself is the supervisor's."""
    from datetime import datetime

    from supervisor.features.night import install as night_install

    where = home()
    run = night_install.begin(
        where, name, datetime.now().astimezone(), lambda submission, notes: follow.hand_over(where, submission, notes).run
    )
    click.echo(run)
    return 0


# Uninstall
# ---------
# `nightcrew night uninstall NAME`.


@click.command()
@click.argument("name")
def command_uninstall(name: str) -> None:
    """Remove an installed night: its timer or its line of the crontab, and your consent. A night that runs goes on.

    \b
    nightcrew night uninstall chores
    """
    from supervisor.features.night import install as night_install

    started = night_install.uninstall(home(), name)
    common.say(f"{name} starts no more" if started else f"{name} is forgotten; nothing started it any more")


# Night reporting
# ---------------
# Making a morning report: what the books say, what git says of the branches, and where it is written.


SHOWN_NEEDS = 5
PRINTED_TASKS, PRINTED_LINES, PRINTED_BYTES = 100, 8, 2000
"""The end of what tasks printed that did not end well: of so many, so many lines, of so many bytes."""
_ROOM_MIN = 1024
_LIVE_BYTES = 2**20
"""Of the change of a task that still runs; it is computed anew for each report."""


def build(where: Home, run: str, against: str | None) -> dict[str, Any]:
    """The report of a run (see `faces.night.shape`). `against`: what it is compared with instead of the night before. Git, and a supervisor
    that does not answer, are trouble that it tells of; raises only where the ledger cannot be read."""
    night = night_report.read(where, run)
    if night.ended is None:
        ours = {task.id for task in night.tasks}
        night = replace(night, asks={one["task"]: one for one in common.who_needs(where) if one["task"] in ours})
    other = against or night.before
    return night_report.of(night, look(where, night), night_report.read(where, other) if other and other != run else None)


def look(where: Home, night: Night) -> Found:
    """What git says of the run's branches; when it cannot say it, that is told."""
    beside = Found(diffs=_diffs(where, night), printed=_printed(where, night))
    try:
        return _branches(where, night, beside)
    except (NightcrewError, OSError) as error:
        why = error.line() if isinstance(error, NightcrewError) else one_line(str(error))
        return replace(beside, trouble=f"what the branches hold: {why}")


def _branches(where: Home, night: Night, beside: Found) -> Found:
    from supervisor.client import reading
    from supervisor.store.journal import Branch

    works = {task.id: task.work for task in night.tasks if task.ready and task.work is not None}
    branches = [Branch(task, 0, work.branch, living=False, base=work.base) for task, work in works.items()]
    matrix, gone = reading.matrix_of(where, night.root, branches)
    with_base: dict[str, tuple[str, ...]] = {}
    others: dict[str, dict[str, tuple[str, ...]]] = {}
    found = matrix.conflicts()
    for one in found:
        if one.verdict.why:
            continue
        if not one.two:
            with_base[one.one] = one.verdict.files
        else:
            others.setdefault(one.one, {})[one.two] = one.verdict.files
            others.setdefault(one.two, {})[one.one] = one.verdict.files
    return replace(
        beside,
        on=matrix.on,
        gone=gone,
        taken=frozenset(matrix.merged),
        with_base=with_base,
        with_others=others,
        not_tried=matrix.missing() + matrix.left_out + sum(bool(one.verdict.why) for one in found),
    )


def _printed(where: Home, night: Night) -> dict[str, str]:
    """The last lines of what said why: of the gate, of its errors, or of all that a task printed."""
    return {task.id: said for task in night.unwell[:PRINTED_TASKS] if (said := _last_lines(where, task))}


def _last_lines(where: Home, task: Task) -> str:
    directory = where.attempt(task.id, task.attempts[-1].epoch)
    names = ("gate.log",) if GATE in task.attempts[-1].why else ("stderr.log", "stdout.log")
    for name in names:
        with contextlib.suppress(NightcrewError):  # what cannot be read is not what the night rests on
            said = (untrusted_fs.read_plain(directory / name, PRINTED_BYTES, tail=True) or b"").decode("utf-8", "replace")
            if lines := [line for line in said.splitlines() if line.strip()][-PRINTED_LINES:]:
                return "\n".join(lines)
    return ""


def _diffs(where: Home, night: Night) -> dict[str, Diff]:
    """What the tasks changed that a person has to look at, as long as there is room."""
    found: dict[str, Diff] = {}
    room = DIFFS_BYTES
    for task in _looked_at(night):
        diff = _diff(where, task, min(DIFF_BYTES, room))
        if diff is not None:
            found[task.id] = diff
            room -= len(diff.text.encode("utf-8", "replace"))
    return found


def _looked_at(night: Night) -> Iterable[Task]:
    return (task for task in (*night.needing, *night.unwell) if task.attempts)


def _diff(where: Home, task: Task, room: int) -> Diff | None:
    command = f"`nightcrew diff {task.id}`"
    if room < _ROOM_MIN:
        return Diff("", f"This page has no room left for what it changed: {command}")
    file = where.attempt(task.id, task.attempts[-1].epoch) / "diff.patch"
    try:
        data = _live(where, task) if task.living else untrusted_fs.read_plain(file, room + 1)
    except NightcrewError as error:
        return Diff("", f"What it changed could not be read: {error.line()}")
    if data is None:  # of one that has ended: nothing, or too much for its records
        changed = task.living or (task.work is not None and task.work.commits > 0)
        return Diff("", f"What it changed is too large for this page: {command}") if changed else None
    text = data[:room].decode("utf-8", "replace")
    return Diff(text, f"The first {room // 1024} KiB; all of it: {command}" if len(data) > room else "") if data else None


def _live(where: Home, task: Task) -> bytes | None:
    """Of a task that still runs: what it has committed by now; None when that is too large."""
    from supervisor.results import taking

    db: sqlite3.Connection = common.ledger(where)
    return taking.patch(db, queries.one(db, task.id), _LIVE_BYTES)


def publish(where: Home, report: Mapping[str, Any], form: str | None, out: Path | None) -> Path | None:
    """Write it: all three forms with the records of the run, and its essence on stdout; or one `form` into `out`, or on stdout. Returns the
    page, when one was written."""
    if form is None:
        page = morning_pages.write(report, where.root / "runs" / report["run"]["id"])
        for line in _essence(report):
            click.echo(line)
        click.echo(f"report: {page}")
        return page
    text = morning_pages.FORMATS[form](report)
    if out is None:
        click.echo(text, nl=False)
        return None
    files.atomic_write(out.absolute(), text.encode())
    click.echo(f"report: {out}")
    return out.absolute() if form == "html" else None


def _essence(report: Mapping[str, Any]) -> list[str]:
    """What a person must know who sees nothing but the terminal."""
    found, needs = report["verdict"], report["needs"]
    lines = [f"{found['sign']} {found['word']}: {found['sentence']}", *filter(None, [found["why"]])]
    lines += [f"needs you: {one['name']}: {one['question']}" for one in needs[:SHOWN_NEEDS]]
    lines += [f"needs you: {len(needs) - SHOWN_NEEDS} more"] if len(needs) > SHOWN_NEEDS else []
    return [one_line(line) for line in lines]
