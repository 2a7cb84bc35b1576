"""One model of a report, and its two renderings: a page of HTML and GitHub's Markdown.

A builder puts texts into a Document as agents, models and repositories wrote them. The renderers make them harmless: control characters and
direction overrides are shown as escapes, HTML is escaped by the template, and a word that Markdown could act on becomes code.

The page is one file that opens from a disk without a network. Its policy allows exactly the script and the style sheet that are in it, by
their hashes. Without scripts it shows everything; with them it has buttons that copy commands, and long tables can be searched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from supervisor.host.files import atomic_write, private_dir
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import UNKNOWN, duration, many

MARKDOWN_ROWS = 50
"""Rows of a table, or items of a list, in Markdown. The page has all."""
PAGE_ROWS = 60
"""Rows and items that the page shows unfolded."""
NARROW_ROWS = 500
"""A longer table is not turned into cards on a phone."""


# The model
# ---------


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line."""

    text: str
    kind: str
    """code, command (which has a button that copies it), strong, state, or a tone: good, bad, warn, muted, high, medium, low."""


Line = str | Span | Sequence[str | Span]
"""One line. In a str, what stands between two `backticks` is code."""


def code(text: str) -> Span:
    return Span(text, "code")


def command(text: str) -> Span:
    return Span(text, "command")


def strong(text: str) -> Span:
    return Span(text, "strong")


def state(text: str) -> Span:
    """The state of a task or an attempt, with its sign."""
    return Span(text, "state")


def spaced(parts: Iterable[str | Span]) -> list[str | Span]:
    """The parts as one line, with a space between two."""
    return [piece for part in parts for piece in (" ", part)][1:]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    line: Line
    kind: str = ""
    """lead, note, head (of a card), ask (what an agent asks or said), or empty."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list: each item is a line, or a card of several blocks."""

    items: Sequence[Line | Card]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """A list's item of several blocks. In Markdown it is one line: its texts, joined by semicolons."""

    blocks: Sequence[Text | Patch]
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A head that ends with a colon is a column of figures. A cell that is empty, or UNKNOWN, is shown as unknown."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Line]]
    summary: str = ""
    """The table is folded below this text."""
    searchable: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Names and values side by side."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Patch:
    """Lines of a diff, or of output. Not in Markdown."""

    lines: Sequence[str]
    title: str = ""
    """The lines are folded below this text."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a picture."""

    name: str
    spans: Sequence[tuple[float, float, str, str]]
    """Begin, end, kind, and what it is in words."""
    is_bad: bool = False
    lost: Sequence[float] = ()
    """Where an attempt ended that did not end well."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Rows of horizontal spans on one scale, from 0 to `length`. Not in Markdown: a table says the same."""

    rows: Sequence[Lane]
    length: float
    legend: Sequence[tuple[str, str]] = ()
    """Kinds of spans, in words."""
    ticks: Sequence[tuple[float, str]] = ()
    """Where on the scale, in percent, is which label."""
    behind: Sequence[tuple[float, float]] = ()
    """Spans that go through all rows."""


Block = Text | Items | Table | Figures | Patch | Lanes


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. One without blocks is left out."""

    id: str
    title: str
    blocks: Sequence[Block]
    nav: str = ""
    """Its name among the links at the top; empty for none."""
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, honest before it is kind."""

    kind: str
    """good, part, bad or open (still running)."""
    sign: str
    word: str
    sentence: str

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.word}. {self.sentence}"


@dataclass(frozen=True, slots=True)
class Document:
    brand: str
    title: str
    verdict: Verdict
    """`word` ends with its punctuation."""
    meta: Sequence[Line]
    sections: Sequence[Section]
    footer: Sequence[Line]
    notes: Sequence[Line] = field(default_factory=tuple)
    """Below the verdict."""


def ticks(length_s: float, most: int = 6) -> list[tuple[float, str]]:
    """Marks of a scale of seconds, in percent, each with its label."""
    step = next((step for step in STEPS_S if length_s / step <= most), length_s)
    return [(round(100 * step * number / length_s, 2), duration(step * number)) for number in range(int(length_s / step) + 1)]


STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400)
"""Steps of a scale that people read easily."""


# Lines
# -----


