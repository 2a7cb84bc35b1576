"""One note: front matter that says what it is, and a body that people wrote.

    ---
    title: How the parser is tested     # a comment stays
    tags: [parser, tests]
    owner: Ann                          # a key of a person's own stays too
    ---
    The body, markdown.

Reading is lenient: a person's file is never refused for its form. Most front matter is lines of `key: value`, which are read here, since
YAML takes a millisecond a note and an index reads ten thousand; the rest is read as YAML 1.2 with no aliases and a bounded depth, and line
by line where it is one of many notes (`listed`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory import pages
from memory.plain_text import stripped
from supervisor.core.errors import UsageError

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode

FRONT_MAX = 4 * 2**10
"""Characters of front matter."""
DEPTH_MAX = 20
MARKS_MAX = 200
"""Brackets, commas, and lines in front matter that is read as YAML: that takes up to 0.1 ms for each."""
TITLE_MAX = 200
TEXTS = ("id", "kind", "title", "agent", "task", "supersedes", "source")
MOMENTS = ("created", "updated", "expires")
LISTS = ("paths", "tags")
KEYS = ("id", "kind", "title", "agent", "task", *MOMENTS, *LISTS, "confidence", "supersedes", "source")
"""Those that mean something, in the order in which new ones are written."""
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(?P<front>(?:[^\n]*\n)*?)---[ \t]*(?:\r?\n|\Z)")
_LINE = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*):(?:[ \t](?P<value>.*))?\Z")
_KEY = re.compile(r"^(?P<key>[A-Za-z_][A-Za-z0-9_-]*):.*\n", re.MULTILINE)
_NEVER = "\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff"  # not in YAML, or a line break there
_PLAIN = re.compile(rf"[\w./*+(~][^{_NEVER}:#\[\]{{}},&!|>'\"%@`]*\Z")
_PLAIN_IN_BLOCK = re.compile(rf"[\w./+(](?:[^{_NEVER}:#]|:(?=\S)|#(?<=\S#))*\Z")
_FLOW = re.compile(r"\[(?P<items>[^\[\]{}\"'#&!|>%@`:\\]*)\]\Z")
_ODD_BEGIN = tuple("|>&*!{")
"""Of a value that goes on in the next lines, or is none that is on its line."""
_MARKS = re.compile(r"[\[\]{},\n\r]")
_QUOTED = re.compile(rf"'(?P<single>[^'{_NEVER}]*)'\Z|\"(?P<double>[^\"\\{_NEVER}]*)\"\Z")


@dataclass(frozen=True, slots=True)
class Note:
    """`meta` has the keys that are there and can be read: of KEYS, texts, moments as seconds since 1970, lists as tuples of text, and
    `confidence` as a number from 0 to 1. Keys of a person's own are as YAML has them, their scalars as text. `title` is always there.
    `broken` says what could not be read."""

    meta: Mapping[str, object]
    body: str

    @property
    def title(self) -> str:
        return str(self.meta["title"])


def parse(text: str) -> Note:
    """Read a file. Never raises: what cannot be read is said in `broken`."""
    return _note(text, _read)


def listed(text: str) -> Mapping[str, object]:
    """The `meta` of one of many notes. As `parse`, but for front matter that is more than lines of `key: value`: of that the keys of KEYS
    are read whose values are on their line, or lists of such, 100 times faster. Whether it is YAML is not known then."""
    return _note(text, _read_lines).meta


def _note(text: str, read: Callable[[str], dict[str, Any]]) -> Note:
    found = _FRONT.match(text)
    if found is None:
        broken = {"broken": "its front matter has no end"} if text.lstrip("\ufeff").startswith(("---\n", "---\r\n")) else {}
        return Note(MappingProxyType({"title": _first_line(text), **broken}), text)
    body = text[found.end() :]
    try:
        front = found["front"]
        if len(front) > FRONT_MAX:
            raise _BrokenError(f"its front matter has more than {FRONT_MAX} characters")
        meta = _checked(read(front))
    except _BrokenError as error:
        meta = {"broken": str(error)}
    meta.setdefault("title", _first_line(body))
    return Note(MappingProxyType(meta), body)


def _first_line(text: str) -> str:
    line = next((line for line in text[:4000].splitlines() if line.strip(" \t#\ufeff-")), "")
    return stripped(line).strip(" \t#\ufeff")[:TITLE_MAX]


class _BrokenError(Exception):
    """Front matter that cannot be read."""


def _read(front: str) -> dict[str, Any]:
    simple = _simple(front)
    return _as_yaml(front) if simple is None else simple


def _read_lines(front: str) -> dict[str, Any]:
    if (simple := _simple(front)) is not None:
        return simple
    _check_work(front)
    known = {key: value for key, value in pages.keys(front).items() if key in KEYS and value[:1] not in _ODD_BEGIN}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in known.items()}


def _simple(front: str) -> dict[str, Any] | None:
    """Lines of `key: value`; None for whatever could mean something else in YAML."""
    found: dict[str, Any] = {}
    for line in front.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line.removesuffix("\r").rstrip(" \t"))
        value = _scalar((match["value"] or "").lstrip(" \t")) if match is not None else None
        if match is None or value is None or match["key"] in found:
            return None
        found[match["key"]] = value
    return found


def _scalar(text: str) -> str | list[str] | None:
    if not text or _PLAIN.match(text) or _PLAIN_IN_BLOCK.match(text):
        return text
    if (quoted := _QUOTED.match(text)) is not None:
        return quoted["single"] if quoted["single"] is not None else quoted["double"]
    if (flow := _FLOW.match(text)) is not None:
        items = [item.strip() for item in flow["items"].split(",")]
        if items == [""]:
            return []
        return items if all(map(_PLAIN.match, items)) else None
    return None


def _as_yaml(front: str) -> dict[str, Any]:
    from ruamel.yaml.nodes import MappingNode

    root = _composed(front)
    if root is None:
        return {}
    if not isinstance(root, MappingNode):
        raise _BrokenError("its front matter is not a list of keys")
    value = _value(root)
    return value if isinstance(value, dict) else {}


def _composed(front: str) -> MappingNode | Any:
    """The nodes of YAML, with their places. Raises _BrokenError, also for aliases, tags and what is too deep."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    _check_work(front)
    try:
        _check_depth(front)
        return YAML(typ="rt", pure=True).compose(front)
    except YAMLError as error:
        said = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark is not None else ""
        raise _BrokenError(f"its front matter is not YAML: {where}{stripped(said)[:200]}") from None
    except (ValueError, RecursionError, AssertionError, LookupError, TypeError, AttributeError) as error:  # what ruamel raises at odd input
        raise _BrokenError(f"its front matter is not YAML: {type(error).__name__}") from None


