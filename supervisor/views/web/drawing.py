"""The pages of rows as trees of elements: the browser makes nodes of them, and every text in them stays a text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote, urlencode

from supervisor.kernel.format import UNKNOWN

# Elements
# --------


class Element(list[Any]):
    """`[tag, attributes, *children]`; a child is an element or a text. Only this module makes them, so that no list among data becomes an
    element. `static/show.js` knows the tags `table`, `time`, `command` and `load`, and hands the others to the browser."""


Child = Element | str | int | None
Asked = Mapping[str, str]


def el(tag: str, *children: Child, **attributes: object) -> Element:
    """An element. Empty children and attributes are left out; `class_` is the attribute `class`, `data_key` is `data-key`."""
    kept = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value not in (None, "", False)}
    return Element([tag, kept, *(one if isinstance(one, Element) else str(one) for one in children if one is not None and one != "")])


def page(title: str, *nodes: Element | None) -> dict[str, Any]:
    """The answer to a page: its heading, and what stands below it."""
    return {"title": title, "nodes": [node for node in nodes if node is not None]}


def section(title: str, *nodes: Child) -> Element:
    return el("section", el("h2", title), *nodes)


def note(*children: Child) -> Element:
    return el("p", *children, class_="note")


def trouble(text: str) -> Element:
    return el("p", text, class_="trouble")


def span(kind: str, *children: Child) -> Element:
    return el("span", *children, class_=kind)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]]) -> Element:
    """A head that begins with `#` is of numbers, one with `~` of long texts. A cell without a value is shown as unknown."""
    return Element(["table", {}, caption, list(heads), [[_cell(cell) for cell in row] for row in rows]])


def _cell(cell: Child) -> Element | str | None:
    if cell in (None, "", UNKNOWN):
        return None
    return cell if isinstance(cell, Element) else str(cell)


def moment(at: float | str | None) -> Element | None:
    """A time, which the browser shows by its own clock; `at` is RFC 3339, or seconds since 1970."""
    return el("time", at=at) if at else None


def mark(letter: str, word: str, ink: str = "bad") -> Element:
    """What a person has to see: its letter, and its word."""
    return span(f"state {ink}", el("b", letter, aria_hidden="true"), f" {word}")


_LETTERS = {
    "D": "done landed passed ended closed read",
    "F": "failed ejected clashes lost bounced",
    "C": "cancelled unwanted dropped",
    "E": "expired",
    "S": "skipped contained",
    "!": "quarantined stopped open",
    "W": "running repairing staged moving making closing given",
    "q": "ready wanted new accepted",
    "a": "waiting",
    "p": "paused",
    "l": "parked",
    "–": "empty",
    "?": "half-open",
}
_OF_WORDS = {word: letter for letter, words in _LETTERS.items() for word in words.split()} | {"nothing new": "S"}
_INKS = {"D": "good", "F": "bad", "!": "bad", "?": "ask", "W": "work", "q": "wait", "a": "wait", "l": "wait", "p": "wait"}


def state(word: str) -> Element:
    """A state as its letter and its word."""
    letter = _OF_WORDS.get(word, "·")
    return mark(letter, word, _INKS.get(letter, "off"))


def command(text: str) -> Element:
    """A command to type, with a button that copies it."""
    return el("command", text)


def commands(texts: Iterable[str]) -> Element | None:
    found = [command(text) for text in texts]
    return el("div", *found, class_="commands") if found else None


def tiles(facts: Iterable[tuple[str, Child]]) -> Element:
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="tiles")


def link(href: str, text: Child, key: str = "", **attributes: object) -> Element:
    return el("a", text, href=href, data_key=key, **attributes)


def agent(task: str, text: str = "") -> Element:
    """A link to the page of a task."""
    return link(f"/agent/{quote(task)}", text or task, task)


def foreign(text: str, label: str) -> Element:
    """Words that others wrote."""
    return el("pre", text, class_="foreign", tabindex="0", role="region", aria_label=label)


def folded(summary: str, key: str, *nodes: Child) -> Element:
    return el("details", el("summary", summary), *nodes, data_key=key)


def address(asked: Asked, **changes: object) -> str:
    """The same page with these words of its address changed; a word that is empty is left out."""
    words = {name: value for name, value in {**asked, **changes}.items() if value not in (None, "") and name not in ("seen", "run")}
    return f"?{urlencode(words)}"


def pager(asked: Asked, words: str, **older: object) -> Element | None:
    """A link to the page of older rows, where there are any, and one back to the first."""
    links = [link(address(asked, **dict.fromkeys(older)), "First page", "first")] if any(asked.get(name) for name in older) else []
    links += [link(address(asked, **older), words, "older", rel="next")] if None not in older.values() else []
    return el("nav", *links, class_="pager", aria_label="Pages of rows") if links else None


def tabs(label: str, *some: tuple[str, str, bool]) -> Element:
    """Links to the kinds of rows that a page has: address, text, and whether it is shown."""
    links = [link(href, text, text, aria_current="true" if here else None) for href, text, here in some]
    return el("nav", *(one for each in links for one in (each, " ")), class_="choice", aria_label=label)


def choice(asked: Asked, label: str, name: str, options: Sequence[tuple[str, str]], chosen: str) -> Element | None:
    """Let a person choose the word `name` of the address; nothing where there is one option. An option is a value and a text."""
    if len(options) < 2:
        return None
    left = dict.fromkeys(("before", "after", "path", "thread"))
    made = [el("option", text, value=address(asked, **left, **{name: value}), selected=value == chosen) for value, text in options]
    return el("p", el("label", f"{label} ", el("select", *made, data_key=name)), class_="choice")


# Charts
# ------


STEPS_SHOWN = 20
"""Newest steps in the table of a chart."""
_GRID = 2
"""Lines above the bottom one."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, or a part of its pile."""

    name: str
    letter: str
    ink: str
    """The name of a colour."""
    values: Sequence[float | None]
    """One for each step; None: nobody knows."""
    kind: str = "line"
    """line, dashed or dotted; or pile: it lies on the piles before it; or reserved or outside: a pile that is hatched."""

    @property
    def is_pile(self) -> bool:
        return self.kind in ("pile", "reserved", "outside")


