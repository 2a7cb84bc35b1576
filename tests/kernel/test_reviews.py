"""Places, comments and what an agent is told of them."""

from __future__ import annotations

import pytest

from supervisor.kernel.errors import UsageError
from supervisor.results.verdicts import QUOTED_MAX, TEXT_MAX, Comment, Decision, Verdict, checked, key, place, prompt, quoted


@pytest.mark.parametrize(
    ("text", "found"),
    [("a.py:3", ("a.py", 3, 3)), ("a:b.py:3-5", ("a:b.py", 3, 5)), ("new\nline:1", ("new\nline", 1, 1)), ("a.py:7-7", ("a.py", 7, 7))],
)
def test_a_place(text: str, found: tuple[str, int, int]) -> None:
    assert place(text) == found


@pytest.mark.parametrize("text", ["a.py", "a.py:", ":3", "a.py:0", "a.py:5-3", "a.py:x", "a.py:99999999", "a.py:3-", ""])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        place(text)


def test_words_are_checked() -> None:
    assert checked("  why?\n") == "why?"
    for bad in (" \n", "a\0b", "x" * (TEXT_MAX + 1)):
        with pytest.raises(UsageError):
            checked(bad)


def test_lines_are_quoted_within_bounds() -> None:
    lines = [str(number) for number in range(1, 101)]
    assert quoted(lines, 3, 4) == "3\n4"
    assert quoted(lines, 1, 100).count("\n") == QUOTED_MAX - 1
    with pytest.raises(UsageError, match="the file has 100"):
        quoted(lines, 100, 101)


def test_the_agent_is_told_each_place_once_with_its_lines() -> None:
    one = Comment(1, "r/a", "c", "src/a\x1b.py", 3, 3, "x = 1", "Why 1?")
    two = Comment(2, "r/a", "c", "b.py", 5, 6, "def f():\n    pass", "Name it.")
    said = prompt("r/a", [one, two], "  And add tests. ")
    assert said.startswith("[nightcrew] A person has looked at your work on r/a and has 2 comments:")
    assert "1. src/a\\x1b.py, line 3:\n    > x = 1\nWhy 1?" in said
    assert "2. b.py, lines 5 to 6:\n    > def f():\n    >     pass\nName it." in said
    assert "And add tests.\n\nLine numbers are those" in said
    assert prompt("r/a", [], "More.") == "[nightcrew] A person has looked at your work on r/a and asks for more:\n\nMore."


def test_keys_and_verdicts() -> None:
    assert key("r/a", "x") == key("r/a", "x") != key("r/a", "y") and key("r/a", "x") != key("r/b", "x")
    decision = Decision("r/a", Verdict.ACCEPTED, "c0ffee")
    assert decision.holds("c0ffee") and not decision.holds("beef")