def _check_work(front: str) -> None:
    """Raises _BrokenError for what a reader of YAML would take long to read or to refuse. Brackets in quotes count as well."""
    depth = 0
    marks = _MARKS.findall(front)
    for mark in marks:
        depth += (mark in "[{") - (mark in "]}")
        if depth > DEPTH_MAX:
            raise _BrokenError("its front matter is too deep")
    if len(marks) > MARKS_MAX:
        raise _BrokenError(f"its front matter has more than {MARKS_MAX} brackets, commas and lines, and is not one key a line")


def _check_depth(front: str) -> None:
    from ruamel.yaml import YAML
    from ruamel.yaml.tokens import (
        AliasToken,
        AnchorToken,
        BlockEndToken,
        BlockMappingStartToken,
        BlockSequenceStartToken,
        FlowMappingEndToken,
        FlowMappingStartToken,
        FlowSequenceEndToken,
        FlowSequenceStartToken,
        TagToken,
    )

    depth = 0
    for token in YAML(typ="rt", pure=True).scan(front):
        if isinstance(token, AliasToken | AnchorToken | TagToken):
            raise _BrokenError("its front matter has an alias, an anchor or a tag")
        if isinstance(token, BlockMappingStartToken | BlockSequenceStartToken | FlowMappingStartToken | FlowSequenceStartToken):
            depth += 1
        elif isinstance(token, BlockEndToken | FlowMappingEndToken | FlowSequenceEndToken):
            depth -= 1
        if depth > DEPTH_MAX:
            raise _BrokenError("its front matter is too deep")


def _value(node: Any) -> Any:
    from ruamel.yaml.nodes import ScalarNode, SequenceNode

    if isinstance(node, ScalarNode):
        return str(node.value)
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise _BrokenError("a key of its front matter is not text")
        if key.value in found:
            raise _BrokenError(f"its front matter has the key {str(key.value)[:40]} twice")
        found[str(key.value)] = _value(value)
    return found


def _checked(found: dict[str, Any]) -> dict[str, object]:
    """Known keys as what they are; one that cannot be read is left out, and said."""
    meta: dict[str, object] = {}
    wrong: list[str] = []
    for key, value in found.items():
        if value in ("", "~", "null") or key == "broken":
            continue
        read = _known(key, value)
        if read is None:
            wrong.append(key)
        else:
            meta[key] = read
    if wrong:
        meta["broken"] = f"cannot read {', '.join(wrong)}"
    return meta


