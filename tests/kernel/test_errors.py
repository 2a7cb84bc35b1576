"""The error tree: its words reach a person on one harmless line, and cross the socket whole."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import errors
from supervisor.kernel.errors import NightcrewError, Refused, StaleEpoch, from_wire, last_line, one_line

TREE = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, NightcrewError)]


@pytest.mark.parametrize("cls", TREE)
def test_every_error_crosses_the_socket_as_itself(cls: type[NightcrewError]) -> None:
    sent = cls("cannot stop", on="0731-k3qz/a", why="it is done", kept="its branch", hint="nightcrew status")
    back = from_wire(sent.to_wire())
    assert type(back) is cls
    assert back.line() == sent.line()
    assert (back.what, back.on, back.why, back.kept, back.hint) == (sent.what, sent.on, sent.why, sent.kept, sent.hint)


def test_the_head_of_the_module_names_every_error_with_its_exit_code() -> None:
    drawn: dict[str, int] = {}
    code = 0
    for name, number in re.findall(r"^[ │├└─]*([A-Z]\w+)[ ]+(?:exit )?(\d+)?", (errors.__doc__ or "").split("Exit codes")[0], re.MULTILINE):
        code = int(number or code)
        drawn[name] = code
    drawn = {cls.__name__: drawn[cls.__name__] for cls in TREE}  # a KeyError is an error that is not drawn
    differ = {"ToolFailed", "ToolHung", "DiskFull", "LedgerError"}  # children of HostError (2) that end with 1
    assert {cls.__name__: cls.exit_code for cls in TREE if cls.__name__ not in differ} == {
        name: number for name, number in drawn.items() if name not in differ
    }


def test_unknown_and_empty_shapes_become_the_base_error() -> None:
    assert type(from_wire({"error": "FromTheFuture", "what": "hm"})) is NightcrewError
    assert from_wire({}).line() == "the supervisor reported an error"


def test_five_facts_on_one_line() -> None:
    full = Refused("cannot remove", on="/w/a", why="it is dirty", kept="everything", hint="nightcrew diff a")
    assert full.line() == str(full) == "cannot remove /w/a: it is dirty; kept: everything; next: nightcrew diff a"
    assert Refused("cannot").line() == "cannot"
    assert issubclass(StaleEpoch, Refused) and StaleEpoch.exit_code == 6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b]52;c;AAAA\x07", "\\x1b]52;c;AAAA\\x07"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("a\u202eb\u2066c\u200f\u061c", "a\\u202eb\\u2066c\\u200f\\u061c"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("a\u200bb\ufeff\U000e0072", "a\\u200bb\\ufeff\\U000e0072"),  # X09
        ("\udcff", "\\udcff"),
        ("naïve 任务 🦊", "naïve 任务 🦊"),
    ],
)
def test_what_could_drive_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert Refused("cannot", on=text).line() == f"cannot {shown}"


def test_no_character_that_steers_is_left() -> None:
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    steering = [char for char in map(chr, range(0x10000)) if unicodedata.category(char) == "Cc" or unicodedata.bidirectional(char) in bidi]
    assert len(steering) == 65 + 9
    assert all(one_line(char).startswith("\\") for char in [*steering, "\u200e", "\u200f", "\u061c", "\u2028", "\u2029"])


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_becomes_one_line_that_can_be_printed(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    line.encode()  # no lone surrogate is left


@pytest.mark.parametrize(
    ("text", "last"), [("", ""), (" \n\t\n", ""), ("one", "one"), ("one\n  two \n\n", "two"), ("one\r\ntwo\r\n", "two")]
)
def test_the_last_line_is_the_last_that_says_something(text: str, last: str) -> None:
    assert last_line(text) == last
