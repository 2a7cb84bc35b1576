"""The report as Markdown, read by a real parser: no text becomes markup, a link or a mention."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from supervisor.kernel.errors import one_line
from supervisor.views import document
from supervisor.views.report import pages, words
from tests.views.report.kit import HOSTILE, NAMES, analysis, hostile, ready, report, sample, task

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"<code>", "</code>", "<details>", "</details>"}
ALIVE = re.compile(r"@\w|://|www\.|#\d|GH-\d", re.IGNORECASE)
"""What GitHub turns into something even after the Markdown was read, unless it is code."""


def flat(tokens: list[Token]) -> list[Token]:
    return [token for one in tokens for token in ([one] if one.children is None else one.children)]


def outline(text: str) -> list[tuple[str, str]]:
    """The block structure: what a hostile text must not change."""
    return [(token.type, token.tag) for token in PARSER.parse(text)]


def check_inert(tokens: list[Token]) -> None:
    inside = 0
    for token in tokens:
        assert token.type not in ("link_open", "image", "s_open"), token
        if token.type == "html_inline":
            assert token.content in OURS
            inside += {"<code>": 1, "</code>": -1}.get(token.content, 0)
        if token.type == "text" and not inside:
            assert not ALIVE.search(token.content), token.content


def visible(tokens: list[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in ("text", "code_inline"))


def inline(text: str) -> list[Token]:
    """As it stands in our pages: after a list's dash, or in a table's cell."""
    (body,) = (token for token in PARSER.parse(f"- **x** {text}") if token.type == "inline")
    types = [token.type for token in body.children or []]
    return (body.children or [])[types.index("strong_close") + 1 :]


NASTY = st.text(st.sampled_from("ab1 `|\\*_[]()<>&@#:/.!~$-\n\t\"'wéÿ\u202e") | st.characters(), max_size=40)


@given(NASTY)
def test_code_shows_exactly_the_text(value: str) -> None:
    value = one_line(value)
    tokens = inline(document.code_span(value))
    check_inert(tokens)
    assert visible(tokens).strip() == " ".join(value.split())


@given(NASTY)
def test_running_text_shows_the_text(value: str) -> None:
    value = one_line(value)
    tokens = inline(document.markdown(value))
    check_inert(tokens)
    assert visible(tokens).replace("`", "").split() == value.replace("`", "").split()


@pytest.mark.parametrize("first", ["-", "+", "=", "1.", "12)", "#", ">", "*"])
def test_first_word_of_a_line_begins_no_block(first: str) -> None:
    assert outline(f"- {document.markdown(f'{first} x')}") == outline("- x x")


def test_span_that_holds_a_bar_stays_readable() -> None:
    assert document.code_span("grep 'a|b' -c") == "<code>grep 'a&#124;b' -c</code>"


@given(NASTY, NASTY)
def test_a_text_stays_in_its_cell(first: str, second: str) -> None:
    row = [document.markdown(one_line(first)) or "-", document.code_span(one_line(second)) or "-", "end"]
    tokens = PARSER.parse(f"| A | B | C |\n| --- | --- | --- |\n| {' | '.join(row)} |")
    cells = [token for token in tokens if token.type == "inline"]
    assert len(cells) == 6
    assert cells[-1].content == "end"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Use of weak MD5 hash, see a/b.py:12 (B324).", "Use of weak MD5 hash, see a/b.py:12 (B324)."),
        ("`Editor._alter` has complexity 63", "`Editor._alter` has complexity 63"),
        ("ask @everyone about #1", "ask `@everyone` about `#1`"),
        ("see http://evil.example or www.evil.example", "see `http://evil.example` or `www.evil.example`"),
        ("no docstring for 4 of 10: `a`, `b` (`c`).", "no docstring for 4 of 10: `a`, `b` (`c`)."),
        ("`a``b`@c", "`a` `b` `@c`"),
        ("a|b `", "<code>a&#124;b</code> <code>&#96;</code>"),
        ("It’s “done” — naïve… a → b, 100€, ±2 °C 😀", "It’s “done” — naïve… a → b, 100€, ±2 °C 😀"),
        ("R&D & user_name in C# < {x} at 2^3", "R&D & user_name in C# < {x} at 2^3"),
        ("&amp; &#35; R&amp; C#1 __init__.py _x_ a__b", "`&amp;` `&#35;` `R&amp;` `C#1` `__init__.py` `_x_` `a__b`"),
        ("a,www.evil.example b(www.evil.example xGH-1", "`a,www.evil.example` `b(www.evil.example` `xGH-1`"),
        ("- x", "`-` x"),
        ("1. x", "`1.` x"),
        ("C:\\new\\_x", "`C:\\new\\_x`"),
    ],
)
def test_words_stay_words_where_they_can(text: str, shown: str) -> None:
    assert document.markdown(text).rstrip() == shown.rstrip()


@pytest.mark.parametrize("make", [hostile, ready])
def test_no_text_changes_the_structure(make: Any) -> None:
    attacked, plain = pages.render_markdown(make(HOSTILE)), pages.render_markdown(make(tuple(f"name{n}" for n in range(len(HOSTILE)))))
    assert outline(attacked) == outline(plain)
    check_inert(flat(PARSER.parse(attacked)))
    assert attacked.isprintable() or not set(attacked) - set("\n") & {char for char in attacked if not char.isprintable()}


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_the_page_says(name: str) -> None:
    made = sample(name)
    text = pages.render_markdown(made)
    assert words.verdict(made).word in text
    for one in words.failures(made):
        assert one.command in text
    for one in made["tasks"]:
        assert f"`{one['name']}`" in text


def test_a_run_without_anything() -> None:
    assert "No task belongs to this run." in pages.render_markdown(report())


def test_only_a_baseline_makes_a_section_on_running_at_once() -> None:
    made = sample("large")
    assert "## At once" in pages.render_markdown(made)
    made["figures"]["sequential_s"] = None
    text = pages.render_markdown(made)
    assert "## At once" not in text and text.count(document.markdown(made["summary"]["parallel"])) == 1


def test_of_five_thousand_findings_some_are_shown() -> None:
    text = pages.render_markdown(analysis(findings=5_000, tasks=30))
    assert "<summary>5,000 findings</summary>" in text and "and 4,950 more" in text
    assert len(text) < 60_000  # GitHub takes 65,536 characters in a comment


def test_a_title_of_nothing_but_spaces() -> None:
    made = ready(("   ",))
    made["tasks"].append(task("b", title=" "))
    assert pages.render_markdown(made)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("`f` is long", [(True, "f"), (False, " is long")]),
        ("a ` b", [(False, "a ` b")]),
        ("`a` ` b", [(True, "a"), (False, " ` b")]),
        ("", []),
    ],
)
def test_backticks_mark_code(text: str, parts: list[tuple[bool, str]]) -> None:
    assert document.pieces(text) == parts


def test_routes_by_the_weight_of_work_are_one_table_with_dollars_or_engine_seconds() -> None:
    known = {"requests": 4, "tokens": 61_000.0, "done": 2, "gate_failed": 1, "raised": 0}
    routes = [{"account": "box", "model": hostile, "work": "trivial", "usd": 0.0, "engine_s": 61.4, **known} for hostile in HOSTILE] + [
        {"account": "sim", "model": "opus", "work": "complex", "usd": 0.33, "engine_s": 0.0, **known}
    ]
    text = pages.render_markdown(report(routes=routes))
    check_inert(flat(PARSER.parse(text)))
    (line,) = [line for line in text.splitlines() if "opus" in line]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["complex", "`sim opus`", "4", "61k", "`$0.33`", "2", "1", "0"]
    assert text.count("1m01s of an engine") == len(HOSTILE)
    assert "weight of work" not in pages.render_markdown(report(routes=[]))
