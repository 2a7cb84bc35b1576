"""What agents know together, for a terminal. Names, titles and texts may be an agent's: nothing of them drives the terminal."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import click

from supervisor.client import common
from supervisor.kernel.ansi import escaped
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age
from supervisor.views.status import cut

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
