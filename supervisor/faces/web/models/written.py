"""The reports of a run that were written, as pages: made anew from their JSON by our own templates, so that the page which is served runs
exactly the script that we ship, whatever lies in the file of the page."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import NotFound, Refused
from supervisor.faces.night import html as night
from supervisor.faces.report import html as report
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger import archive, queries

BYTES_MAX = 16 * 2**20
_FROM_HERE = "sandbox allow-scripts; frame-ancestors 'none'"
"""Beside the page's own policy: it has no origin, so it reaches neither our cookie nor our addresses."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of report."""

    file: str
    """Of its JSON, in the run's directory."""
    render: Callable[[Mapping[str, Any]], str]
    policy: Callable[[], str]
    command: str


def _report(shape: Mapping[str, Any]) -> str:
    return report.render(dict(shape))


KINDS: Mapping[str, Kind] = {
    "report": Kind("report.json", _report, report.policy, "nightcrew report"),
    "night": Kind("night.json", night.render, night.policy, "nightcrew night report"),
}


@dataclass(frozen=True, slots=True)
class Served:
    """A page, and the policy that its answer's header has to have."""

    html: str
    policy: str


def of_run(home: Home, run: str) -> list[str]:
    """The kinds of report that a run has."""
    return [name for name, kind in KINDS.items() if _is_file(home, run, kind)]


def _is_file(home: Home, run: str, kind: Kind) -> bool:
    try:
        return stat.S_ISREG((home.runs / run / kind.file).lstat().st_mode)
    except OSError:
        return False


def page(home: Home, run: str, name: str) -> Served:
    """One of them. Raises NotFound when there is none of such a run, Refused when it cannot be shown."""
    with contextlib.closing(archive.reader(home.ledger, home.archive, run)) as db:
        queries.run(db, run)  # a name that it knows is no path
    kind = KINDS.get(name)
    data = foreign.read_plain(home.runs / run / kind.file, BYTES_MAX + 1) if kind is not None else None
    if kind is None or data is None:
        raise NotFound("no report was written of", on=run, hint=f"{kind.command if kind else 'nightcrew report'} {run}")
    if len(data) > BYTES_MAX:
        raise Refused("too large to show here", on=kind.file, why=f"more than {BYTES_MAX >> 20} MiB", hint=f"{kind.command} {run}")
    try:
        text = kind.render(json.loads(data))
    except Exception as error:  # a file of another version, or one that somebody changed: the template meets what it does not know
        why = f"{kind.file} is not as this version writes it"
        raise Refused("cannot show the report", on=run, why=why, kept="its files", hint=f"{kind.command} {run}") from error
    return Served(text, f"{kind.policy()}; {_FROM_HERE}")
