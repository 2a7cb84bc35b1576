"""`nightcrew snapshot` and `nightcrew fork`."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common, follow
from supervisor.client.resolving import environment_name, snapshot_name
from supervisor.host.paths import home
from supervisor.kernel.errors import NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import age, duration, rfc3339, size
from supervisor.kernel.snapshots import Snapshot
from supervisor.snapshots import rows as snapshots_rows

if TYPE_CHECKING:
    from supervisor.client.submit import Workplace
    from supervisor.kernel.spec import Submission
    from supervisor.snapshots.order import Asked


# Snapshot
# --------
# `nightcrew snapshot create`, `ls`, `show`, `rm`, `prune` and `advise`.


_REPO = click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")


@click.group(name="snapshot")
def command_snapshot() -> None:
    """Prepare an environment once, freeze it, and start tasks from it in milliseconds; docs/environments.md.

    \b
    nightcrew snapshot create deps --setup 'npm ci' --verify 'node -e 1'
    nightcrew add --snapshot deps 'npm test'
    """


def _modules(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's shape
    return tuple(name.strip() for word in words for name in word.split(","))


@command_snapshot.command()
@click.argument("name")
@click.option("--setup", multiple=True, metavar="COMMAND", help="Prepares the environment, in a checkout. May be repeated.")
@click.option("--verify", multiple=True, metavar="COMMAND", help="Must end well before anything is frozen. May be repeated.")
@click.option("--kind", type=click.Choice(["filesystem", "memory"]), help="Default: memory with --preload, else filesystem.")
@click.option(
    "--preload", multiple=True, metavar="MODULE[,MODULE]", callback=_modules, help="Imported by a process that is forked for each agent."
)
@click.option("--copy", multiple=True, metavar="PATTERN", help='Files of your checkout that git ignores, such as ".env.local".')
@click.option("--base", help="The commit (default: HEAD).")
@_REPO
@common.json_option
def create(name: str, repo: Path, base: str | None, as_json: bool, **options: Any) -> int:
    """Make a snapshot: as [snapshot.NAME] of nightcrew.toml says, or as the options do.

    A set-up or a check that fails leaves nothing behind. One of this name that was made of something else becomes stale.

    \b
    nightcrew snapshot create deps
    nightcrew snapshot create deps --setup 'uv sync --frozen'
    """
    from supervisor.client import submit
    from supervisor.snapshots import order as snapshots_order

    place = submit.workplace(repo)
    if options["preload"]:
        options["kind"] = options["kind"] or "memory"
    spec = snapshots_order.asked_for(name, place, options)
    row = submit.build_snapshot(home(), snapshots_order.order(spec, place, base, os.environ), agreed=True)
    if as_json:
        common.print_json(**shape(row))
    else:
        click.echo(row.id.partition("/")[2])
    return 0


@command_snapshot.command(name="ls")
@click.option("--all", "everywhere", is_flag=True, help="Of every repository.")
@_REPO
@common.json_option
def list_all(everywhere: bool, repo: Path, as_json: bool) -> None:
    """List snapshots, the newest of a name first.

    \b
    nightcrew snapshot ls --json
    """
    with contextlib.closing(common.ledger(home())) as db:
        rows = snapshots_rows.every(db, None if everywhere else _project(repo))
    if as_json:
        common.print_json(snapshots=[shape(row) for row in rows])
    elif rows:
        click.echo(table(rows, time.time()))
    else:
        common.say("no snapshots; next: nightcrew snapshot create NAME --setup COMMAND")


@command_snapshot.command()
@click.argument("name", shell_complete=snapshot_name)
@_REPO
@common.json_option
def show(name: str, repo: Path, as_json: bool) -> None:
    """Show what a snapshot is made of, what has changed since, and what tasks took that started from it.

    \b
    nightcrew snapshot show deps
    """
    from supervisor.client import submit
    from supervisor.kernel.snapshots import staleness
    from supervisor.snapshots import order as snapshots_order

    place = submit.workplace(repo)
    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots_rows.find(db, common.typed(name), place.repository.project)
        taken = measured(db, row.id)
    now = snapshots_order.order(place.project.snapshots.get(row.spec.name, row.spec), place, None, os.environ)
    changed = staleness(row, now.spec, now.base_oid, now.digests)
    if as_json:
        common.print_json(**shape(row), changed=list(changed), attempts=taken.attempts, fork_s=taken.fork_s, work_s=taken.work_s)
    else:
        click.echo(page(row, changed, taken, time.time()))


@command_snapshot.command()
@click.argument("names", nargs=-1, required=True, shell_complete=snapshot_name)
@_REPO
@common.json_option
def rm(names: tuple[str, ...], repo: Path, as_json: bool) -> None:
    """Remove snapshots. One on which environments stand stays.

    \b
    nightcrew snapshot rm deps
    """
    answer = _ask({"op": "remove", "project": _project(repo), "names": [common.typed(name) for name in names]})
    if as_json:
        common.print_json(**answer)
    else:
        for item in answer["removed"]:
            click.echo(f"removed  {item['id'].partition('/')[2]}")
    if answer["kept"]:
        first = answer["kept"][0]
        raise Refused("not removed", on=first["name"], why=first["why"], kept="it as it was", hint="nightcrew clean, then try again")


@command_snapshot.command()
@click.option("-y", "--yes", is_flag=True, help="Remove them.")
@common.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Show which snapshots nobody needs any more: failed, replaced, or stale and unused for a week. With --yes remove them.

    \b
    nightcrew snapshot prune --yes
    """
    answer = _ask({"op": "prune", "remove": yes})
    if as_json:
        common.print_json(**answer)
        return
    for item in answer["prunable"]:
        click.echo(f"{'removed' if yes else 'would remove'}  {item['id'].partition('/')[2]}  {one_line(item['why'])}")
    if not answer["prunable"]:
        common.say("nothing to prune")
    elif not yes:
        common.say("nothing was removed; next: nightcrew snapshot prune --yes")


