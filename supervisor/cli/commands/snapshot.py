"""`nightcrew snapshot create`, `ls`, `show`, `rm`, `prune` and `advise`."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, snapshot_progress
from supervisor.cli.names import snapshot_name
from supervisor.core.errors import Refused, UsageError, one_line
from supervisor.faces import snapshots as face
from supervisor.host.paths import home
from supervisor.ledger import snapshots

_REPO = click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")


@click.group(name="snapshot")
def command() -> None:
    """Prepare an environment once, freeze it, and start tasks from it in milliseconds; docs/environments.md.

    \b
    nightcrew snapshot create deps --setup 'npm ci' --verify 'node -e 1'
    nightcrew add --snapshot deps 'npm test'
    """


def _modules(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's shape
    return tuple(name.strip() for word in words for name in word.split(","))


@command.command()
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
    from supervisor.daemon import snapshot_order, submit

    place = submit.workplace(repo)
    if options["preload"]:
        options["kind"] = options["kind"] or "memory"
    spec = snapshot_order.asked_for(name, place, options)
    row = snapshot_progress.build(home(), snapshot_order.order(spec, place, base, os.environ), agreed=True)
    if as_json:
        common.print_json(**face.as_json(row))
    else:
        click.echo(row.id.partition("/")[2])
    return 0


@command.command(name="ls")
@click.option("--all", "everywhere", is_flag=True, help="Of every repository.")
@_REPO
@common.json_option
def list_all(everywhere: bool, repo: Path, as_json: bool) -> None:
    """List snapshots, the newest of a name first.

    \b
    nightcrew snapshot ls --json
    """
    with contextlib.closing(common.ledger(home())) as db:
        rows = snapshots.every(db, None if everywhere else _project(repo))
    if as_json:
        common.print_json(snapshots=[face.as_json(row) for row in rows])
    elif rows:
        click.echo(face.table(rows, time.time()))
    else:
        common.say("no snapshots; next: nightcrew snapshot create NAME --setup COMMAND")


@command.command()
@click.argument("name", shell_complete=snapshot_name)
@_REPO
@common.json_option
def show(name: str, repo: Path, as_json: bool) -> None:
    """Show what a snapshot is made of, what has changed since, and what tasks took that started from it.

    \b
    nightcrew snapshot show deps
    """
    from supervisor.core.snapshots import staleness
    from supervisor.daemon import snapshot_order, submit

    place = submit.workplace(repo)
    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots.find(db, common.typed(name), place.repository.project)
        taken = face.measured(db, row.id)
    now = snapshot_order.order(place.project.snapshots.get(row.spec.name, row.spec), place, None, os.environ)
    changed = staleness(row, now.spec, now.base_oid, now.digests)
    if as_json:
        common.print_json(**face.as_json(row), changed=list(changed), attempts=taken.attempts, fork_s=taken.fork_s, work_s=taken.work_s)
    else:
        click.echo(face.page(row, changed, taken, time.time()))


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=snapshot_name)
@_REPO
@common.json_option
def rm(names: tuple[str, ...], repo: Path, as_json: bool) -> None:
    """Remove snapshots. One on which environments stand stays.

    \b
    nightcrew snapshot rm deps
    """
    answer = _ask({"do": "remove", "project": _project(repo), "names": [common.typed(name) for name in names]})
    if as_json:
        common.print_json(**answer)
    else:
        for item in answer["removed"]:
            click.echo(f"removed  {item['id'].partition('/')[2]}")
    if answer["kept"]:
        first = answer["kept"][0]
        raise Refused("not removed", on=first["name"], why=first["why"], kept="it as it was", hint="nightcrew clean, then try again")


@command.command()
@click.option("-y", "--yes", is_flag=True, help="Remove them.")
@common.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Show which snapshots nobody needs any more: failed, replaced, or stale and unused for a week. With --yes remove them.

    \b
    nightcrew snapshot prune --yes
    """
    answer = _ask({"do": "prune", "remove": yes})
    if as_json:
        common.print_json(**answer)
        return
    for item in answer["prunable"]:
        click.echo(f"{'removed' if yes else 'would remove'}  {item['id'].partition('/')[2]}  {one_line(item['why'])}")
    if not answer["prunable"]:
        common.say("nothing to prune")
    elif not yes:
        common.say("nothing was removed; next: nightcrew snapshot prune --yes")


@command.command()
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

    from supervisor.core.snapshot_advice import Times
    from supervisor.core.snapshot_advice import advise as advice

    with contextlib.closing(common.ledger(home())) as db:
        row = snapshots.find(db, common.typed(name), _project(repo))
        taken = face.measured(db, row.id)
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
    from supervisor.daemon import submit

    return submit.workplace(repo).repository.project


def _ask(args: dict[str, Any]) -> dict[str, Any]:
    return common.ask(home(), "snapshot", args, timeout_s=600.0)
