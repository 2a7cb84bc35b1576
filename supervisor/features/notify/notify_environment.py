"""The variables that `[notify] urls` and `[telemetry] headers` name, and those of the desktop where that is told, on their way to a
supervisor that a verb starts in a pane of our tmux server.

That gives a pane none of them, since agents have their panes there too. They go by a file of the state that only we may read, which is
there until the supervisor has read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host import files

if TYPE_CHECKING:
    from supervisor.features.notify.rules import Terms
    from supervisor.host.paths import Home


def named(*terms: Terms) -> set[str]:
    """The variables in which the receivers of `terms` have their addresses, or find what they need."""
    from supervisor.features.notify.rules import DESKTOP, DESKTOP_VARIABLES  # of what starts a supervisor, not of every verb

    receivers = [receiver for one in terms for receiver in one.receivers]
    pairs = (receiver.source.partition(":") for receiver in receivers if receiver.name == receiver.source)
    desktop = DESKTOP_VARIABLES if any(receiver.name == DESKTOP for receiver in receivers) else ()
    return {*desktop, *(name for kind, _, name in pairs if kind == "env")}


def leave(home: Home, settings_file: Path, environ: Mapping[str, str]) -> None:
    """Have the supervisor that is about to start find those that `environ` holds. Raises ConfigError, DiskFull, ToolFailed."""
    from supervisor.config import user

    names = named(user.load_notify(settings_file), user.load_notify_here(settings_file)) | user.load_telemetry(settings_file).variables
    found = {name: environ[name] for name in sorted(names) if name in environ}
    if found:
        files.atomic_write(home.handed, json.dumps(found).encode(), durable=False)


def withdraw(home: Home) -> None:
    """Take back what no supervisor has read."""
    home.handed.unlink(missing_ok=True)


def take(home: Home, *terms: Terms) -> dict[str, str]:
    """Those that `terms` names: what was left, read once and removed, else our own environment's. A shell's names win."""
    found = seen(home, named(*terms))
    withdraw(home)
    return found


def seen(home: Home, names: Iterable[str]) -> dict[str, str]:
    """The same of these names, which leaves it there for others."""
    try:
        left = json.loads(home.handed.read_bytes())
    except (OSError, ValueError):
        left = {}
    both = {**os.environ, **(left if isinstance(left, dict) else {})}
    return {name: str(both[name]) for name in names if name in both}
