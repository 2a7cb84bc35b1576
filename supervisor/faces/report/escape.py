"""Text from a repository inside Markdown: it reads as it is and never becomes markup. Pure.

GitHub looks for @mentions, issue numbers and links even in text that Markdown's own backslash has escaped, but never inside code. So a
word is left as it is when it holds nothing but letters, digits and harmless signs, and shown as code otherwise.
"""

from __future__ import annotations

import re

from supervisor.faces.report.words import pieces

_PLAIN_WORD = re.compile(r"""[("']*(?!www\.)(?!GH-)[^\W_](?:[^\W_]|[.,;:()"'/=%+?!-](?!//))*""", re.IGNORECASE)
_BARE = re.compile(r"""[–=+/%×−-]|[.,;:()"'!?]+""")
_WORDS = re.compile(r"\s+|\S+")
_MARKED = re.compile(r"^\s+|\s+$|\S(?:.*\S)?", re.DOTALL)
_PLAIN_CODE = re.compile(r"[^`|\\]+")


def text(value: str) -> str:
    """Running text of one line. Words that could be markup, and what stands between two `backticks`, become code."""
    spans: list[tuple[bool, str]] = []
    for marked, part in pieces(value):
        for word in (_MARKED if marked else _WORDS).findall(part):
            is_code = not word.isspace() and (marked or not (_BARE.fullmatch(word) or _PLAIN_WORD.fullmatch(word)))
            if is_code and spans and spans[-1][0]:  # two spans without a space between them would be read as neither
                spans[-1] = (True, spans[-1][1] + word.strip("`"))
            else:
                spans.append((is_code, word.strip("`")))
    return "".join(code(word) if is_code else " " if word.isspace() else word for is_code, word in spans).strip()


def code(value: str) -> str:
    """A code span, safe inside a table too. What a span cannot hold there (a backtick, a bar, a backslash) is written as entities."""
    value = " ".join(value.split())
    if not value:
        return ""
    if _PLAIN_CODE.fullmatch(value):
        return f"`{value}`"
    return f"<code>{''.join(f'&#{ord(char)};' if char.isascii() and not char.isalnum() else char for char in value)}</code>"
