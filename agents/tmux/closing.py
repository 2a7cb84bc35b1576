"""Sessions closed for a person, from a process that has no control client of its own: through libtmux, whose every call starts a tmux."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from supervisor.core.errors import ToolFailed


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
