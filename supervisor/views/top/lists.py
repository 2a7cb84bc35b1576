"""The lists and pages of the screen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from supervisor.kernel.errors import one_line
from supervisor.views.crew import Crew, Fact, Group, Page, Row, Section
from supervisor.views.crew import Text as ProtocolsText
from supervisor.views.sgr import Look, runs
from supervisor.views.status import columns, cut

# Sgr
# ---
# Text that strangers made, as lines that are painted (see `supervisor.views.sgr`). Pure.


def strip(line: str) -> Strip:
    """One line."""
    return Strip([Segment(said, _style(look)) for said, look in runs(line)])


@lru_cache(maxsize=4096)
def _style(look: Look) -> Style:
    if not look:
        return Style.null()
    return Style(**{name: _color(value) if name.endswith("color") else value for name, value in look})  # type: ignore[arg-type]  # weights


def _color(value: object) -> Color:
    return Color.from_rgb(*value) if isinstance(value, tuple) else Color.from_ansi(value)  # type: ignore[arg-type]  # of `Look`


# Crew list
# ---------
# The groups on the left: a heading and a line for each task, one of them selected.


NAME, AGE = 24, 6
"""Columns of a name at most, and of an age."""
BEGIN = (
    "Nothing runs yet. To begin:",
    "  n   a task for an agent, here",
    "  :   any verb, such as run PLAN",
    "  ?   the keys",
    "Or in another terminal, in a repository:",
    "  nightcrew start 'What to do'",
    "  nightcrew analyze",
)
"""Text to show while there is no task, at most 40 columns wide."""
HALVED = 32
"""Columns that two texts share."""
_SPEAKING = (Group.NEEDS_ME, Group.WORKING, Group.IDLE)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the list."""

    section: Section | None = None
    row: Row | None = None
    text: str = ""
    of: Row | None = None
    """The row whose second line this is."""
    is_first: bool = False
    """A second line says what the row says."""

    @property
    def task(self) -> Row | None:
        """Return the row that a click on this line selects."""
        return self.row or self.of