@dataclass(frozen=True, slots=True)
class Band:
    """A time that is marked: when a breaker was not closed."""

    begin: float
    end: float | None
    """None: it lasts."""
    letter: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The axes of a chart."""

    ends: Sequence[float]
    """The end of each step, seconds since 1970."""
    words: Callable[[float | None], str]
    least: float = 1.0
    """The top of the axis is at least this."""
    whole: float | None = None
    """The top of the axis, where it is always the same."""

    def x(self, at: float) -> float:
        return 1000 * (at - self.ends[0]) / (self.ends[-1] - self.ends[0])

    def top(self, peak: float) -> float:
        return self.whole or max(self.least, 1.08 * peak)


def chart(title: str, scale: Scale, series: Sequence[Series], bands: Sequence[Band] = (), *, nothing: str) -> Element:
    """A picture, what each letter means with its newest value, and the newest steps as a table; `nothing` where there is nothing to see."""
    known = any(value is not None and (scale.whole or value) for one in series for value in one.values)
    if not known or len(scale.ends) < 2:
        return el("figure", el("figcaption", title), note(nothing), class_="chart")
    newest = range(len(scale.ends) - 1, max(-1, len(scale.ends) - 1 - STEPS_SHOWN), -1)
    rows = [[moment(scale.ends[at]), *(scale.words(one.values[at]) for one in series)] for at in newest]
    heads = ["Until", *(f"#{one.letter} {one.name}" for one in series)]
    figures = table(f"{title}: the newest {len(rows)} steps", heads, rows)
    return el(
        "figure",
        el("figcaption", title),
        el("svg", *_picture(scale, list(_stacked(series)), bands), class_="plot", role="img", aria_label=title),
        el("p", moment(scale.ends[0]), moment(scale.ends[-1]), class_="axis"),
        el("ul", *(_explained(one, scale) for one in series), class_="legend"),
        el("details", el("summary", "The same as a table"), figures, data_key=f"table {title}", class_="figures"),
        class_="chart",
    )


def _stacked(series: Sequence[Series]) -> Iterator[tuple[Series, list[float | None], list[float]]]:
    """Each series with where it is drawn: its upper edge, and for a pile the edge below."""
    base = [0.0] * max((len(one.values) for one in series), default=0)
    for one in series:
        if one.is_pile:
            edge = [below + (value or 0.0) for below, value in zip(base, one.values, strict=True)]
            yield one, list(edge), base
            base = edge
        else:
            yield one, list(one.values), []


def _picture(scale: Scale, drawn: Sequence[tuple[Series, list[float | None], list[float]]], bands: Iterable[Band]) -> Iterator[Element]:
    peak = max((value for _, edge, _ in drawn for value in edge if value is not None), default=0.0)
    top = scale.top(peak)
    for band in bands:
        begin, end = max(0.0, scale.x(band.begin)), 1000.0 if band.end is None else scale.x(band.end)
        if end > begin:
            yield el("rect", x=f"{begin / 10:.2f}%", width=f"{(end - begin) / 10:.2f}%", height="100%", class_="band")
            yield el("text", band.letter, x=f"{begin / 10:.2f}%", y="12")
    paths = [_path(scale, top, one, edge, base) for one, edge, base in drawn if any(value is not None for value in one.values)]
    yield el("svg", *paths, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%")
    for number in range(_GRID + 1):
        part = f"{100 - 100 * number / _GRID:.0f}%"
        yield el("line", x2="100%", y1=part, y2=part)
        if number:
            yield el("text", scale.words(top * number / _GRID), x="0", y=part, dy="12")
    for one, edge, base in drawn:
        yield from _letter(scale, top, one, edge, base)


def _path(scale: Scale, top: float, one: Series, edge: Sequence[float | None], base: Sequence[float]) -> Element:
    def point(at: int, value: float) -> str:
        return f"{scale.x(scale.ends[at]):.1f} {1000 - 1000 * value / top:.1f}"

    if base:
        there = [point(at, value or 0.0) for at, value in enumerate(edge)]
        back = [point(at, value) for at, value in reversed(list(enumerate(base)))]
        way = f"M{'L'.join([*there, *back])}Z"
    else:
        known = [(at, value) for at, value in enumerate(edge) if value is not None]
        joined = {at for (before, _), (at, _) in pairwise(known) if at == before + 1}
        way = "".join(f"{'L' if at in joined else 'M'}{point(at, value)}{'' if at in joined else 'h0'}" for at, value in known)
    return el("path", el("title", one.name), d=way, class_=f"{one.kind} {one.ink}")


def _letter(scale: Scale, top: float, one: Series, edge: Sequence[float | None], base: Sequence[float]) -> Iterator[Element]:
    """A pile's letter where it is highest, a line's at its end."""
    known = [at for at, value in enumerate(one.values) if value is not None]
    if not known:
        return
    at = max(known, key=lambda place: one.values[place] or 0.0) if base else known[-1]
    height, value = edge[at] or 0.0, one.values[at] or 0.0
    if not base or value >= top / 12:
        middle = 1 - (height - value / 2 if base else height) / top
        x = min(98.0, max(1.0, scale.x(scale.ends[at]) / 10))
        yield el("text", one.letter, x=f"{x:.2f}%", y=f"{100 * middle:.2f}%", dy="4" if base else "-4", class_="of")


def _explained(one: Series, scale: Scale) -> Element:
    value = next((value for value in reversed(one.values) if value is not None), None)
    swatch = el("b", one.letter, class_=f"swatch {one.kind} {one.ink}", aria_hidden="true")
    return el("li", swatch, f" {one.name} ", span("value", scale.words(value)))
