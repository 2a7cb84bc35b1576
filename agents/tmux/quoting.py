"""Text on its way into tmux: one function for each place where tmux would read it as more than text.

quote          tmux's command parser (quotes, `;`, `$NAME`, `~`, escapes)
escape_format  arguments that tmux expands (names, `-c`): `#{…}`, `#(…)` which runs a shell, `#S`
said_text      text that tmux shows in its status line, where it expands it and draws its styles
plain_text     text typed into a program: nothing that drives a terminal or ends a bracketed paste
"""

from __future__ import annotations

import re

from supervisor.core.errors import UNSEEN

_SPECIAL = re.compile('[\x01-\x1f\x7f"\\\\$~\udc80-\udcff]')
_MARKS = re.compile(r"#(?=[\[{(,}])")
_HASHES = re.compile(r"#+(?![#\[])")
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(f"[{_STEERING}{''.join(sorted(UNSEEN))}]")


def quote(text: str) -> str:
    """One word of tmux's command language that tmux reads back as exactly `text`, on one line.

    Bytes of a path that are no UTF-8 are kept: Python writes them as U+DC80 to U+DCFF (`surrogateescape`). They must not
    reach the parser as they are, which takes the byte 255 for the end of its input and drops the commands after it.
    Raises ValueError for NUL, which no tmux argument can hold.
    """
    if "\0" in text:
        raise ValueError("tmux arguments cannot hold a NUL character")
    return '"' + _SPECIAL.sub(lambda found: f"\\{ord(found[0]) & 0xFF:03o}", text) + '"'


def command_line(*commands: tuple[str, ...]) -> str:
    """Commands that tmux runs in order, as one line; the first that fails ends the line."""
    return " ; ".join(" ".join(quote(word) for word in command) for command in commands)


def escape_format(text: str) -> str:
    """`text` so that tmux's format expansion gives it back unchanged and runs nothing.

    A run of `#` before `[` is a style mark: tmux copies it as it is, so it must not be doubled.
    """
    return _HASHES.sub(lambda run: run[0] * 2, text)


def said_text(text: str) -> str:
    """`text` so that `display-message` shows it and no more: what could begin a format or a style is broken up, so that nothing depends on
    how often tmux expands it, and `%` is no time."""
    return escape_format(_MARKS.sub("# ", plain_text(text).replace("\n", " "))).replace("%", "%%")


def typed_text(text: str) -> str:
    """`text` as it is typed into a program: `plain_text`, without line ends at the end."""
    return plain_text(text).rstrip("\n")


def plain_text(text: str) -> str:
    """`text` with line ends as `\\n` and without control characters (tab stays), direction overrides, lone surrogates and
    characters that nobody sees.

    The paste of a text that holds `ESC [201~` would end there, and the rest would be typed as keys.
    """
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
