"""Where a key stands in a TOML file. `tomllib` gives no positions, and an error without a line makes a person search.

This is a scanner of tokens, so what stands inside a string or a comment is never taken for a key. It expects text that `tomllib` has
accepted; of other text it makes what it can.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r'''
      (?P<text> """ (?:[^\\]|\\.)*? """ "{0,2} | \'\'\' .*? \'\'\' '{0,2} | " (?:[^"\\\n]|\\.)* " | ' [^'\n]* ' )
    | (?P<bare> [A-Za-z0-9_+:-]+ )
    | (?P<mark> [\[\]{}=.,\n] )
    | \#[^\n]* | .                  # a comment, a blank, or no TOML at all
    ''',
    re.VERBOSE | re.DOTALL,
)

Path = Sequence[str | int]


def line_of(text: str, path: Path) -> int:
    """The 1-based line of the deepest part of `path` that is written down; 1 when none is."""
    best, best_depth = 1, 0
    for line, here in _Scan(text).found:
        depth = _common(here, path)
        if depth > best_depth:
            best, best_depth = line, depth
    return best


def longest_key(text: str) -> tuple[int, int]:
    """How many dotted parts the longest key has, and its line. A fraction counts as two parts, a date as one."""
    longest, where, parts, dotted = 0, 1, 0, False
    for kind, word, line in _tokens(text):
        if kind == "mark":
            dotted = word == "."
        else:
            parts, dotted = parts + 1 if dotted else 1, False
            if parts > longest:
                longest, where = parts, line
    return longest, where


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup is not None:
            yield match.lastgroup, match.group(), line
        line += match.group().count("\n")


def _common(here: Path, path: Path) -> int:
    same = 0
    for one, other in zip(here, path, strict=False):
        if one != other:
            break
        same += 1
    return same


class _Scan:
    """Walks the tokens once; `found` is every header, key and element of an array with its line and its full path."""

    def __init__(self, text: str) -> None:
        self.found: list[tuple[int, list[str | int]]] = []
        self._tokens = list(_tokens(text))
        self._at = 0
        self._table: list[str | int] = []
        self._newest: dict[tuple[str | int, ...], int] = {}
        """Path of each array of tables, and the index of its newest element."""
        while self._more():
            if self._take("["):
                self._header()
            elif not self._take("\n"):
                self._pair(self._table)

    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _take(self, mark: str) -> bool:
        found = self._more() and self._tokens[self._at][:2] == ("mark", mark)
        self._at += found
        return found

    def _note(self, path: list[str | int]) -> None:
        self.found.append((self._tokens[self._at][2], path))

    def _header(self) -> None:
        many = self._take("[")
        line = self._tokens[self._at - 1][2]
        name = self._key()
        self._table = []
        for number, part in enumerate(name, 1):
            self._table.append(part)
            here = tuple(self._table)
            if many and number == len(name):
                self._newest[here] = self._newest.get(here, -1) + 1
            if here in self._newest:
                self._table.append(self._newest[here])
        self.found.append((line, self._table))
        while self._more() and not self._take("\n"):
            self._at += 1

    def _key(self) -> list[str]:
        parts: list[str] = []
        while self._more() and self._tokens[self._at][0] != "mark":
            kind, token, _ = self._tokens[self._at]
            parts.append(_unquoted(token) if kind == "text" else token)
            self._at += 1
            if not self._take("."):
                break
        return parts

    def _pair(self, table: list[str | int]) -> None:
        start = self._at
        path = [*table, *self._key()]
        if self._take("=") and self._more():
            self.found.append((self._tokens[start][2], path))
            self._value(path)
        else:
            self._at += 1

    def _value(self, path: list[str | int]) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            while self._more() and not self._take("}"):
                if not (self._take(",") or self._take("\n")):
                    self._pair(path)
        else:
            self._at += 1
            while self._more() and self._tokens[self._at][1] not in (",", "]", "}", "\n"):
                self._at += 1

    def _array(self, path: list[str | int]) -> None:
        index = 0
        while self._more() and not self._take("]"):
            if self._take(","):
                index += 1
            elif not self._take("\n"):
                self._note([*path, index])
                self._value([*path, index])


def _unquoted(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(tomllib.loads(f"key = {token}")["key"])
    except tomllib.TOMLDecodeError:
        return token
