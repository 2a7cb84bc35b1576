"""Any text reaches a real tmux server as it is."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.tmux import Tmux, command_line, escape_format, plain_text, quote, said_text
from agents.tmux_control import parse_blocks

HOSTILE = st.sampled_from(
    [
        *"\"'\\;$~#{}[]()%!`&|<>*? \t\n\r\x1b\x7f\x80é漢🦀\u202e\udc80\udcff",
        *("#{pid}", "#(touch X)", "#[fg=red]", "##[", "#S", "$HOME", "${HOME}", "~root", "\\012", "\\u0041", "%if 1", " ; ", "'\\''"),
    ]
)
TEXTS = st.lists(HOSTILE | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=3), max_size=12).map("".join)
FOR_REAL = settings(
    deadline=None, max_examples=150, database=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def ask(tmux: Tmux, *commands: tuple[str, ...]) -> str:
    return tmux._ask(*commands)[-1].text


@FOR_REAL
@given(TEXTS)
@example("")
@example("ends with ;")
@example(";")
@example("\\")
@example("~")
@example("~/x")
@example("line\n%end 1 2 1\n")
@example("byte 255 \udcff is not the end")
@example("x" * 20_000)
def test_quoted_text_arrives_unchanged(shared_tmux: Tmux, text: str) -> None:
    assert os.fsencode(ask(shared_tmux, ("set-option", "-g", "@text", text), ("show-options", "-gv", "@text"))) == os.fsencode(text)


@FOR_REAL
@given(TEXTS)
@example("#[bold]")
@example("###[#{pid}##")
@example("a#")
@example("#,#}")
def test_escaped_text_survives_format_expansion(shared_tmux: Tmux, text: str) -> None:
    assert os.fsencode(
        ask(shared_tmux, ("set-option", "-gF", "@text", escape_format(text)), ("show-options", "-gv", "@text"))
    ) == os.fsencode(text)


@FOR_REAL
@given(TEXTS)
@example("#(touch X) #{pid} ##{pid} #[fg=red] ##[fg=red] %H %% #,#}")
def test_what_is_said_on_a_status_line_is_only_text(shared_tmux: Tmux, text: str) -> None:
    """However often it is expanded nothing begins a format, a command or a style, and the clock is not asked."""
    said = ask(shared_tmux, ("display-message", "-p", said_text(text)))
    assert said == re.sub(r"#(?=[\[{(,}])", "# ", plain_text(text).replace("\n", " "))


@given(TEXTS)
@settings(database=None)
def test_a_quoted_command_is_one_line(text: str) -> None:
    assert "\n" not in command_line((text, text), (text,))


def test_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("x\x1b[201~\ry", "x[201~\ny"),
        ("\x00\x07\x7f\x9b31m", "31m"),
        ("abc\u202etxt.exe\u2066", "abctxt.exe"),
        ("é漢🦀\ud800", "é漢🦀"),
        ("a\u200bb\ufeffc\u2060" + "".join(chr(0xE0000 + ord(char)) for char in "rm -rf"), "abc"),  # X09
        ("می\u200cخواهم 👩\u200d💻", "می\u200cخواهم 👩\u200d💻"),
    ],
)
def test_plain_text_drives_no_terminal(text: str, plain: str) -> None:
    assert plain_text(text) == plain


def test_blocks_are_matched_by_number_and_forgeries_are_text() -> None:
    lines = [
        b"%sessions-changed",
        b"%begin 10 1 0",
        b"%end 10 1 0",
        b"%begin 10 7 1",
        b"%end 10 7 1",  # printed by a program, as are the next two
        b"%begin 10 8 1",
        b"%error 10 7 1",
        b"%end 10 7 1",
        b"%window-add @3",
        b"%begin 10 8 1",
        b"no such thing",
        b"%error 10 8 1",
    ]
    first, second = parse_blocks(lines)
    assert (first.ok, first.lines) == (True, ("%end 10 7 1", "%begin 10 8 1", "%error 10 7 1"))
    assert (second.ok, second.text) == (False, "no such thing")
