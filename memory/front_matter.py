"""Front matter: a few keys between two lines of three dashes at the head of a note or a message.

    ---
    title: How the parser is tested     # a comment stays
    tags: [parser, tests]
    owner: Ann                          # a key of a person's own stays too
    ---
    The body.

Most front matter is lines of `key: value`, which are read here: an index reads ten thousand notes. The rest is read as YAML by libyaml,
with all scalars as text, no aliases, no tags, and a bounded depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

FRONT_MAX = 4 * 2**10
"""Characters of front matter."""
DEPTH_MAX = 20
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(?P<front>(?:[^\n]*\n)*?)---[ \t]*(?:\r?\n|\Z)")
_LINE = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*):(?:[ \t](?P<value>.*))?\Z")
_KEY = re.compile(r"^(?P<key>[A-Za-z_][A-Za-z0-9_-]*):.*\n", re.MULTILINE)
_NEVER = "\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff"  # not in YAML, or a line break there
_PLAIN = re.compile(rf"[\w./*+(~][^{_NEVER}:#\[\]{{}},&!|>'\"%@`]*\Z")
_PLAIN_IN_BLOCK = re.compile(rf"[\w./+(](?:[^{_NEVER}:#]|:(?=\S)|#(?<=\S#))*\Z")
_SENTENCE = re.compile(rf"[\w./+(][^{_NEVER}#]*[^{_NEVER}#:]\Z")
"""A text with `: ` in it, which YAML refuses and people write: `Re: the port`."""
_FLOW = re.compile(r"\[(?P<items>[^\[\]{}\"'#&!|>%@`:\\]*)\]\Z")
_QUOTED = re.compile(rf"'(?P<single>[^'{_NEVER}]*)'\Z|\"(?P<double>[^\"\\{_NEVER}]*)\"\Z")
_ODD = frozenset(("true", "false", "null", "yes", "no", "on", "off"))
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


class BrokenError(Exception):
    """Front matter that cannot be read, or not be changed; its text says why."""


def split(text: str) -> tuple[str | None, str]:
    """The lines between the dashes, None without any, and what follows. Raises BrokenError for front matter that has no end."""
    found = _FRONT.match(text)
    if found is not None:
        return found["front"], text[found.end() :]
    if text.lstrip("\ufeff").startswith(("---\n", "---\r\n")):
        raise BrokenError("its front matter has no end")
    return None, text


def read(front: str) -> dict[str, Any]:
    """The keys of front matter: text, lists and dictionaries of text. Raises BrokenError."""
    if len(front) > FRONT_MAX:
        raise BrokenError(f"its front matter has more than {FRONT_MAX} characters")
    simple = _simple(front)
    return _Yaml(front).keys() if simple is None else simple


def written(head: Mapping[str, object], body: str, end: str = "\n") -> str:
    """A text with these keys and this body; keys without a value are left out."""
    return f"---\n{''.join(line(key, value, end) for key, value in head.items() if value not in (None, ''))}---\n{body}"


def line(key: str, value: object, end: str = "\n") -> str:
    """A key and its value, which is text, a number, or a list of texts, as `read` gives them back."""
    if isinstance(value, str):
        return f"{key}: {_text(value, _PLAIN_IN_BLOCK)}{end}"
    if isinstance(value, list | tuple):
        return f"{key}: [{', '.join(_text(str(item), _PLAIN) for item in value)}]{end}"
    return f"{key}: {json.dumps(value)}{end}"


def changed(front: str, values: Mapping[str, object]) -> str:
    """`front` with these keys changed, added at its end, or (None) removed. Everything else stays byte for byte. Raises BrokenError, also
    for front matter that is not one key a line."""
    if len(front) > FRONT_MAX:
        raise BrokenError(f"its front matter has more than {FRONT_MAX} characters")
    end = "\r\n" if "\r\n" in front else "\n"
    spans = _spans(front)
    for key in sorted(spans.keys() & values.keys(), key=lambda key: -spans[key][0]):
        begin, over, comment = spans[key]
        value = values[key]
        front = front[:begin] + ("" if value is None else line(key, value, f"{comment}{end}")) + front[over:]
    return front + "".join(line(key, value, end) for key, value in values.items() if key not in spans and value is not None)


def _spans(front: str) -> dict[str, tuple[int, int, str]]:
    """Of each key: where its first line begins, where its last one ends, and the comment at the end of its only line."""
    if _simple(front) is not None:
        return {match["key"]: (match.start(), match.end(), "") for match in _KEY.finditer(front)}
    yaml = _Yaml(front)
    yaml.keys()
    found = {}
    for key, (begin, over) in yaml.places.items():
        if yaml.is_flow or (begin and front[begin - 1] != "\n"):
            raise BrokenError("it is not one key a line")
        lines = front[begin:over].rstrip().split("\n")
        while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()  # what follows a list belongs to the key after it
        over = begin + len("\n".join(lines))
        rest, line_end, _ = front[over:].partition("\n")
        comment = rest.rstrip("\r") if len(lines) == 1 and "#" in rest else ""
        found[key] = (begin, over + len(rest) + len(line_end), comment)
    return found


def _text(value: str, plain: re.Pattern[str]) -> str:
    """As YAML reads it back: plain where that is the same text, or as JSON, which is YAML."""
    if plain.match(value) and value == value.strip() and value[0] not in "*~" and value.lower() not in _ODD:
        return value
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


# Lines of `key: value` ----------------------------------------------------------------------------------------------------------------


def _simple(front: str) -> dict[str, Any] | None:
    """Lines of `key: value`; None for whatever could mean something else in YAML."""
    found: dict[str, Any] = {}
    for text in front.split("\n"):
        if not text.strip() or text.startswith("#"):
            continue
        match = _LINE.match(text.removesuffix("\r").rstrip(" \t"))
        value = _scalar((match["value"] or "").lstrip(" \t")) if match is not None else None
        if match is None or value is None or match["key"] in found:
            return None
        found[match["key"]] = value
    return found


def _scalar(text: str) -> str | list[str] | None:
    if not text or _PLAIN.match(text) or _PLAIN_IN_BLOCK.match(text) or (": " in text and _SENTENCE.match(text)):
        return text
    if (quoted := _QUOTED.match(text)) is not None:
        return quoted["single"] if quoted["single"] is not None else quoted["double"]
    if (flow := _FLOW.match(text)) is not None:
        items = [item.strip() for item in flow["items"].split(",")]
        if items == [""]:
            return []
        return items if all(map(_PLAIN.match, items)) else None
    return None


# YAML ---------------------------------------------------------------------------------------------------------------------------------


class _Yaml:
    """Reads one document, event by event."""

    def __init__(self, front: str) -> None:
        self._front = front
        self._event: Any = None
        self.is_flow = False
        self.places: dict[str, tuple[int, int]] = {}
        """Where each key begins and its value ends."""

    def keys(self) -> dict[str, Any]:
        """Raises BrokenError."""
        import yaml  # only here: most notes need none

        events = yaml.parse(self._front, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        try:
            return self._document(events)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"line {mark.line + 2}: " if mark is not None else ""
            said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
            raise BrokenError(f"its front matter is not YAML: {where}{said}") from None
        except (ValueError, RecursionError) as error:  # text that no file can hold
            raise BrokenError(f"its front matter is not YAML: {type(error).__name__}") from None
        finally:
            events.close()

    def _document(self, events: Any) -> dict[str, Any]:
        from yaml.events import DocumentEndEvent, DocumentStartEvent, MappingStartEvent, StreamEndEvent

        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, MappingStartEvent):
                self.is_flow = bool(event.flow_style)
                found = self._mapping(events, event, 1)
                event = next(events)
                if not isinstance(event, DocumentEndEvent) or not isinstance(next(events), StreamEndEvent):
                    raise BrokenError("its front matter is not YAML: it has several documents")
                break
            if hasattr(event, "anchor") or (isinstance(event, DocumentStartEvent) and event.explicit):
                raise BrokenError("its front matter is not a list of keys")
        return found

    def _value(self, events: Any, event: Any, depth: int) -> Any:
        from yaml.events import MappingStartEvent, ScalarEvent, SequenceEndEvent

        self._event = event
        if event.anchor is not None or getattr(event, "tag", None) is not None:
            raise BrokenError("its front matter has an alias, an anchor or a tag")
        if isinstance(event, ScalarEvent):
            return str(event.value)
        if depth > DEPTH_MAX:
            raise BrokenError("its front matter is too deep")
        if isinstance(event, MappingStartEvent):
            return self._mapping(events, event, depth)
        found = []
        while not isinstance(inner := next(events), SequenceEndEvent):
            found.append(self._value(events, inner, depth + 1))
        self._event = inner
        return found

    def _mapping(self, events: Any, begin: Any, depth: int) -> dict[str, Any]:
        from yaml.events import MappingEndEvent, ScalarEvent

        found: dict[str, Any] = {}
        if begin.anchor is not None or begin.tag is not None:
            raise BrokenError("its front matter has an alias, an anchor or a tag")
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._value(events, event, depth + 1)
            if not isinstance(event, ScalarEvent):
                raise BrokenError("a key of its front matter is not text")
            if key in found:
                raise BrokenError(f"its front matter has the key {key[:40]} twice")
            found[key] = self._value(events, next(events), depth + 1)
            if depth == 1:
                self.places[key] = (event.start_mark.index, self._event.end_mark.index)
        self._event = event
        return found
