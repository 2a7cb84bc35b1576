"""Screens above the main one, each closed once: a key that was pressed twice would close the one below as well."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.screen import ModalScreen

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
