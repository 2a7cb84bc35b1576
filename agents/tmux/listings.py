"""What tmux lists, read into values. Pure.

A row is fields with a space between. `#{q:…}` puts a backslash before spaces and other special characters, so a name or
title cannot shift the fields; numbers come first and free text last, so that even a damaged row keeps its pane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, urlencode

FORMAT = (
    "#{session_id} #{pane_id} #{pane_pid} #{session_attached} #{pane_dead} #{pane_dead_status} #{pane_dead_signal} "
    "#{@nightcrew_control} #{q:@nightcrew_pane} #{q:session_name} #{q:pane_title}"
)

_ROW = re.compile(r"(\$\d+) (%\d+) (\d+) (\d+) ([01]?) (\d*) (\w*) ([^ ]*) (.*)")
_FIELD = re.compile(r"((?:\\.|[^\\ ])*)(?: |$)")


@dataclass(frozen=True, slots=True)
class PaneView:
    """One pane at the moment of the call."""

    session_id: str
    pane_id: str
    pid: int
    """Its first process; after its end the number may be another program's."""
    attached: int
    """Terminals that show the session, our control client's among them in its own session."""
    closed: bool
    """Nobody holds its terminal any more. Mostly it has ended, but a program may also close its terminal and run on."""
    dead: bool
    """It has ended, and tmux knows how; the runner's own record tells it."""
    control: bool
    """The pane is of our own `_control` session."""
    tags: Mapping[str, str]
    """As given to `spawn`; empty for a pane that a user made, also inside a session of ours."""
    session_name: str
    """As it is now: a user may have renamed it."""
    title: str
    """Set by the program inside: evidence of the lowest rank."""


def pack_tags(tags: Mapping[str, str]) -> str:
    """All tags as one value without spaces and control characters, for the pane option."""
    return urlencode(tags, quote_via=quote, safe="/:", errors="surrogateescape")


def parse_panes(rows: Iterable[str]) -> list[PaneView]:
    """Rows of `FORMAT` as panes in the order of their ids. A pane that several sessions show (session groups, linked windows) is
    listed once, under the oldest of them, with the terminals of all.
    """
    panes: dict[str, PaneView] = {}
    for row in rows:
        view = _parse(row)
        if view is None:
            continue
        other = panes.get(view.pane_id)
        if other is not None:
            oldest = min(view, other, key=lambda one: int(one.session_id[1:]))
            view = replace(oldest, attached=view.attached + other.attached)
        panes[view.pane_id] = view
    return sorted(panes.values(), key=lambda one: int(one.pane_id[1:]))


def _parse(row: str) -> PaneView | None:
    """None for a line that is no row: the rest of a value with a line break, which only a user's own tmux command can set."""
    found = _ROW.fullmatch(row)
    if found is None:
        return None
    session_id, pane_id, pid, attached, dead, status, signal_name, control, rest = found.groups()
    packed, name, title = [*map(_unescaped, _FIELD.findall(rest)), "", "", ""][:3]
    return PaneView(
        session_id=session_id,
        pane_id=pane_id,
        pid=int(pid),
        attached=int(attached),
        closed=dead == "1",
        dead=dead == "1" and bool(status or signal_name),
        control=control == "1",
        tags=unpack_tags(packed),
        session_name=name,
        title=title,
    )


def _unescaped(field: str) -> str:
    return re.sub(r"\\(.)", r"\1", field) if "\\" in field else field


@lru_cache(maxsize=4096)  # a pane's tags never change, and it is listed every second
def unpack_tags(packed: str) -> Mapping[str, str]:
    """What `pack_tags` made."""
    return MappingProxyType(dict(parse_qsl(packed, keep_blank_values=True, errors="surrogateescape")))
