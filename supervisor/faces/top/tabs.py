"""Above the page: whose it is, and which of the six."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from supervisor.core.errors import one_line
from supervisor.faces.crew import Row
from supervisor.faces.doors import Page
from supervisor.faces.status import cut


class Tabs(Widget):
    """A click chooses a page."""

    DEFAULT_CSS = "Tabs { height: 2; }"

    class Chosen(Message):
        """A page was clicked."""

        def __init__(self, page: Page) -> None:
            super().__init__()
            self.page = page

    def __init__(self) -> None:
        super().__init__()
        self._row: Row | None = None
        self._page = Page.SCREEN

    def show(self, row: Row | None, page: Page) -> None:
        """Repaint when it says something else."""
        before, now = self._title(), (row, page)
        self._row, self._page = now
        if before != self._title():
            self.refresh()

    def _title(self) -> tuple[str, Page]:
        if self._row is None:
            return "", self._page
        view = self._row.view
        attempt = f", attempt {view.epoch}" if view.epoch > 1 else ""
        return one_line(f"{view.id}  {view.kind}, {view.state}{attempt}  {view.title}"), self._page

    def render(self) -> Text:
        """Of Textual."""
        width = self.size.width or 80
        made = Text().append(cut(self._title()[0], width), "bold").append("\n")
        for start, _, word, page in self._places(width):
            made.append("  " if start else "").append(word, "reverse" if page is self._page else "dim")
        return made

    def _places(self, width: int) -> list[tuple[int, int, str, Page]]:
        """Where each begins and ends, and its word: whole names where there is room for all of them, else less."""
        found: list[tuple[int, int, str, Page]] = []
        for words in (_whole, _short, self._numbers):
            found, at = [], 0
            for number, page in enumerate(Page, 1):
                word = words(number, page)
                found.append((at, at + len(word), word, page))
                at += len(word) + 2
            if at - 2 <= width:
                break
        return found

    def _numbers(self, number: int, page: Page) -> str:
        return f"{number} {page}" if page is self._page else str(number)

    def on_click(self, event: events.Click) -> None:
        """Of Textual."""
        for start, end, _, page in self._places(self.size.width):
            if event.y == 1 and start <= event.x < end:
                self.post_message(self.Chosen(page))


def _whole(number: int, page: Page) -> str:
    return f"{number} {page}"


def _short(number: int, page: Page) -> str:
    return f"{number} {page[:4]}"
