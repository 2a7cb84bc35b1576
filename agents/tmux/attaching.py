"""What a person asks of tmux: the whole tree, and a way into a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.core.errors import ToolFailed

if TYPE_CHECKING:
    import libtmux


@dataclass(frozen=True, slots=True)
class PaneTree:
    """A pane in the tree."""

    pane_id: str
    pid: int
    command: str
    """Name of the program in the foreground, by tmux."""
    dead: bool
    size: str
    """Columns and rows, `200x50`."""


@dataclass(frozen=True, slots=True)
class WindowTree:
    """A window and its panes."""

    window_id: str
    name: str
    panes: tuple[PaneTree, ...]


@dataclass(frozen=True, slots=True)
class SessionTree:
    """A session and its windows."""

    session_id: str
    name: str
    attached: int
    windows: tuple[WindowTree, ...]


def read_tree(socket: Path, binary: str) -> list[SessionTree]:
    """All sessions of the server on `socket`. Raises ToolFailed."""
    import libtmux  # here, not above: it takes longer to import than all of this package
    from libtmux.exc import LibTmuxException

    server = libtmux.Server(socket_path=socket, config_file="/dev/null", tmux_bin=binary)
    try:
        panes = sorted(server.panes, key=_place)
    except LibTmuxException as error:
        raise ToolFailed("cannot list tmux sessions", on=str(socket), why=str(error), hint="nightcrew status") from error
    sessions = groupby(panes, key=lambda pane: (pane.session_id or "", pane.session_name or "", int(pane.session_attached or 0)))
    return [SessionTree(*session, windows=_windows(list(members))) for session, members in sessions]


def _windows(panes: list[libtmux.Pane]) -> tuple[WindowTree, ...]:
    windows = groupby(panes, key=lambda pane: (pane.window_id or "", pane.window_name or ""))
    return tuple(WindowTree(*window, panes=tuple(map(_pane, members))) for window, members in windows)


def _pane(pane: libtmux.Pane) -> PaneTree:
    return PaneTree(
        pane_id=pane.pane_id or "",
        pid=int(pane.pane_pid or 0),
        command=pane.pane_current_command or "",
        dead=pane.pane_dead == "1",
        size=f"{pane.pane_width}x{pane.pane_height}",
    )


def _place(pane: libtmux.Pane) -> tuple[int, int, int]:
    return int((pane.session_id or "$0")[1:]), int(pane.window_index or 0), int(pane.pane_index or 0)


def attach_argv(binary: str, socket: Path, session_id: str, environ: Mapping[str, str]) -> list[str]:
    """Inside a pane of our own server the terminal there switches to the session. Anywhere else the session opens in the caller's
    terminal, also when that is a pane of the user's own tmux: the two nest, detaching leads back to the pane, and the inner
    one gets the prefix key pressed twice (`C-b C-b d`).
    """
    tmux = [binary, "-u", "-S", os.fspath(socket)]
    named = environ.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
    if _same_socket(named, socket):
        return [*tmux, "switch-client", "-t", session_id]
    # With TMUX set our server refuses a terminal whose number one of its ended panes had before ("nested with care").
    return ["env", "-u", "TMUX", *tmux, "attach-session", "-t", session_id]


def _same_socket(named: str, ours: Path) -> bool:
    """By device and inode: the path in TMUX may name the same socket in another way."""
    try:
        return bool(named) and Path(named).samefile(ours)
    except OSError:
        return False
