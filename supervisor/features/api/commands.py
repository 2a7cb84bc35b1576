"""`nightcrew token`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common
from supervisor.client.resolving import token_name
from supervisor.features.api import rows as api_rows
from supervisor.features.api import rules as api_rules
from supervisor.features.api.rules import Kind, Scope, Token, Words
from supervisor.host.paths import Home, home
from supervisor.kernel import codec
from supervisor.kernel.errors import NotFound, UsageError, one_line
from supervisor.kernel.format import date_time
from supervisor.store import sqlite
from worktrees.repository import Repository

if TYPE_CHECKING:
    from worktrees.repository import Repository


# Token
# -----
# `nightcrew token create`, `ls` and `revoke`.


@click.group(name="token")
def command() -> None:
    """Let programs hand tasks over by HTTP; docs/api.md.

    \b
    nightcrew token create ci    it may read, and submit into this repository
    nightcrew token ls
    nightcrew token revoke ci
    """


@command.command()
@click.argument("name")
@click.option("--user", metavar="NAME", help="Whose tasks are its own, and their submitter in the fair share (default: NAME).")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in Scope]),
    help="May be repeated (default: read and submit; act cancels tasks).",
)
@click.option("--repo", "repos", multiple=True, type=click.Path(path_type=Path), help="A repository that it reaches (default: here).")
@click.option("--all-repos", is_flag=True, help="It reaches every repository in which you ever ran something.")
@click.option("--all-tasks", is_flag=True, help="It reaches also tasks that others submitted there.")
@click.option("--rate", type=float, default=api_rules.RATE, show_default=True, help="Requests a second, over time.")
@click.option("--quota", type=int, default=0, help="Tasks in 24 hours, over time (default: no limit).")
@click.option("--expires", type=common.Duration(), metavar="TIME", help='It holds for this long: "8h", "30d".')
@click.option("--device", is_flag=True, help="For the page on a phone or another browser: nightcrew web; it reaches everything.")
@click.option("--unconfined", is_flag=True, help="Its tasks run also where no sandbox works, with all your rights.")
@common.json_option
def create_command(name: str, repos: Sequence[Path], all_repos: bool, device: bool, as_json: bool, **options: Any) -> None:
    """Make a token and print it, once: only a digest of it is kept.

    Who has it can run commands on this machine as you, in a sandbox, within its repositories: give it to nobody else.

    \b
    nightcrew token create ci --quota 200 --expires 90d
    nightcrew token create dashboard --scope read --all-repos --all-tasks
    nightcrew token create phone --device --scope read
    """

    from worktrees.git import Git
    from worktrees.repository import discover

    where = home()
    git = Git(where.root / "git")
    if device and repos:
        raise UsageError("the page shows everything", why="--device and --repo do not go together", hint="nightcrew token create --help")
    places = [] if all_repos or device else [discover(git, path) for path in repos or (Path(),)]
    wanted = _wanted(name, places, options)
    if device:
        wanted = _of_device(wanted, options)
    api_rules.check(wanted)
    words = create(functools.partial(common.ask, where), wanted, places)
    common.say(f"token {words.id}: it is shown once; to take it back: nightcrew token revoke {words.id}")
    if as_json:
        common.print_json(token=words.text, **_shape(wanted, words.id))
    else:
        click.echo(words.text)


def _wanted(name: str, places: Sequence[Repository], options: dict[str, Any]) -> Token:
    lasts = options["expires"]
    return Token(
        id="",
        digest="",
        kind=Kind.API,
        user=options["user"] or name,
        name=name,
        scopes=api_rules.scopes(options["scopes"] or ("read", "submit")),
        projects=frozenset(place.project for place in places),
        others=options["all_tasks"],
        confined=not options["unconfined"],
        rate=options["rate"],
        quota=options["quota"],
        expires=None if lasts is None else time.time() + lasts,
    )


def _of_device(wanted: Token, options: dict[str, Any]) -> Token:
    scopes = api_rules.scopes(options["scopes"] or ("read", "act"))
    return dataclasses.replace(wanted, kind=Kind.DEVICE, others=True, scopes=scopes)


@command.command(name="ls")
@click.option("--all", "everything", is_flag=True, help="Also those that hold no more.")
@common.json_option
def list_all(everything: bool, as_json: bool) -> None:
    """List the tokens that hold, of programs and of devices.

    \b
    nightcrew token ls --json
    """
    now = time.time()
    found = [token for token in _known(home()) if everything or token.holds(now)]
    if as_json:
        common.print_json(tokens=[_shape(token, token.id) for token in found])
        return
    for token in found:
        click.echo(one_line(_line(token, now)))


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TOKEN...", shell_complete=token_name)
@common.json_option
def revoke(names: tuple[str, ...], as_json: bool) -> None:
    """Take tokens back, by their ids or names; a second later they open nothing.

    What was submitted with them goes on: nightcrew kill ends it.

    \b
    nightcrew token revoke ci
    """
    where, now = home(), time.time()
    known = _known(where)
    ids = [token.id for name in names for token in _named(known, name, now)]
    answer = common.ask(where, "token", {"op": "revoke", "tokens": ids})
    if as_json:
        common.print_json(**answer)
        return
    for token in ids:
        common.say(f"token {token}: {'revoked' if token in answer['revoked'] else 'it was revoked before'}")


def _known(where: Home) -> list[Token]:
    if not where.ledger.exists():
        return []
    with contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        return api_rows.every(db)


def _named(known: Sequence[Token], name: str, now: float) -> list[Token]:
    """The token of that id, or all that hold and are called so. Raises NotFound."""
    found = [token for token in known if token.id == name] or [token for token in known if token.name == name and token.holds(now)]
    if not found:
        raise NotFound("no token is called", on=name, hint="nightcrew token ls")
    return found


def _shape(token: Token, number: str) -> dict[str, Any]:
    shape = {**codec.shape(token), "scopes": sorted(token.scopes), "projects": sorted(token.projects)}
    hidden = {"digest", "spent_at", "spent", "created" if not token.created else ""}
    return {**{name: value for name, value in shape.items() if name not in hidden}, "id": number}


def _line(token: Token, now: float) -> str:
    state = "revoked" if token.revoked is not None else "over" if not token.holds(now) else ", ".join(sorted(token.scopes))
    limits = f"{token.rate:g}/s" + (f", {api_rules.spent(token, now):.0f} of {token.quota} tasks a day" if token.quota else "")
    where = "every repository" if not token.projects else f"{len(token.projects)} repositor{'y' if len(token.projects) == 1 else 'ies'}"
    used = "never used" if token.used is None else f"used {date_time(token.used)}"
    return f"{token.id}  {token.kind:6}  {token.name}  {token.user}  {state}  {where}  {limits}  {used}"


# New tokens
# ----------
# Making access tokens. Runs in the process of the command, or of the page: the supervisor gets no secret.


Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Asks the supervisor for a verb with arguments."""


def create(ask: Ask, wanted: Token, places: Iterable[Repository] = ()) -> Words:
    """Have a token made as `wanted` says, but for its id and digest, which are made here; `places` are its repositories. Returns the token:
    nobody can read it again. Raises UsageError, Refused, and what `ask` raises."""
    words = Words(secrets.token_hex(6), secrets.token_urlsafe(32))
    known = [(place.project, str(place.root), str(place.common_dir)) for place in places]
    token = replace(wanted, id=words.id, digest=api_rules.digest(words.secret))
    ask("token", {"op": "create", "token": token, "places": known})
    return words
