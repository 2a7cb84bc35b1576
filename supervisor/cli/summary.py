"""The crew in a few characters, for the status line of tmux or a shell's prompt: quick, so it imports next to nothing.

`nightcrew/__init__.py` comes here without click and without the other verbs.
"""

from __future__ import annotations

import sys
import time

from supervisor.client import protocol
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NightcrewError, TimedOut
from supervisor.kernel.format import age
from supervisor.store import open_counts

ASK_S = 0.2
"""How long a supervisor that does not answer may hold a prompt up."""


def line(where: Home) -> str:
    """`2? lint 3m20s 5W 3q`: how many need you, which of them waits longest and since when, how many work, how many wait. `no supervisor`
    while somebody should work and none answers. Empty while there is nothing."""
    counts = open_counts.read(where.ledger)
    if not counts:
        return ""
    running, queued = counts.get("running", 0), sum(counts.values()) - counts.get("running", 0)
    return " ".join(filter(None, (_asking(where), f"{running}W" if running else "", f"{queued}q" if queued else "")))


def _asking(where: Home) -> str:
    try:
        said = protocol.call(where.daemon_socket, "needs", {}, timeout_s=ASK_S)
    except TimedOut:
        return "..."
    except NightcrewError:
        return "no supervisor"
    found = sorted([*said["agents"], *said.get("choices", ())], key=lambda one: one["since"])
    if not found:
        return ""
    since = age(time.time() - found[0]["since"])
    return f"{len(found)}? {found[0]['task'].rpartition('/')[2]} {since}"


def main() -> None:
    """Print it."""
    sys.stdout.write(f"{line(home())}\n")