class CrewList(ScrollView, can_focus=False):
    """The selection stays with its task when others come and go."""

    DEFAULT_CSS = """
    CrewList { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """

    class Selected(Message):
        """Another task is selected, or none; `by_person`: because they said so, and not because the one before is gone."""

        def __init__(self, *, by_person: bool) -> None:
            super().__init__()
            self.by_person = by_person

    class Opened(Message):
        """A task was clicked twice."""

    def __init__(self) -> None:
        super().__init__()
        self._crew: Crew | None = None
        """None before the first look."""
        self._lines: list[_Line] = []
        self._painted: list[tuple[object, ...]] = []
        self._place = 0
        self.selected = ""
        """Its id."""
        self.words = ""
        """Only tasks that hold them are shown."""
        self.marked: set[str] = set()

    # What is shown ----------------------------------------------------------------------------------------------------------------

    def show(self, crew: Crew) -> None:
        """Take a new look over, and repaint what it changed."""
        self._crew = crew
        self._arrange(crew)

    def _arrange(self, crew: Crew) -> None:
        self._lines = list(self._laid_out(crew))
        self._lines = list(self._with_seconds(self._lines))
        self.marked &= {line.row.id for line in self._lines if line.row}
        rows = self.rows()
        if rows and self.row is None:  # gone, or there was none: what is in its place now
            self._select(rows[min(self._place, len(rows) - 1)].id, by_person=False)
        elif not rows:
            self._select("", by_person=False)
        self._place = self._number()
        self.virtual_size = Size(max(1, self.size.width), len(self._lines))
        self.repaint()

    def _laid_out(self, crew: Crew) -> Iterator[_Line]:
        for section in crew.sections:
            rows = [row for row in section.rows if self._fits(row)]
            if not rows:
                continue
            yield _Line(section=section)
            for place, some in groupby(rows, lambda row: row.place):
                if place and not section.place:
                    yield _Line(text=f"  {place}")
                yield from (_Line(row=row) for row in some)
            if not self.words and section.left:
                yield _Line(text=f"  and {section.left} more: nightcrew status --all")

    def _with_seconds(self, lines: list[_Line]) -> Iterator[_Line]:
        """Give tasks that ask or work a second line with their agent's words, below their title, where all lines fit on the screen."""
        seconds = [line.row for line in lines if line.row is not None and line.row.group in _SPEAKING and line.row.title and line.row.says]
        roomy = 0 < len(lines) + len(seconds) <= self.size.height
        for line in lines:
            has_second = roomy and line.row in seconds
            yield replace(line, is_first=has_second)
            if has_second:
                yield _Line(of=line.row)

    def _fits(self, row: Row) -> bool:
        said = f"{row.id} {row.view.name} {row.view.kind} {row.title} {row.says} {row.group} {row.place}".lower()
        return all(word in said for word in self.words.lower().split())

    def filter(self, words: str) -> None:
        """Show what holds all of the words; of all when there is none."""
        self.words = words
        self.on_resize()

    def rows(self) -> list[Row]:
        """In their order, those that the filter lets through."""
        return [line.row for line in self._lines if line.row is not None]

    @property
    def row(self) -> Row | None:
        """The selected one."""
        return next((row for row in self.rows() if row.id == self.selected), None)

    def chosen(self) -> list[Row]:
        """Those that an act is for: all that are marked, or else the selected one."""
        marked = [row for row in self.rows() if row.id in self.marked]
        return marked or [row for row in (self.row,) if row is not None]

    def in_sight(self) -> frozenset[str]:
        """Tasks that are in sight, or nearly."""
        top = int(self.scroll_offset.y)
        shown = self._lines[max(0, top - 5) : top + self.size.height + 5]
        return frozenset(line.row.id for line in shown if line.row is not None)

    def on_resize(self) -> None:
        """Of Textual."""
        if self._crew is not None:
            self._arrange(self._crew)

    # Selecting --------------------------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        return next((number for number, row in enumerate(self.rows()) if row.id == self.selected), 0)

    def move(self, by: int) -> None:
        """Select another row."""
        if rows := self.rows():
            self.select(rows[max(0, min(len(rows) - 1, self._number() + by))].id)

    def select(self, task: str) -> None:
        """Select a task that is shown, and bring it into sight."""
        self._select(task, by_person=True)
        self._place = self._number()
        at = next((y for y, line in enumerate(self._lines) if line.row is not None and line.row.id == task), 0)
        top = 0 if at <= 1 else at
        if not self.scroll_offset.y <= top < self.scroll_offset.y + self.size.height:
            self.scroll_to(y=max(0, top - self.size.height // 2), animate=False, immediate=True)
        self.repaint()

    def select_next_asking(self) -> bool:
        """The next one that needs a person, after the selected one and then from the top; False when there is none."""
        asking = [row.id for row in self.rows() if row.group is Group.NEEDS_ME]
        if not asking:
            return False
        at = asking.index(self.selected) + 1 if self.selected in asking else 0
        self.select(asking[at % len(asking)])
        return True

    def toggle(self) -> None:
        """Mark the selected task, or not, and go to the next."""
        self.marked ^= {self.selected} - {""}
        self.move(1)

    def _select(self, task: str, *, by_person: bool) -> None:
        if task != self.selected:
            self.selected = task
            self.post_message(self.Selected(by_person=by_person))

    def on_click(self, event: events.Click) -> None:
        """Of Textual."""
        at = event.y + int(self.scroll_offset.y)
        if 0 <= at < len(self._lines) and (row := self._lines[at].task) is not None:
            self.select(row.id)
            if event.chain == 2:
                self.post_message(self.Opened())

    # Painting ---------------------------------------------------------------------------------------------------------------------

    def repaint(self) -> None:
        """Refresh the lines in sight that look different now."""
        now, top = time.time(), int(self.scroll_offset.y)
        looks = [self._look(y + top, now) for y in range(self.size.height)]
        if len(looks) != len(self._painted):
            self.refresh()
        else:
            for y, look in enumerate(looks):
                if look != self._painted[y]:
                    self.refresh_line(y + top)
        self._painted = looks

    def _look(self, at: int, now: float) -> tuple[object, ...]:
        """All that a line's paint depends on."""
        if at >= len(self._lines):
            return ()
        line = self._lines[at]
        row = line.task
        if row is None:
            return (line.text, line.section and (line.section.group, line.section.total, line.section.place))
        looks = (row.id, row.letter, row.age(now), row.title, row.says, row.id == self.selected, row.id in self.marked)
        return (*looks, line.of is None, line.is_first, self._columns())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Of Textual."""
        super().watch_scroll_y(old_value, new_value)
        self._painted = []

    def render_line(self, y: int) -> Strip:
        """Of Textual."""
        at, width = y + int(self.scroll_offset.y), self.size.width
        if at >= len(self._lines):
            texts = () if self._lines or self._crew is None else (f"nothing holds {self.words!r}; Esc shows all",) if self.words else BEGIN
            return self._finished(strip(f"\x1b[2m{cut(texts[y], width)}") if y < len(texts) else Strip([]), width)
        line = self._lines[at]
        if line.of is not None:
            said = strip(f"     \x1b[2m{cut(line.of.says, width - 5)}")
            return self._finished(said, width, selected=line.of.id == self.selected)
        if line.row is not None:
            return self._finished(self._painted_row(line, line.row, width), width, selected=line.row.id == self.selected)
        if line.section is not None:
            asks = "35;" if line.section.group is Group.NEEDS_ME else ""
            head, total = line.section.group.upper(), f"{line.section.total}  {line.section.place}".rstrip()
            return self._finished(strip(f"\x1b[{asks}1m{head}\x1b[0m \x1b[2m{cut(total, max(1, width - len(head) - 1))}"), width)
        return self._finished(strip(f"\x1b[2m{cut(line.text, width)}"), width)

    def _columns(self) -> tuple[int, int]:
        """Return the widths of the columns for words and names, each that of its longest text."""
        rows, width = self.rows(), self.size.width
        words = max((len(row.word) for row in rows), default=0)
        names = max((columns(one_line(row.view.name)) for row in rows), default=0)
        return words, min(names, max(8, min(NAME, width // 3)))

    def _painted_row(self, line: _Line, row: Row, width: int) -> Strip:
        """`*W works  lint     12s  Lint the tree  what it says`."""
        words, names = self._columns()
        name = cut(one_line(row.view.name), names)
        head = f"{'*' if row.id in self.marked else ' '}\x1b[1;{row.color}m{row.letter}\x1b[22m {row.word:<{words}}\x1b[0m "
        middle = f"{name}{' ' * (names - columns(name))} \x1b[2m{row.age(time.time()):>{AGE}}\x1b[22m "
        left = width - 5 - words - names - AGE - 1
        foremost, more = (row.says, row.title) if row.group is Group.NEEDS_ME else (row.title, row.says)
        return strip(head + middle + (_beside(row.title, "", left) if line.is_first else _beside(foremost, more, left)))

    def _finished(self, made: Strip, width: int, *, selected: bool = False) -> Strip:
        whole = made.crop(0, width).extend_cell_length(width).apply_style(self.rich_style)
        if not selected:
            return whole
        return Strip([Segment(said, (style or Style()) + Style(reverse=True, dim=False)) for said, style, _ in whole])


def _beside(one: str, other: str, room: int) -> str:
    """Two texts in so many columns; where they do not fit, the first one leaves half of them to the second, if that is worth it."""
    if room <= 0:
        return ""
    if room >= HALVED and one and other and columns(one) + 2 + columns(other) > room:
        one = cut(one, max(room // 2 - 2, room - 2 - columns(other)))
    return cut("  ".join(filter(None, (one, other))), room)


# Heading
# -------
# The figures above, and the one line below in which something is said.


SAID = 4
"""Lines for what was said last."""
LINES, LOW, NARROW = 2, 20, 60
"""Lines of figures, one of them on a screen of fewer rows; columns from which its name stands before all."""


class Heading(Widget):
    """Who is how many, what is limited and what it costs; what a person has to know first."""

    DEFAULT_CSS = "Heading { height: auto; max-height: 4; }"

    def __init__(self) -> None:
        super().__init__()
        self._crew: Crew | None = None

    def show(self, crew: Crew) -> None:
        """Repaint only what changed."""
        before, self._crew = self._crew, crew
        if before is None or _height(before) != _height(crew):
            self.refresh(layout=True)
        elif _said(before) != _said(crew):
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - of Textual
        """Of Textual."""
        return len(self._lines(width))

    def render(self) -> Text:
        """Of Textual."""
        return Text("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> list[Text]:
        if self._crew is None:
            return [Text("looking ...", "dim")]
        room = 1 if self.app.size.height < LOW else LINES
        lines = [_tally(self._crew, width), *_wrapped(self._crew.facts, width)[:room]]
        return [*lines, *(Text(cut(f"! {trouble}", width), "bold red") for trouble in self._crew.troubles[:1])]


def _height(crew: Crew) -> tuple[bool, int]:
    return bool(crew.troubles), len(crew.facts)


def _said(crew: Crew) -> object:
    return crew.facts, crew.troubles, [(section.group, section.total) for section in crew.sections]


def _tally(crew: Crew, width: int) -> Text:
    """`nightcrew  2 needs me  5 working  ...`, who needs a person in colour; less of it on a narrow screen."""
    made = Text().append("nightcrew", "bold") if width >= NARROW else Text()
    for section in crew.sections:
        if section.total:
            style = "bold magenta" if section.group is Group.NEEDS_ME else ""
            made.append("  " if made.plain else "").append(f"{section.total} {section.group}", style)
    made.truncate(width, overflow="ellipsis")
    return made


def _wrapped(facts: tuple[Fact, ...], width: int) -> list[Text]:
    """The figures on as many lines as they need."""
    lines, used = [Text()], 0
    for fact in facts:
        wide = columns(fact.name) + 1 + columns(fact.value)
        if used and used + 3 + wide > width:
            lines.append(Text())
            used = 0
        if used:
            lines[-1].append("   ")
            used += 3
        lines[-1].append(f"{fact.name} ", "dim").append(f"{'! ' if fact.bad else ''}{fact.value}", "bold red" if fact.bad else "")
        used += wide
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines if used else []


class Footing(Widget):
    """What was said last, whole where four lines are enough for it, or the keys."""

    DEFAULT_CSS = "Footing { height: auto; max-height: 4; dock: bottom; }"
    KEYS = "? help  enter attach  w who needs me  a/d answer  s send  n new  f go on  t take  p pause  k kill  r retry  / filter  q leave"

    def __init__(self) -> None:
        super().__init__()
        self._said, self._bad, self._alert = "", False, ""

    def say(self, text: str, *, bad: bool = False) -> None:
        """Until something else is said, or a key clears it."""
        self._said, self._bad, self._alert = text, bad, ""
        self.refresh(layout=True)

    def alert(self, text: str) -> None:
        """Below what was said of an act, which it leaves to be read: it comes by itself."""
        self._alert = text
        self.refresh(layout=True)

    def clear(self) -> None:
        """Show the keys again."""
        if self._said or self._alert:
            self.say("")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - of Textual
        """Of Textual."""
        return len(self._lines(width))

    def render(self) -> Text:
        """Of Textual."""
        lines = self._lines(self.size.width or 80)
        return Text("\n", no_wrap=True).join(Text(text, style) for text, style in lines)

    def _lines(self, width: int) -> list[tuple[str, str]]:
        """Each with its style."""
        if not self._said and not self._alert:
            return [(cut(self.KEYS, width), "dim")]
        alert = [(cut(self._alert, width), "bold")] if self._said and self._alert else []
        found, room = wrapped(self._said or self._alert, width), SAID - len(alert)
        found = [*found[: room - 1], cut(" ".join(found[room - 1 :]), width)] if len(found) > room else found
        return [*((line, "bold red" if self._bad else "bold") for line in found), *alert]


def wrapped(text: str, width: int) -> list[str]:
    """On lines of at most so many columns, broken between words where that is possible."""
    lines, room = [""], max(2, width)
    for word in text.split(" "):
        whole = f"{lines[-1]} {word}" if lines[-1] else word
        if columns(whole) <= room:
            lines[-1] = whole
            continue
        lines += [""] if lines[-1] else []
        for char in word:
            if columns(lines[-1] + char) > room:
                lines.append("")
            lines[-1] += char
    return lines


# Page
# ----
# Lines on the right: a screen, a diff, a log. They are parsed when they come into sight, and kept.


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

    def show(self, key: str, text: ProtocolsText) -> None:
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
            self._strips[at] = strip(self._lines[at])
        return self._strips[at].crop(0, width).extend_cell_length(width).apply_style(self._base())

    def _base(self) -> Style:
        return self.rich_style


def _trimmed(lines: Sequence[str]) -> Sequence[str]:
    """Without the empty lines at its end."""
    last = len(lines)
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    return lines[:last]


# Tabs
# ----
# Above the page: whose it is, and which of the six.


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
