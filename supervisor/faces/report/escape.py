"""Text from a repository inside Markdown: it reads as it is and never becomes markup. Pure.

GitHub looks for @mentions, issue numbers and links even in text that Markdown's own backslash has escaped, but never inside code. So a
word stays as it is when no part of it could be markup, and is shown as code otherwise.
"""

from __future__ import annotations

import re

from supervisor.faces.report.words import pieces

_LETTER = r"(?:[^\W_]|[^\x00-\x7f])"
_INSIDE = rf"""{_LETTER}|(?<=[^\W_])_(?=[^\W_])|[.,;:()"'/=%+?!{{}}^-](?!//)|&(?!\#|\w+;)|\#(?!\d)"""
_PLAIN_WORD = re.compile(rf"""(?!\S*www\.)(?!\S*GH-\d)[("'{{]*{_LETTER}(?:{_INSIDE})*""", re.IGNORECASE)
"""A word without ASCII characters that Markdown or GitHub may act on: an underscore between letters and an ampersand that begins no entity
are text."""
_BARE = re.compile(r"""[=+/%<&-]|[.,;:()"'!?]+""")
_OPENS_A_BLOCK = re.compile(r"[-+]|\d{1,9}[.)]")
"""Words that begin a list when they are the first of several on a line."""
_WORDS = re.compile(r"\s+|\S+")
_MARKED = re.compile(r"^\s+|\s+$|\S(?:.*\S)?", re.DOTALL)
_PLAIN_CODE = re.compile(r"[^`|]+")
_UNMARKED = frozenset(" ,;()'\"/=%+?!-")
"""ASCII characters without a meaning inside a line."""


def text(value: str) -> str:
    """Running text of one line. Words that could be markup, and what stands between two `backticks`, become code."""
    spans: list[tuple[bool, str]] = []
    for marked, part in pieces(value):
        for word in (_MARKED if marked else _WORDS).findall(part):
            is_code = not word.isspace() and (marked or not _is_plain(word, is_first=not spans and word != value))
            if is_code and spans and spans[-1][0]:  # two spans without a space between them would be read as neither
                spans[-1] = (True, spans[-1][1] + word.strip("`"))
            else:
                spans.append((is_code, word.strip("`")))
    return "".join(code(word) if is_code else " " if word.isspace() else word for is_code, word in spans).strip()


def _is_plain(word: str, *, is_first: bool) -> bool:
    if is_first and _OPENS_A_BLOCK.fullmatch(word):
        return False
    return bool(_BARE.fullmatch(word) or _PLAIN_WORD.fullmatch(word))


def code(value: str) -> str:
    """Return a code span, safe inside a table too. A span cannot hold a backtick or a bar there: text with one becomes a `<code>` element
    whose marks are entities."""
    value = " ".join(value.split())
    if not value:
        return ""
    if _PLAIN_CODE.fullmatch(value):
        return f"`{value}`"
    shown = (char if char.isalnum() or not char.isascii() or char in _UNMARKED else f"&#{ord(char)};" for char in value)
    return f"<code>{''.join(shown)}</code>"
