"""The only door to tmux: import from here.

door       Tmux: the calls          control   the persistent `tmux -C` client and its protocol
people     tree, attach             process   the server's start, its settings and its environment
views      rows -> values (pure)    quoting   text that tmux must not read as commands (pure)
"""

from __future__ import annotations

from agents.tmux.door import ARG_MAX, CONTROL_SESSION, Pane, ServerGone, SessionExists, Tmux
from agents.tmux.people import PaneTree, SessionTree, WindowTree
from agents.tmux.views import PaneView

__all__ = [
    "ARG_MAX",
    "CONTROL_SESSION",
    "Pane",
    "PaneTree",
    "PaneView",
    "ServerGone",
    "SessionExists",
    "SessionTree",
    "Tmux",
    "WindowTree",
]
