"""What the screen asks a person, and its help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from supervisor.kernel.errors import one_line
from supervisor.views.crew import LETTERS

# Dialogs
# -------
# Screens above the main one, each closed once: a key that was pressed twice would close the one below as well.


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """Textual takes whatever screen is on top away, also when this one has gone already."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Of Textual."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Palette(CommandPalette):
    """The same of Textual's palette."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Of Textual."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


# Asking
# ------
# What the screen asks a person: yes or no, and what a new task is to be.


_BOX = """
{name} {{ align: center middle; background: transparent; }}
{name} > Vertical {{ width: 90%; max-width: 76; height: auto; max-height: 90%; border: round ansi_bright_black; padding: 0 1;
    background: ansi_default; color: ansi_default; }}
{name} Label {{ width: 1fr; height: auto; }}
{name} Input {{ height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }}
{name} Input:focus {{ border: none; background: ansi_default; text-style: underline; }}
"""


class Confirm(Dialog[bool]):
    """y, or anything else."""

    DEFAULT_CSS = _BOX.format(name="Confirm")

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Of Textual."""
        with Vertical():
            yield Label(one_line(self._question), markup=False)
            yield Label("y yes   n no", markup=False)

    def on_key(self, event: events.Key) -> None:
        """Of Textual."""
        event.stop()
        event.prevent_default()
        self.dismiss(event.key in ("y", "Y"))


class Editable(Input):
    """A line in which keys act in the order in which they were pressed. Textual's own lets one that edits, such as Ctrl-u, act after the
    letters that a slow connection brought with it."""

    async def on_key(self, event: events.Key) -> None:
        """Of Textual."""
        if event.key in _EDITS:
            event.stop()
            event.prevent_default()
            await self.run_action(_EDITS[event.key])


_EDITS = {
    key: binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding) and binding.action != "submit"
    for key in binding.key.split(",")
}


class Field(Editable):
    """A line of a form. Enter comes here after the letters before it, also when it was pressed before the next field had the keys."""

    async def action_submit(self) -> None:
        """Of Textual."""
        if isinstance(self.screen, Form):
            self.screen.action_next()


class Form(Dialog[tuple[str, ...] | None]):
    """A line for each thing that is asked; Enter on the last one gives them all, Esc nothing."""

    DEFAULT_CSS = _BOX.format(name="Form")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("down", "app.focus_next", show=False, priority=True),
        Binding("up", "app.focus_previous", show=False, priority=True),
    ]

    def __init__(self, title: str, fields: Sequence[tuple[str, str]], note: str = "") -> None:
        """`fields`: what is asked, and what stands there to begin with."""
        super().__init__()
        self._title, self._fields, self._note = title, fields, note

    def compose(self) -> ComposeResult:
        """Of Textual."""
        with Vertical():
            yield Label(one_line(self._title), markup=False)
            for name, value in self._fields:
                yield Label(name, markup=False)
                yield Field(value, select_on_focus=False)
            yield Label(self._note, markup=False)

    def action_next(self) -> None:
        """The next field at once, so that the next key is for that; after the last one all are given."""
        fields = list(self.query(Input))
        at = next((number for number, field in enumerate(fields) if field is self.focused), 0)
        if at + 1 == len(fields):
            self.dismiss(tuple(field.value for field in fields))
        else:
            self.set_focus(fields[at + 1])

    def action_leave(self) -> None:
        """Without an answer."""
        self.dismiss(None)


class Line(Editable):
    """One line at the bottom of the screen."""

    DEFAULT_CSS = """
    Line, Line:focus { dock: bottom; height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.close_line", show=False)]


# Help
# ----
# The keys.


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
