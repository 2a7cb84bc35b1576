"""Look at panes and close sessions, from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.tmux import server_process
from agents.tmux.control import unpack_tags
from supervisor.kernel.errors import NotFound, ToolFailed
from supervisor.kernel.format import duration

# Screens
# -------
# What a pane shows now, for a person who looks from outside: by one plain call, without a control client, so any command may look.


LOOK_S = 2.0
"""Seconds that a server which does not answer may hold a look up."""
_FACTS = "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{cursor_flag} #{pane_dead} #{@nightcrew_pane}"


@dataclass(frozen=True, slots=True)
class Screen:
    """A pane's screen at the moment of the call."""

    lines: tuple[str, ...]
    """With colours as SGR. The text is a stranger's, and may hold other sequences."""
    columns: int
    rows: int
    cursor: tuple[int, int] | None
    """Column and row, from 0; None: it is hidden."""
    dead: bool


def look(socket: Path, pane_id: str, attempt: str, environ: Mapping[str, str], *, binary: str = "tmux") -> Screen:
    """The screen of a pane that is `attempt`'s: after a restart of the server its number is another's. Raises NotFound, ToolFailed,
    ToolMissing."""
    argv = (binary, "-u", "-N", "-S", os.fspath(socket), "display-message", "-p", "-t", pane_id, _FACTS)
    process = server_process.open_group((*argv, ";", "capture-pane", "-p", "-e", "-t", pane_id), server_process.scrubbed(environ))
    try:
        out, _ = process.communicate(timeout=LOOK_S)
    except subprocess.TimeoutExpired:
        raise ToolFailed("tmux did not answer", on=pane_id, why=f"no end within {duration(LOOK_S)}", hint="nightcrew doctor") from None
    finally:
        server_process.kill_group(process)
    first, _, rest = out.decode("utf-8", "replace").partition("\n")
    facts = first.split(" ", 6)
    if process.returncode or len(facts) < 7 or unpack_tags(facts[6]).get("attempt") != attempt:
        raise NotFound("no pane of", on=attempt, why="it has not started yet, or just ended")
    columns, rows, x, y, shown, dead = map(int, facts[:6])
    return Screen(tuple(rest.removesuffix("\n").split("\n")), columns, rows, (x, y) if shown else None, bool(dead))


# Closing
# -------
# Sessions closed for a person, from a process that has no control client of its own: through libtmux, whose every call starts a
# tmux.


def close_sessions(socket: Path, session_ids: Collection[str], binary: str) -> None:
    """End these sessions (`$3`) and all that runs in them; one that is gone is fine. `binary` is the path of tmux. It waits as long as the
    server does. Raises ToolFailed."""
    import libtmux  # here, not above: it takes longer to import than all of this package
    from libtmux.exc import LibTmuxException

    server = libtmux.Server(socket_path=socket, config_file="/dev/null", tmux_bin=binary)
    try:
        for session in server.sessions:
            if session.session_id in session_ids:
                session.kill()
    except LibTmuxException as error:
        raise ToolFailed("sessions cannot be closed", on=str(socket), why=str(error), kept="those that are left") from error
