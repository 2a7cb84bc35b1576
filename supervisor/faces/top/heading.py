"""The figures above, and the one line below in which something is said."""

from __future__ import annotations

from rich.text import Text
from textual.geometry import Size
from textual.widget import Widget

from supervisor.faces.crew import Crew, Fact, Group
from supervisor.faces.status import columns, cut

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
