"""Ask for the memory of a project: by the supervisor, or from the files as they are."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from memory import listing, note
from memory.files import Layout
from memory.mail import PERSON, listed
from memory.note import Wanted
from memory.writing import QUARANTINE, Store, Terms
from supervisor.client import common, protocol
from supervisor.host.paths import Home, home, settings_file
from supervisor.kernel.ansi import escaped
from supervisor.kernel.errors import ConfigError, NightcrewError, NotRunning, one_line
from supervisor.kernel.format import age
from supervisor.server import lock
from supervisor.store import queries, sqlite
from supervisor.views.status import cut

# Local
# -----
# Reading without a supervisor: the files as they are, `memory.db` and the ledger opened to be read. Shapes are those of the
# supervisor's answers.


Args = dict[str, Any]


def answer(where: Home, verb: str, asked: Args) -> dict[str, Any] | None:
    """What the supervisor would answer; None for an operation that only it can do."""
    op, path = asked["op"], asked.get("path")
    if verb == "mail":
        return _mails(where, asked) if op == "ls" else None
    if op == "show" and str(path).startswith(QUARANTINE):
        return None  # a supervisor remembers what was shown
    with _store(where, asked["project"]) as store:
        if op == "ls":
            return listing.listed(store, asked.get("prefix") or "")
        if op == "show":
            return listing.shown(store, str(path), asked.get("version"), PERSON)
        if op == "log":
            return note.page(
                store.versions, Wanted(path, int(asked.get("limit") or 100), asked.get("before"), patch=bool(asked.get("patch")))
            )
        return listing.waiting(store) if op == "quarantine" else None


def everything(where: Home, project: str) -> Iterator[tuple[str, str, float, dict[str, Any] | None]]:
    """Every file: path, text, when it was changed, and its newest change by a door."""
    with _store(where, project) as store:
        for entry in store.entries():
            if (found := store.read(entry.path)) is not None:
                newest = store.changes(entry.path, 1)
                yield entry.path, found.text, entry.mtime, note.told(newest[0]) if newest else None


def _store(where: Home, project: str) -> contextlib.closing[Store]:
    return contextlib.closing(Store(Layout(where.project(project)), time.time, _terms, reads=True))


def _terms() -> Terms:
    """As the supervisor has them; by default where the settings cannot be read, which hides no note."""
    from supervisor.config import user  # only here: it costs short commands much

    try:
        return Terms(user.load(settings_file(), usable_cores=1).memory.approval)
    except ConfigError:
        return Terms()


def _mails(where: Home, asked: Args) -> dict[str, Any]:
    if not where.ledger.exists():
        return {"pairs": []} if asked.get("pairs") else {"mails": []}
    with contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        of = str(asked.get("of") or PERSON)
        owner = of if of == PERSON else queries.match_task(db, of, asked["project"])
        return listed(db, asked["project"], PERSON, owner, asked, time.time())


# Door
# ----
# Who asks, of which project, and where: the one way of a command to what agents know together.


ANSWER_S = 60.0


def is_agent() -> bool:
    """Whether an agent of ours runs the command: it has its attempt's token, and speaks for nobody else."""
    return bool(os.environ.get("NIGHTCREW_TOKEN") and os.environ.get("NIGHTCREW_AGENTS_SOCKET"))


def ask(
    verb: str, op: str, args: dict[str, Any], *, reads: bool = False, timeout_s: float = ANSWER_S, repo: Path | None = None
) -> dict[str, Any]:
    """What `verb` (`mem`, `mail`, `lease`) answers to `op`, for the agent that runs this, else for the person, of the project of `repo`
    (the current directory). An operation that `reads` works without a supervisor where it can; all else starts one. Raises our errors."""
    asked = {"op": op, **{name: value for name, value in args.items() if value is not None}}
    if is_agent():
        socket, token = Path(os.environ["NIGHTCREW_AGENTS_SOCKET"]), os.environ["NIGHTCREW_TOKEN"]
        return protocol.call(socket, verb, asked, timeout_s=timeout_s, token=token)
    where, asked = home(), {**asked, "project": project(repo)}
    if not reads:
        return common.ask(where, verb, asked, timeout_s=timeout_s)
    if lock.holder(where.lock) is not None and where.project(asked["project"]).exists():  # a look makes no directories
        with contextlib.suppress(NotRunning):  # it left meanwhile
            return protocol.call(where.daemon_socket, verb, asked, timeout_s=timeout_s)

    found = answer(where, verb, asked)
    return found if found is not None else common.ask(where, verb, asked, timeout_s=timeout_s)