@command_snapshot.command()
@click.argument("name", shell_complete=snapshot_name)
@click.option("-n", "--runs", type=click.IntRange(0, 10**9), default=10, show_default=True, help="How often it will be used.")
@_REPO
@common.json_option
def advise(name: str, runs: int, repo: Path, as_json: bool) -> None:
    """Say from measured times whether a snapshot pays, and from which run on.

    \b
    nightcrew snapshot advise deps -n 50
    """
    from dataclasses import asdict

    from supervisor.kernel.snapshots import Times
    from supervisor.kernel.snapshots import advise as advice

    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots_rows.find(db, common.typed(name), _project(repo))
        taken = measured(db, row.id)
    if taken.fork_s is None or taken.work_s is None:
        why = "no task that started from it has ended"
        raise UsageError("nothing was measured yet of", on=name, why=why, hint=f"nightcrew add --snapshot {name} -f true")
    times = Times(row.setup_s, row.freeze_s, taken.fork_s, taken.work_s)
    found = advice(times, runs)
    if as_json:
        common.print_json(**asdict(found), **asdict(times), runs=runs, attempts=taken.attempts)
    else:
        click.echo(found.why)


def _project(repo: Path) -> str:
    from supervisor.client import submit

    return submit.workplace(repo).repository.project


def _ask(args: dict[str, Any]) -> dict[str, Any]:
    return common.ask(home(), "snapshot", args, timeout_s=600.0)


# Fork
# ----
# `nightcrew fork`.


MOST = 1000
"""Forks of one command: as many as there can be slots."""


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [-- COMMAND...]", type=click.UNPROCESSED, shell_complete=snapshot_name)
@click.option("-n", "number", type=click.IntRange(1, MOST), default=1, show_default=True, help="How many.")
@click.option("--as", "environment", metavar="ENV", help="Give the environment a name, by which --reopen finds it.")
@click.option("--reopen", metavar="ENV", shell_complete=environment_name, help="Go on in the environment of that name, where it ended.")
@click.option("--base", help="Where the worktree starts (default: HEAD).")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier (default: 0, for a person sits there).")
@common.network_option
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")
@common.json_option
def command_fork(words: tuple[str, ...], repo: Path, as_json: bool, reopen: str | None, **options: Any) -> int:
    """Open environments that start from the snapshot NAME, each with your shell, or COMMAND, in a pane to attach to.

    The snapshot is made when it is not there. What is left in an environment is kept as after any task: on its branch, or on a
    rescue ref. One that was opened with --as is opened again with --reopen: a new worktree of the same snapshot, at the commit where
    the last one ended.

    \b
    nightcrew fork deps
    nightcrew fork deps -n 3 -- claude
    nightcrew fork deps --as review
    nightcrew fork --reopen review
    """
    from supervisor.client import submit
    from supervisor.snapshots.order import Asked

    place = submit.workplace(repo)
    given = {key: value for key, value in options.items() if value is not None}
    if reopen is not None:
        submission = _reopened(reopen, Asked(words, **given), place)
    elif words:
        submission = _fresh(words[0], Asked(words[1:], **given), place)
    else:
        raise UsageError("which snapshot, or which environment?", hint="nightcrew fork NAME, or nightcrew fork --reopen ENV")
    accepted = follow.hand_over(home(), submission, place.repository.notes)
    task = submission.spec.tasks[0]
    if as_json:
        common.print_json(run=accepted.run, tasks=list(accepted.tasks), snapshot=task.snapshot, environment=task.environment or None)
        return 0
    click.echo("\n".join(accepted.tasks))
    common.say(f"to work in it: nightcrew attach {accepted.tasks[0]}; Ctrl-b d leaves, and it goes on")
    return 0


