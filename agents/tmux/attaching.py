"""The command by which a person looks at a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


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
