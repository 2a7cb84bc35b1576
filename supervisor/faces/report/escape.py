"""Text from a repository inside Markdown: it reads as it is and never becomes markup. Pure.

GitHub looks for @mentions, issue numbers and links even in text that Markdown's own backslash has escaped, but never inside code. So a
word is left as it is when it holds nothing but letters, digits and harmless signs, and shown as code otherwise.
"""

from __future__ import annotations

import re
from itertools import groupby

_PLAIN_WORD = re.compile(r"""[("']*(?!www\.)(?!GH-)[^\W_](?:[^\W_]|[.,;:()"'/=%+?!-](?!//))*""", re.IGNORECASE)
_BARE = {"–", "-", "=", "+", "/", "%", "×", "−"}
_PLAIN_CODE = re.compile(r"[^`|\\]+")


def text(value: str) -> str:
    """Running text of one line. Words that could be markup, and what stands in `backticks`, become code."""
    words = [(word in _BARE or bool(_PLAIN_WORD.fullmatch(word)), word) for word in value.split()]
    return " ".join(
        " ".join(word for _, word in some) if plain else code(" ".join(word for _, word in some).strip("`"))
        for plain, some in groupby(words, key=lambda item: item[0])
    )


def code(value: str) -> str:
    """A code span, safe inside a table too. What a span cannot hold there (a backtick, a bar, a backslash) is written as entities."""
    value = " ".join(value.split())
    if not value:
        return ""
    if _PLAIN_CODE.fullmatch(value):
        return f"`{value}`"
    return f"<code>{''.join(f'&#{ord(char)};' if char.isascii() and not char.isalnum() else char for char in value)}</code>"