def _known(key: str, value: Any) -> object | None:
    if key in TEXTS:
        return stripped(value)[:TITLE_MAX] if isinstance(value, str) else None
    if key in MOMENTS:
        return moment(value) if isinstance(value, str) else None
    if key in LISTS:
        items = [value] if isinstance(value, str) else value
        return tuple(map(stripped, items)) if isinstance(items, list) and all(isinstance(item, str) for item in items) else None
    if key == "confidence":
        return _share(value)
    return value  # type: ignore[no-any-return]  # a person's own


def _share(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number <= 1 else None


def moment(text: str) -> float | None:
    """A date, or a date and a time of day (UTC when it names no zone), as seconds since 1970; None for anything else."""
    try:
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def moment_text(at: float) -> str:
    """As it is written into front matter."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def fresh_id(at: float, seed: str) -> str:
    """26 characters that sort by time, like a ULID; the last 16 are a digest of `seed`."""
    number = int(at * 1000) << 80 | int.from_bytes(hashlib.sha256(seed.encode()).digest()[:10], "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def rewritten(text: str, **changed: object) -> str:
    """`text` with these keys of its front matter changed, added, or (None) removed; front matter is made where there is none. Values are
    text, numbers, and lists of text. Everything else stays byte for byte: other keys, comments, order, the body.

    Raises UsageError when the front matter cannot be read, or is not one key a line.
    """
    found = _FRONT.match(text)
    if found is None:
        if "broken" in parse(text).meta:
            raise _not_rewritten("it has no end")
        kept = {key: value for key, value in changed.items() if value is not None}
        return f"---\n{''.join(_line(key, kept[key], chr(10)) for key in _ordered(kept))}---\n{text}" if kept else text
    try:
        front = _changed(found["front"], changed)
    except _BrokenError as error:
        raise _not_rewritten(str(error)) from None
    return text[: found.start("front")] + front + text[found.end("front") :]


def _not_rewritten(why: str) -> UsageError:
    return UsageError(
        "cannot change the front matter of the note",
        why=why,
        kept="the note as it was",
        hint="write one key a line between two lines of ---",
    )


def _ordered(keys: Mapping[str, object]) -> list[str]:
    return sorted(keys, key=lambda key: KEYS.index(key) if key in KEYS else len(KEYS))


def _changed(front: str, changed: Mapping[str, object]) -> str:
    if len(front) > FRONT_MAX:
        raise _BrokenError(f"its front matter has more than {FRONT_MAX} characters")
    end = "\r\n" if "\r\n" in front else "\n"
    spans = _spans(front)
    for key in sorted(spans.keys() & changed.keys(), key=lambda key: -spans[key][0]):
        begin, over, comment = spans[key]
        value = changed[key]
        line = "" if value is None else _line(key, value, f"{comment}{end}")
        front = front[:begin] + line + front[over:]
    new = {key: value for key, value in changed.items() if key not in spans and value is not None}
    return front + "".join(_line(key, new[key], end) for key in _ordered(new))


def _spans(front: str) -> dict[str, tuple[int, int, str]]:
    """Of each key: where its first line begins, where its last one ends, and the comment at the end of its only line."""
    if _simple(front) is not None:
        return {match["key"]: (match.start(), match.end(), "") for match in _KEY.finditer(front)}
    from ruamel.yaml.nodes import MappingNode

    root = _composed(front)
    if root is None:
        return {}
    if not isinstance(root, MappingNode) or root.flow_style:
        raise _BrokenError("it is not one key a line")
    _value(root)  # a key that is there twice
    found = {}
    for key, value in root.value:
        begin, over = key.start_mark.index, value.end_mark.index
        if begin and front[begin - 1] != "\n":
            raise _BrokenError("it is not one key a line")
        body = front[begin:over].rstrip()
        lines = body.split("\n")
        while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()  # what follows a list belongs to the key after it
        over = begin + len("\n".join(lines))
        rest, line_end, _ = front[over:].partition("\n")
        comment = rest.rstrip("\r") if len(lines) == 1 and "#" in rest else ""
        found[str(key.value)] = (begin, over + len(rest) + len(line_end), comment)
    return found


def _line(key: str, value: object, end: str) -> str:
    if isinstance(value, str):
        return f"{key}: {_text(value, _PLAIN_IN_BLOCK)}{end}"
    if isinstance(value, list | tuple):
        return f"{key}: [{', '.join(_text(str(item), _PLAIN) for item in value)}]{end}"
    return f"{key}: {json.dumps(value)}{end}"


_ODD = frozenset(("true", "false", "null", "yes", "no", "on", "off"))
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def _text(value: str, plain: re.Pattern[str]) -> str:
    """As YAML reads it back: plain where that is the same text, or as JSON, which is YAML."""
    if plain.match(value) and value == value.strip() and value[0] not in "*~" and value.lower() not in _ODD:
        return value
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
