"""`nightcrew clean`."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from supervisor.client import common
from supervisor.client.resolving import ended_name
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import Refused, UsageError, one_line
from supervisor.kernel.format import size
from supervisor.kernel.retention import DAY_S, Limit
from supervisor.store import queries

Answer = dict[str, list[dict[str, Any]]]

_FIRST, _MOST = 8, 64
"""Worktrees asked for at a time."""
_PART_S = 600.0
_IGNORED_ALONE = "ignored files"
"""How the reason begins that `--ignored` overrides."""
_TELL_S = 2.0
"""Seconds between two lines that say how far it is."""


@click.command()
@click.argument("names", nargs=-1, shell_complete=ended_name)
@click.option("-y", "--yes", is_flag=True, help="Remove what can be removed.")
@click.option("--ignored", is_flag=True, help="Also those that hold ignored files only: caches, build output.")
@click.option("--discard", is_flag=True, help="Also remove the named ones whose work is only on their rescue ref.")
@click.option("--old", is_flag=True, help="Instead of worktrees what [keep] lets go: records, logs, recordings; old runs are archived.")
@common.json_option
def command(names: tuple[str, ...], yes: bool, ignored: bool, discard: bool, old: bool, as_json: bool) -> None:
    """Show which worktrees can be removed and why not the rest; with --yes remove them.

    A worktree can be removed when its task has ended, it is clean, its work is merged (a squash merge counts) or empty, and nothing
    runs inside. Ignored files are a reason to stay unless --ignored is given. All the rest stays reachable under
    refs/nightcrew/rescue/.

    \b
    nightcrew clean
    nightcrew clean --yes 1121-k3f9
    nightcrew clean --old
    """
    from supervisor.client import start

    if old:
        if names or ignored or discard:
            raise UsageError("--old takes no names and no other option but --yes and --json", hint="nightcrew clean --old")
        run(home(), yes=yes, as_json=as_json)
        return

    if discard and not names:
        raise UsageError("--discard needs names", why="it removes worktrees whose work is not merged", hint="nightcrew clean")
    where = home()
    wanted = common.tasks_named(where, names) if names else None
    start.ensure_running(where, common.settings_file(), common.say)
    how = {"remove": yes, "ignored": ignored, "discard": discard}
    whole: Answer = {"removable": [], "kept": []}
    for part in _parts(where, _attempts(where, wanted), how, "removed or kept" if yes else "looked at"):
        for key, items in part.items():
            whole[key] += items
        if not as_json:
            _print(part, yes)
    if as_json:
        common.print_json(**whole)
    else:
        _say_next(whole, yes, ignored)
    if yes and names and whole["kept"]:
        raise Refused(
            "not removed",
            on=f"{len(whole['kept'])} of the named worktrees",
            why=whole["kept"][0]["why"],
            kept="them as they were",
            hint=_next(whole["kept"][0]["path"], discard=discard),
        )


def _next(path: str, *, discard: bool) -> str:
    """Return what to do about a worktree that stays. What stays with --discard needs a person to look."""
    if discard:
        return f"ls -la {shlex.quote(path)}, end what works there, then the same command"
    return "nightcrew take NAME, or nightcrew clean --yes --discard NAME"


def _attempts(where: Home, tasks: Sequence[str] | None) -> list[tuple[str, int]]:
    """Those that have a worktree, oldest first."""
    with contextlib.closing(common.ledger(where)) as db:
        found = queries.worktrees(db)
    return found if tasks is None else [each for each in found if each[0] in set(tasks)]


def _parts(where: Home, attempts: Sequence[tuple[str, int]], how: Mapping[str, bool], done: str) -> Iterator[Answer]:
    """What becomes of the attempts, some at a time: about a second's worth, so that whoever reads along sees it go on, and an interrupted
    one has not begun with the rest."""
    from supervisor.client import protocol

    at, many, told = 0, _FIRST, time.monotonic()
    while at < len(attempts):
        part = attempts[at : at + many]
        began = time.monotonic()
        yield protocol.call(where.daemon_socket, "clean", {"attempts": part, **how}, timeout_s=_PART_S)
        at += len(part)
        now = time.monotonic()
        if at < len(attempts) and now - told > _TELL_S:
            common.say(f"{at} of {len(attempts)} worktrees {done}")
            told = now
        many = max(_FIRST, min(_MOST, int(many / max(now - began, 0.001)), 2 * many))


def _print(part: Answer, yes: bool) -> None:
    for item in part["removable"]:
        click.echo(f"{'removed' if yes else 'would remove'}  {item['attempt']}  {item['path']}  {one_line(item['why'])}".rstrip())
    for item in part["kept"]:
        click.echo(f"keep          {item['attempt']}  {one_line(item['why'])}")
        for each in item["commits"]:
            by = f" ({each['by'][:12]})" if each["by"] else ""
            click.echo(f"              {each['commit'][:12]}  {one_line(each['subject'])}: {each['state']}{by}")


def _say_next(whole: Answer, yes: bool, ignored: bool) -> None:
    if whole["removable"] and not yes:
        common.say("nothing was removed; next: nightcrew clean --yes")
    if not whole["removable"] and not whole["kept"]:
        common.say("no worktrees")
    held = sum(one["why"].startswith(_IGNORED_ALONE) and "; " not in one["why"] for one in whole["kept"])
    if held and not ignored:
        what = "1 worktree is kept for its ignored files" if held == 1 else f"{held} worktrees are kept for their ignored files"
        common.say(f"{what} alone; next: nightcrew clean --yes --ignored")


# Cleaning old
# ------------
# `nightcrew clean --old`: what `[keep]` lets go, how much it is and why; with `--yes` the supervisor does it now.


_VERBS = {"history": ("would archive", "archived")}
_OTHERS = ("would remove", "removed")
_KINDS = {"results": "runs", "logs": "runs", "recordings": "files", "history": "runs"}


def run(where: Home, *, yes: bool, as_json: bool) -> None:
    """Print what would go, or have it done and print that."""
    if yes:
        _act(where, as_json=as_json)
    else:
        _look(where, as_json=as_json)


def _look(where: Home, *, as_json: bool) -> None:
    from supervisor.config import user
    from supervisor.features.retention.service import Past
    from supervisor.host import cores

    common.ledger(where).close()
    terms = user.load(common.settings_file(), len(cores.usable())).keep
    with contextlib.closing(Past(where, time.time())) as past:
        found = past.look(terms)
    if as_json:
        common.print_json(kept=[one.to_json() for one in found])
        return
    for one in found:
        going = f"{len(one.going)} go" if one.going else "nothing goes"
        click.echo(f"{one.what:<10}  {one.things} {_KINDS[one.what]}, {size(one.size)}; {_terms(one.limit)}: {going}")
        for each in one.going:
            click.echo(_line(_VERBS.get(one.what, _OTHERS)[0], each.thing.name, each.thing.size, each.why))
    if any(one.going for one in found):
        common.say("nothing was archived or removed; next: nightcrew clean --old --yes")


def _act(where: Home, *, as_json: bool) -> None:
    done: list[dict[str, Any]] = []
    more = begun = False
    while more or not begun:
        answer = common.ask(where, "keep", {"goes_on": begun}, timeout_s=_PART_S)
        more, begun = answer["more"], True
        done += answer["done"]
        for one in answer["done"] if not as_json else ():
            click.echo(_line(_VERBS.get(one["what"], _OTHERS)[1], f"{one['what']} {one['name']}", one["bytes"], one["why"]))
    if as_json:
        common.print_json(done=done)
    elif not done:
        common.say("nothing is old enough; next: nightcrew clean --old")


def _line(verb: str, name: str, taken: int, why: str) -> str:
    return f"  {verb}  {one_line(name)}{f'  {size(taken)}' if taken else ''}  {one_line(why)}"


def _terms(limit: Limit) -> str:
    said = [f"{limit.age_s / DAY_S:g} days"] * bool(limit.age_s) + [size(limit.size)] * bool(limit.size)
    return f"kept {' and at most '.join(said)}" if said else "kept for ever"
