"""What strangers wrote, on its way to a page: text, colours and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.gate_files import FileDiff, Hunk
from supervisor.views.web import drawing, events
from supervisor.views.web.crew_pages import _gone, _lines

CLASSES = {"bold", "dim", "italic", "underline", "blink", "reverse", "strike"}
COLOR = re.compile(r"|#[0-9a-f]{6}|k(?:[0-9]|1[0-5])")


@given(st.text(alphabet=st.sampled_from("a<>&\"'\x1b[]()0;123456789:mHJKP\\\x07\x9b\u202e\u200b\r\n\t")))
def test_lines_are_text_and_colours(line: str) -> None:
    [spans] = events.lines((line,))
    for text, *rest in spans:
        assert not any(char in text for char in "\x1b\x07\x9b\u202e\r\n")
        assert set(rest[0].split() if rest else ()) <= CLASSES
        assert all(COLOR.fullmatch(color) for color in rest[1:])
    json.dumps(spans)


def test_colours_as_a_page_has_them() -> None:
    line = "a\x1b[1;31mb\x1b[0;48;5;16mc\x1b[38;5;231md\x1b[0;38;5;232;48;2;1;2;3me\x1b[104mf"
    [spans] = events.lines((line,))
    assert spans[:4] == [["a"], ["b", "bold", "k1", ""], ["c", "", "", "#000000"], ["d", "", "#ffffff", "#000000"]]
    assert spans[4:] == [["e", "", "#080808", "#010203"], ["f", "", "#080808", "k12"]]


def test_a_list_among_data_never_becomes_an_element() -> None:
    planted: Any = ["img", {"src": "x", "onerror": "alert(1)"}]
    assert drawing.el("p", planted)[2:] == drawing.table("", ["a"], [[planted]])[4][0] == [str(planted)]


def test_lines_keep_their_numbers_when_others_go() -> None:
    assert _gone([], ["a"]) == 0
    assert _gone(["a", "b", "c"], ["a", "b", "c", "d"]) == 0
    assert _gone(["a", "b", "c"], ["b", "c", "d"]) == 1
    assert _gone(["a", "b", "half"], ["b", "half of it", "d"]) == 1, "the last one grew"
    assert _gone(["a", "b"], ["x", "y"]) in (0, 1)


def diff(name: str, *texts: str) -> list[list[object]]:
    return list(map(list, _lines(FileDiff(name, "A", hunks=(Hunk(0, 1, tuple(("+", text) for text in texts)),)), 1000)))


def test_code_has_its_classes_and_every_character() -> None:
    assert diff("x.py", "def f(): return '<b>'") == [
        [None, 1, "+", [["def", "tk"], [" "], ["f", "tf"], ["(): "], ["return", "tk"], [" "], ["'<b>'", "ts"]]]
    ]
    assert diff("x.unknown", "def f()") == [[None, 1, "+", [["def f()"]]]]
    assert diff("x.py", "x = '" + "y" * 500) == [[None, 1, "+", [["x = '" + "y" * 500]]]], "too long for a lexer"


@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=6), st.sampled_from(["x.py", "x.js", "x.html", "x.c", "Makefile", "x.md", "x.rs"])
)
def test_no_lexer_loses_anything(texts: list[str], name: str) -> None:
    kept = [text.replace("\n", " ") for text in texts]
    plain = ["".join(span[0] for span in row[3]) for row in diff("x.unknown", *kept)]  # type: ignore[attr-defined]
    assert ["".join(span[0] for span in row[3]) for row in diff(name, *kept)] == plain  # type: ignore[attr-defined]
