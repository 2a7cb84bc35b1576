"""The keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Label

from supervisor.faces.crew import LETTERS
from supervisor.faces.top.dialogs import Dialog

KEYS = (
    ("enter", "into its pane; Ctrl-b d comes back here"),
    ("s", "send a line to it, or to all that are marked"),
    ("a d", "allow or deny what it asks"),
    ("n", "a new task; its prompt in your editor"),
    ("f", "more words for it: it goes on, also when it has ended"),
    ("t", "take its result into your branch (asks)"),
    ("g", "open a pull request of its result"),
    ("p", "pause it, or let it go on"),
    ("k", "kill it (asks)"),
    ("r", "run it again"),
    ("w", "the next one who needs me"),
    ("up down", "select; space marks, Esc clears marks and filter"),
    ("1-6 tab", "screen, diff, log, transcript, history, resources"),
    ("[ ]", "scroll the page; shift with the arrows as well"),
    ("z", "the page alone, and back"),
    ("/", "filter by words"),
    (": ctrl+p", "every verb"),
    ("R", "look at everything anew"),
    ("q", "leave; agents go on"),
)
"""Each with what it does."""


class Help(Dialog[None]):
    """Any key closes it."""

    DEFAULT_CSS = """
    Help { align: center middle; background: transparent; }
    Help > VerticalScroll { width: 90%; max-width: 78; height: auto; max-height: 95%; border: round ansi_bright_black; padding: 0 1;
        background: ansi_default; color: ansi_default; scrollbar-size-vertical: 1; }
    Help Label { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter,space", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        """Of Textual."""
        with VerticalScroll():
            for keys, what in KEYS:
                yield Label(f"{keys:<10} {what}", markup=False)
            yield Label("", markup=False)
            yield Label("  ".join(f"{letter} {what}" for letter, what in LETTERS.items()), markup=False)