def _fresh(snapshot: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.config.task_keys import check_id
    from supervisor.snapshots import order

    if asked.environment and asked.number != 1:
        raise UsageError("one name cannot be given to", on=f"{asked.number} environments", hint="without --as, or without -n")
    if asked.environment:
        try:
            check_id(asked.environment)
        except ValueError as error:
            raise UsageError("bad value", on="--as", why=str(error)) from None
    earlier = order.newest(home(), common.typed(asked.environment), place.repository.project) if asked.environment else None
    submission = order.forks(snapshot, asked, place, os.environ)
    if earlier is not None:
        order.refuse_open(earlier[0])
        common.say(f"{asked.environment} starts anew; what it held before stays with {earlier[0].id}")
    return submission


def _reopened(name: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.snapshots import order

    if asked.environment or asked.base or asked.number != 1:
        raise UsageError("--reopen goes with neither --as, --base nor -n", hint=f"nightcrew fork --reopen {name}")
    found = order.newest(home(), common.typed(name), place.repository.project)
    if found is None:
        raise NotFound("no environment is called", on=name, hint=f"nightcrew fork SNAPSHOT --as {name}")
    return order.reopened(found, asked, place, os.environ)


# View
# ----
# Snapshots for people and as JSON, and what was measured of those that tasks started from.


NEWEST = 1000
"""Attempts that medians are made of, newest first."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over attempts that started from a snapshot, seconds; None where there was none."""

    attempts: int
    fork_s: float | None
    """From the attempt's row to its runner's first act."""
    work_s: float | None
    """From there to its end."""


def measured(db: sqlite3.Connection, snapshot: str) -> Measured:
    """What attempts that started from `snapshot` took."""
    rows = db.execute(
        "SELECT created, result FROM attempt WHERE snapshot = ? AND result IS NOT NULL ORDER BY created DESC LIMIT ?", (snapshot, NEWEST)
    ).fetchall()
    results = [(row["created"], json.loads(row["result"])) for row in rows]
    times = [(created, _at(of["started"]), _at(of["ended"])) for created, of in results if of.get("started") and of.get("ended")]
    if not times:
        return Measured(0, None, None)
    fork_s = statistics.median(max(0.0, started - created) for created, started, _ in times)
    return Measured(len(times), fork_s, statistics.median(max(0.0, ended - started) for _, started, ended in times))


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def shape(row: Snapshot) -> dict[str, Any]:
    """One snapshot; times are RFC 3339 UTC, durations seconds, sizes bytes."""
    spec = asdict(row.spec)
    return {
        "id": row.id,
        "name": row.spec.name,
        "kind": str(row.spec.kind),
        "state": str(row.state),
        "reason": row.reason,
        "base": row.base_oid,
        "made_of": {**{key: spec[key] for key in ("setup", "verify", "preload", "copy")}, "lock_files": dict(row.digests)},
        "uses": row.uses,
        "setup_s": row.setup_s,
        "freeze_s": row.freeze_s,
        "disk": row.disk,
        "created": rfc3339(row.created),
        "used": rfc3339(row.used),
    }


def table(rows: Sequence[Snapshot], now: float) -> str:
    """One line each."""
    lines = [f"{'NAME':<24}{'STATE':<10}{'KIND':<12}{'BASE':<10}{'SET-UP':>9}{'DISK':>9}{'USES':>6}  MADE"]
    for row in rows:
        lines.append(
            f"{row.spec.name:<24}{row.state:<10}{row.spec.kind:<12}{row.base_oid[:8]:<10}{duration(row.setup_s):>9}{size(row.disk):>9}"
            f"{row.uses:>6}  {age(now - row.created)} ago" + (f"  {one_line(row.reason)}" if row.reason else "")
        )
    return "\n".join(lines)


def page(row: Snapshot, changed: Sequence[str], taken: Measured, now: float) -> str:
    """All about one."""
    spec = row.spec
    facts = [
        ("id", row.id.partition("/")[2]),
        ("state", f"{row.state}{f': {one_line(row.reason)}' if row.reason else ''}"),
        ("kind", str(spec.kind)),
        ("made", f"{age(now - row.created)} ago at commit {row.base_oid[:12]}"),
        *(("setup", one_line(command)) for command in spec.setup),
        *(("verify", one_line(command)) for command in spec.verify),
        *((("preload", ", ".join(spec.preload)),) if spec.preload else ()),
        *(("copy", one_line(pattern)) for pattern in spec.copy),
        *((("lock files", ", ".join(map(one_line, row.digests))),) if row.digests else ()),
        ("took", f"{duration(row.setup_s)} to set up, {duration(row.freeze_s)} to freeze"),
        ("disk", size(row.disk)),
        ("used by", f"environments now: {row.uses}; last {age(now - row.used)} ago"),
        *((("starts in", f"{duration(taken.fork_s)}, the median of {taken.attempts}"),) if taken.fork_s is not None else ()),
        *(("changed", one_line(why)) for why in changed),
    ]
    return "\n".join(f"{name:<12}{text}" for name, text in facts)
