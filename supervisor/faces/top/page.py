"""Lines on the right: a screen, a diff, a log. They are parsed when they come into sight, and kept."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from supervisor.faces.doors import Text
from supervisor.faces.top import sgr


class PageView(ScrollView, can_focus=False):
    """One page. It stays where a person scrolled it to; a page whose end matters follows that while it is in sight."""

    DEFAULT_CSS = """
    PageView { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[str] = ()
        self._strips: dict[int, Strip] = {}
        self._key = ""
        self._ends = self._follows = False

    def show(self, key: str, text: Text) -> None:
        """`key` says of what task and page these lines are: another one is shown from its beginning, or its end where that matters."""
        is_new = key != self._key
        before, self._key = self._lines, key
        self._lines = _trimmed(text.lines)
        self._strips = {} if is_new or len(before) > len(self._lines) else self._still(before)
        self.virtual_size = Size(max(1, self.size.width), len(self._lines))
        self._ends = text.ends
        if is_new:
            self._follows = text.ends
            self.scroll_home(animate=False, immediate=True)
        self._to_end()
        self._repaint(before, is_new=is_new)

    def _to_end(self) -> None:
        """Where it is followed; once it is laid out, since only then it is known where that is."""
        if self._follows:
            self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def scroll_by(self, rows: int) -> None:
        """As a person does: away from the end it is not followed any more, and back there it is."""
        self.scroll_relative(y=rows, animate=False, immediate=True)
        self._follows = self._ends and rows > 0 and self.is_vertical_scroll_end

    def on_resize(self) -> None:
        """Of Textual."""
        self._to_end()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Of Textual."""
        event.stop()
        event.prevent_default()
        self.scroll_by(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Of Textual."""
        event.stop()
        event.prevent_default()
        self.scroll_by(3)

    def _still(self, before: Sequence[str]) -> dict[int, Strip]:
        return {y: made for y, made in self._strips.items() if y < len(self._lines) and self._lines[y] == before[y]}

    def _repaint(self, before: Sequence[str], *, is_new: bool) -> None:
        """Only what changed, so that a terminal far away gets little."""
        if is_new or len(before) != len(self._lines):
            self.refresh()
            return
        for y, line in enumerate(self._lines):
            if line != before[y]:
                self.refresh_line(y)  # which takes off what is above the sight

    def render_line(self, y: int) -> Strip:
        """Of Textual."""
        at, width = y + int(self.scroll_offset.y), self.size.width
        if at >= len(self._lines):
            return Strip.blank(width, self._base())
        if at not in self._strips:
            self._strips[at] = sgr.strip(self._lines[at])
        return self._strips[at].crop(0, width).extend_cell_length(width).apply_style(self._base())

    def _base(self) -> Style:
        return self.rich_style


def _trimmed(lines: Sequence[str]) -> Sequence[str]:
    """Without the empty lines at its end."""
    last = len(lines)
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    return lines[:last]