def spans(line: Line) -> list[Span]:
    """A line's pieces, harmless to look at. Plain text has the kind "", what stands between two backticks in it is code."""
    found = []
    for part in [line] if isinstance(line, str | Span) else line:
        if isinstance(part, Span):
            found.append(Span(_clean(part.text), part.kind))
        else:
            found += [Span(text, "code" if is_code else "") for is_code, text in pieces(_clean(part))]
    return found


def _clean(text: str) -> str:
    return text if text.isprintable() else one_line(text)


def pieces(text: str) -> list[tuple[bool, str]]:
    """Text as (is it code, part): what stands between two `backticks` is code; an odd one is a character like any other."""
    split = text.split("`")
    if len(split) % 2 == 0:
        split[-2:] = ["`".join(split[-2:])]
    return [(bool(index % 2), part) for index, part in enumerate(split) if part]


def plain(line: Line) -> str:
    """A line's text alone."""
    return "".join(span.text for span in spans(line))


# HTML
# ----

_HERE = Path(__file__).parent


def render_html(document: Document) -> str:
    """The page, with no reference to any other file."""
    script, style = script_and_style()
    shown = [section for section in document.sections if section.blocks]
    page = _environment().get_template("document.html.j2")
    return page.render(document=document, sections=shown, script=script, style=style, policy=policy())


@cache
def script_and_style() -> tuple[str, str]:
    script, *styles = ((_HERE / name).read_text("utf-8") for name in ("document.js", "base.css", "document.css"))
    return script, "".join(styles)


@cache
def policy() -> str:
    """The Content-Security-Policy of every page that `render_html` makes."""
    script, style = map(_hash, script_and_style())
    return f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    made = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"spans": spans, "plain": plain, "clean": _clean, "many": many}
    made.globals |= {"PAGE_ROWS": PAGE_ROWS, "NARROW_ROWS": NARROW_ROWS, "UNKNOWN": UNKNOWN}
    made.tests |= {"card": lambda item: isinstance(item, Card)}
    made.filters["type"] = lambda block: type(block).__name__
    return made


# Markdown
# --------


def render_markdown(document: Document) -> str:
    """GitHub's Markdown, ending with a newline."""
    verdict = document.verdict
    parts = [
        f"# {markdown(document.title)}",
        f"**{verdict.sign} {verdict.word}** {markdown(verdict.sentence)}",
        *map(markdown, document.notes),
        ", ".join(map(markdown, document.meta)),
    ]
    for section in document.sections:
        if section.blocks:
            parts += [f"## {markdown(section.title)}", *filter(None, map(_block, section.blocks))]
    return "\n\n".join([*parts, "---", *map(markdown, document.footer)]) + "\n"


def _block(block: Block) -> str:
    match block:
        case Text(line=line):
            return markdown(line)
        case Items(items=items, ordered=ordered):
            marks = [f"{number}." if ordered else "-" for number in range(1, len(items) + 1)]
            listed = [f"{mark} {_item(item)}" for mark, item in zip(marks, items[:MARKDOWN_ROWS], strict=False)]
            return "\n".join([*listed, *([f"- {left}"] if (left := _left(items)) else [])])
        case Figures(pairs=pairs):
            return _table(["", ""], [[name, value] for name, value in pairs])
        case Table(summary=summary) if summary:
            return f"<details><summary>{_html(summary)}</summary>\n\n{_rows(block)}\n\n</details>"
        case Table():
            return _rows(block)
        case _:
            return ""


def _html(text: str) -> str:
    return _clean(text).replace("&", "&amp;").replace("<", "&lt;")


def _rows(table: Table) -> str:
    left = _left(table.rows)
    return _table(table.heads, table.rows[:MARKDOWN_ROWS]) + (f"\n\n{left}" if left else "")


def _left(rows: Sequence[object]) -> str:
    return f"and {len(rows) - MARKDOWN_ROWS:,} more, in the page" if len(rows) > MARKDOWN_ROWS else ""


