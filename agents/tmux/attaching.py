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
    known = terminal_name(environ.get("TERM", ""))
    # With TMUX set our server refuses a terminal whose number one of its ended panes had before ("nested with care").
    return [
        "env",
        "-u",
        "TMUX",
        *([f"TERM={known}"] if known != environ.get("TERM", "") else []),
        *tmux,
        "attach-session",
        "-t",
        session_id,
    ]


def terminal_name(term: str) -> str:
    """Return `term` if this machine's terminfo knows it as a terminal that tmux can draw on, else the nearest name that it knows: terminals
    such as Ghostty and kitty name themselves after an entry that only they bring. All of them understand what xterm does."""
    if term not in _NO_SCREEN and _has_entry(term):
        return term
    return next((name for name in _COMMON if _has_entry(name)), term)


def _has_entry(term: str) -> bool:
    """Return whether a compiled entry lies where ncurses looks for it."""
    if not term or "/" in term or term.startswith("."):
        return False
    folders = [os.environ.get("TERMINFO", ""), str(Path.home() / ".terminfo"), *os.environ.get("TERMINFO_DIRS", "").split(":"), *_FOLDERS]
    places = (term[0], f"{ord(term[0]):x}")
    return any(Path(folder, place, term).is_file() for folder in folders if folder for place in places)


_COMMON = ("xterm-256color", "xterm", "screen-256color", "screen", "vt220", "vt100")
_NO_SCREEN = ("dumb", "unknown", "emacs")
_FOLDERS = ("/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo", "/usr/local/share/terminfo")


def _same_socket(named: str, ours: Path) -> bool:
    """By device and inode: the path in TMUX may name the same socket in another way."""
    try:
        return bool(named) and Path(named).samefile(ours)
    except OSError:
        return False
