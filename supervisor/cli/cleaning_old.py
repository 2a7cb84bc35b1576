"""`nightcrew clean --old`: what `[keep]` lets go, how much it is and why; with `--yes` the supervisor does it now."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from supervisor.cli import common
from supervisor.core.errors import one_line
from supervisor.core.keep import DAY_S, Limit
from supervisor.faces.capacity import size
from supervisor.host.paths import Home

_PART_S = 600.0
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
    from supervisor.daemon.past import Past
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
