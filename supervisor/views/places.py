"""Where tasks belong: one line stands for all workers of a map or all gates of a train, the others stand by repository and run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TypeVar

from supervisor.kernel.errors import one_line
from supervisor.store.journal import MAP_KINDS
from supervisor.store.queries import TaskView
from supervisor.views import status

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Train:
    """The train that a gate belongs to."""

    name: str
    words: str
    """State of the train, in words."""


@dataclass(frozen=True, slots=True)
class Line:
    """A task, or several that one line stands for."""

    view: TaskView
    """The task; for a line of several, the most urgent one, with the name of the map's run or of the train."""
    tasks: tuple[str, ...]
    """The full ids of all of them."""
    says: str = ""
    """State of all tasks of a line of several; empty for a single task."""


def folded(views: Iterable[TaskView], trains: Mapping[str, Train], alone: Collection[str] = ()) -> list[Line]:
    """The tasks in their order, those that belong together in the place of the first. `trains`: by task, of each gate. `alone`: full ids of
    tasks that have a line of their own, whatever they belong to."""
    together: dict[str, list[TaskView]] = {}
    lines: list[str | TaskView] = []
    for view in views:
        key = "" if view.id in alone else trains[view.id].name if view.id in trains else view.run if view.kind in MAP_KINDS else ""
        if not key:
            lines.append(view)
        elif key in together:
            together[key].append(view)
        else:
            together[key] = [view]
            lines.append(key)
    return [Line(one, (one.id,)) if isinstance(one, TaskView) else _line(one, together[one], trains) for one in lines]


def _line(key: str, views: list[TaskView], trains: Mapping[str, Train]) -> Line:
    first = status.by_urgency(views)[0]
    train = trains.get(first.id)
    if train is None and len(views) == 1:
        return Line(first, (first.id,))
    words = train.words if train is not None else status.tally(status.counted(views))
    title = f"gates of {key}" if train is not None else first.title
    return Line(replace(first, name=key, title=title, reason=""), tuple(view.id for view in views), words)


def several(views: Iterable[TaskView]) -> frozenset[str]:
    """The runs of which there is more than one task."""
    return frozenset(run for run, number in Counter(view.run for view in views).items() if number > 1)


def gathered(items: Sequence[T], view_of: Callable[[T], TaskView], runs_of: Collection[str] | None = None) -> list[tuple[str, list[T]]]:
    """Group items by repository and run, in their order, and give each group a heading. Tasks that are alone in their run, or whose run is
    not in `runs_of`, come first in their repository. A single group has an empty heading."""
    views = [view_of(item) for item in items]
    known = several(views) if runs_of is None else runs_of
    names = _names({view.root or "" for view in views})
    found: dict[str, dict[str, list[T]]] = {}
    for item, view in zip(items, views, strict=True):
        runs = found.setdefault(view.root or "", {"": []})
        runs.setdefault(view.run if view.run in known else "", []).append(item)
    groups = [(_heading(names[root], run, view_of(some[0])), some) for root, runs in found.items() for run, some in runs.items() if some]
    return groups if len(groups) > 1 else [("", some) for _, some in groups]


def listed(views: Iterable[TaskView], waits: status.Waiting, trains: Mapping[str, Train]) -> list[tuple[str, list[Line]]]:
    """Return the lines that `status` shows: first tasks that wait for a person, without a heading, then all others by repository and run.
    A line that stands for several tasks shows the name of their map or train instead of an id."""
    lines = [
        replace(one, view=replace(one.view, id=one.view.name)) if one.says else one
        for one in folded(waits.first(views), trains, waits.asked)
    ]
    asking = [one for one in lines if one.view.id in waits.asked]
    others = [one for one in lines if one.view.id not in waits.asked]
    return [*([("", asking)] if asking else []), *gathered(others, lambda one: one.view)]


def _heading(repository: str, run: str, view: TaskView) -> str:
    said = " ".join(filter(None, (one_line(view.run_title or ""), f"({run})"))) if run else ""
    return " · ".join(filter(None, (one_line(repository), said)))


def _names(roots: Collection[str]) -> dict[str, str]:
    """Return a name for each repository: that of its directory, or its whole path where two directories have the same name."""
    count = Counter(PurePath(root).name for root in roots)
    return {root: PurePath(root).name if count[PurePath(root).name] == 1 else root for root in roots}