def project(directory: Path | None = None) -> str:
    """The project of the repository around `directory` (the current one). Raises NotFound and Refused where there is none."""
    where, here = home(), (directory or Path.cwd()).resolve()
    if known := _known(where, here):
        return known
    from worktrees.git import Git
    from worktrees.repository import discover

    return discover(Git(where.root / "git"), here).project


def memory_files() -> Path | None:
    """Where the files lie of the memory that is meant here, if that can be told at once: for completion."""
    if is_agent():
        told = os.environ.get("NIGHTCREW_MEMORY")
        return Path(told) if told else None
    known = _known(home(), Path.cwd())
    return home().memory(known) if known else None


def of_project(where: Home, project: str) -> str:
    """The repository of a project, for a person to read; its id when nothing was ever run in it."""
    with contextlib.suppress(NightcrewError), contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        row = db.execute("SELECT root FROM project WHERE id = ?", (project,)).fetchone()
        return str(row["root"]) if row is not None else project
    return project


def _known(where: Home, here: Path) -> str:
    """From the ledger, which has every repository in which something was run."""
    if not where.ledger.exists():
        return ""
    with contextlib.suppress(NightcrewError), contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        return queries.project_at(db, str(here))
    return ""


# Printing
# --------
# What agents know together, for a terminal. Names, titles and texts may be an agent's: nothing of them drives the terminal.


TITLE_MAX = 60
TITLE_MIN = 24
EXACT = 35
"""Columns of a line of `entries` beside its path and its title."""


def text(given: str) -> None:
    """Print it; nothing of it drives a terminal, colours neither."""
    shown = escaped(given) if sys.stdout.isatty() else given
    click.echo(shown, nl=not shown.endswith("\n"))


def entries(found: list[dict[str, Any]], now: float) -> str:
    """One a line: path, size, version, how old, title. A narrow terminal has no room for size and version; the title matters more."""
    wide, room = min(60, max(len(one_line(str(one["path"]))) for one in found)), common.width()
    exact = room >= wide + EXACT + TITLE_MIN
    return "\n".join(cut(_entry(one, wide, now, exact=exact), room) for one in found)


def _entry(one: dict[str, Any], wide: int, now: float, *, exact: bool) -> str:
    title = one_line(str(one.get("title") or ""))
    shown = title if len(title) <= TITLE_MAX else title[: TITLE_MAX - 3] + "..."
    state = f"{one['size']:>6}  {one_line(str(one['version'])):<16}  " if exact else ""
    return f"{one_line(str(one['path'])):<{wide}}  {state}{age(now - float(one['mtime'])):>6}  {shown}".rstrip()


def hit(found: dict[str, Any]) -> str:
    """What a search found: path and title, and below it what the note says of it."""
    title = one_line(found["title"])
    excerpt = one_line(found.get("excerpt") or "").removeprefix("# ").removeprefix(title).strip()
    lines = [f"{one_line(found['path'])}  {title}", *([f"    {excerpt}"] if excerpt else [])]
    return "\n".join(cut(line, common.width()) for line in lines)


def left_out(found: dict[str, Any]) -> None:
    """Say what an answer does not list."""
    for one in found.get("refused") or ():
        common.say(f"{one_line(str(one['path']))} is not read: {one_line(str(one['why']))}")
    if more := found.get("more_refused"):
        common.say(f"and {more} more are not read")
    if more := found.get("more"):
        common.say(f"and {more} more")


def change(one: dict[str, Any], now: float) -> str:
    """One of a log: how long ago, what, which version it made, of which file, and who."""
    who = one_line(str(one["author"])) + (f":{one['epoch']}" if one.get("epoch") else "")
    what = f"{one['action']:<8}  {one_line(str(one['version'])):<16}  {one_line(str(one['path']))}  {who}"
    return cut(f"{age(now - float(one['at'])):>6}  {what}", common.width())


def lease(one: dict[str, Any], wide: int, now: float) -> str:
    """Return its number, its pattern on `wide` columns, its mode, how long it lasts, and who has it."""
    left = age(datetime.fromisoformat(one["expires"]).timestamp() - now)
    return cut(
        f"{one['fence']:>4}  {one_line(one['glob']):<{wide}}  {one['mode']:<9}  {left:>6} left  {one_line(one['task'])}", common.width()
    )
