"""A page of what was changed, newest first, as answers have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memory import note
from memory.note import cleaned
from memory.versions import Change, Versions

CHANGES_MAX = 1_000
PATCHED_MAX = 100
"""Changes of a page, and of one with patches: a patch takes up to 11 ms."""
PATCHES_MAX = 512 * 2**10
"""Characters of all patches of a page, after the first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Changes of a file, or of all; those before the number `before`, or the newest."""

    path: str | None = None
    limit: int = CHANGES_MAX
    before: int | None = None
    patch: bool = False


def page(versions: Versions, wanted: Wanted, shows: Callable[[Change], bool] = lambda _: True) -> dict[str, Any]:
    """`changes`, those that it `shows`, and `before`: the number before which the older ones are, None when there are none."""
    most = min(wanted.limit, PATCHED_MAX if wanted.patch else CHANGES_MAX)
    found = versions.changes(wanted.path, most + 1, wanted.before)
    is_cut, found = len(found) > most, found[:most]
    shapes: list[dict[str, Any]] = []
    last, room = 0, PATCHES_MAX
    for change in found:
        shape = told(change)
        if wanted.patch and shows(change):
            shape["patch"] = cleaned(note.patch(versions.content, change))
            room -= len(shape["patch"])
            if room < 0 and shapes:
                is_cut = True
                break
        last = change.number
        if shows(change):
            shapes.append(shape)
    return {"changes": shapes, "before": (last or None) if is_cut else None}


def told(change: Change) -> dict[str, Any]:
    """One change."""
    names = ("number", "path", "at", "author", "epoch", "version", "before", "size")
    return {"action": str(change.action), **{name: getattr(change, name) for name in names}}
