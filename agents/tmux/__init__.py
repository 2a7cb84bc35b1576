"""The only door to tmux: import from here.

tmux_server Tmux: the calls          control   the persistent `tmux -C` client and its protocol
attaching how a person attaches    server_process the server's start, its settings and its environment
listings  rows -> values (pure)    quoting   text that tmux must not read as commands (pure)
closing   sessions closed by `doctor --fix`  screens   what a pane shows, for who looks from outside
"""

from __future__ import annotations

from agents.tmux.control import PaneView
from agents.tmux.tmux_server import ARG_MAX, CONTROL_SESSION, Pane, PaneInput, ServerGone, SessionExists, Tmux, typed_text

__all__ = [
    "ARG_MAX",
    "CONTROL_SESSION",
    "Pane",
    "PaneInput",
    "PaneView",
    "ServerGone",
    "SessionExists",
    "Tmux",
    "typed_text",
]