def _item(item: Line | Card) -> str:
    if not isinstance(item, Card):
        return markdown(item)
    return "; ".join(filter(None, (markdown(block.line) for block in item.blocks if isinstance(block, Text))))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Line]]) -> str:
    marks = ["--:" if head.endswith(":") else "---" for head in heads]
    cells = [[markdown(head.rstrip(":")) for head in heads], marks, *([markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cell or UNKNOWN for cell in row)} |" for row in cells)


def markdown(line: Line) -> str:
    """A line in Markdown, on which no text acts."""
    found = ""
    for span in spans(line):
        said = _span(span)
        between = " " if found.endswith("`") and said.startswith("`") else ""  # two spans without a space would be read as neither
        found += between + said
    return " ".join(found.split())


def _span(span: Span) -> str:
    match span.kind:
        case "code" | "command":
            return code_span(span.text)
        case "":
            ends = (" " * span.text[:1].isspace(), " " * span.text[-1:].isspace())
            return f"{ends[0]}{words(span.text)}{ends[1]}"
        case "muted" | "state":
            return words(span.text)
        case _:
            said = words(span.text)
            return f"**{said}**" if said else ""


_LETTER = r"(?:[^\W_]|[^\x00-\x7f])"
_INSIDE = rf"""{_LETTER}|(?<=[^\W_])_(?=[^\W_])|[.,;:()"'/=%+?!{{}}^-](?!//)|&(?!\#|\w+;)|\#(?!\d)"""
_PLAIN_WORD = re.compile(rf"""(?!\S*www\.)(?!\S*GH-\d)[("'{{]*{_LETTER}(?:{_INSIDE})*""", re.IGNORECASE)
"""A word without ASCII characters that Markdown or GitHub may act on: an underscore between letters and an ampersand that begins no entity
are text. GitHub looks for @mentions, issue numbers and links even in text that a backslash has escaped, but never inside code."""
_BARE = re.compile(r"""[=+/%<&-]|[.,;:()"'!?]+""")
_OPENS_A_BLOCK = re.compile(r"[-+]|\d{1,9}[.)]")
"""Words that begin a list when they are the first of several on a line."""
_WORDS = re.compile(r"\s+|\S+")
_PLAIN_CODE = re.compile(r"[^`|]+")
_UNMARKED = frozenset(" ,;()'\"/=%+?!-")
"""ASCII characters without a meaning inside a line."""


def words(text: str) -> str:
    """Running text of one line: a word that could be markup becomes code."""
    found: list[tuple[bool, str]] = []
    for word in _WORDS.findall(text):
        is_code = not word.isspace() and not _is_plain(word, is_first=not found and word != text)
        if is_code and found and found[-1][0]:  # two spans without a space between them would be read as neither
            found[-1] = (True, found[-1][1] + word)
        else:
            found.append((is_code, word))
    return "".join(code_span(word) if is_code else " " if word.isspace() else word for is_code, word in found).strip()


def _is_plain(word: str, *, is_first: bool) -> bool:
    if is_first and _OPENS_A_BLOCK.fullmatch(word):
        return False
    return bool(_BARE.fullmatch(word) or _PLAIN_WORD.fullmatch(word))


def code_span(value: str) -> str:
    """A code span, safe inside a table too. It cannot hold a backtick or a bar there: text with one becomes a `<code>` element whose marks
    are entities."""
    value = " ".join(value.split())
    if not value:
        return ""
    if _PLAIN_CODE.fullmatch(value):
        return f"`{value}`"
    shown = (char if char.isalnum() or not char.isascii() or char in _UNMARKED else f"&#{ord(char)};" for char in value)
    return f"<code>{''.join(shown)}</code>"


# Files
# -----


def as_json(shape: Mapping[str, Any]) -> str:
    """The JSON of a report, in ASCII: what is hostile to a terminal is an escape there."""
    return json.dumps(shape, indent=1, allow_nan=False) + "\n"


def write(document: Document, shape: Mapping[str, Any], directory: Path, stem: str) -> Path:
    """Write STEM.json, STEM.md and STEM.html into `directory` (made, private, when missing), each whole or not at all and readable by its
    owner alone. The JSON is the first: the others can be made again from it. Returns the page. Raises DiskFull, ToolFailed or Refused."""
    if not directory.exists():
        private_dir(directory)
    for ending, text in (("json", as_json(shape)), ("md", render_markdown(document)), ("html", render_html(document))):
        atomic_write(directory / f"{stem}.{ending}", text.encode())
    return directory / f"{stem}.html"
