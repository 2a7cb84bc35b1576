"""Front matter is read as YAML reads it, and changed so that everything else of a person's stays."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory import note
from memory.note import FRONT_MAX, KEYS, LISTS, BrokenError, parse, rewritten
from supervisor.kernel.errors import UsageError
from tests.rounds import examples

HAND_WRITTEN = """---
# written by Ann
title: "How: it's tested"   # in short
tags: [parser, tests]
owner: {name: Ann, team: [a, b]}   # not a key of ours
paths:
  - "*.py"   # inner
  - src/**

# when it goes
expires: 2026-12-01
---
Body
---
more
"""


def test_what_is_read() -> None:
    found = parse(HAND_WRITTEN)
    assert dict(found.meta) == {
        "title": "How: it's tested",
        "tags": ("parser", "tests"),
        "paths": ("*.py", "src/**"),
        "expires": 1796083200.0,
    }
    assert found.body == "Body\n---\nmore\n" and found.title == "How: it's tested"


def test_what_is_changed_and_what_stays() -> None:
    changed = rewritten(HAND_WRITTEN, title="New", paths=["a b", "x:y"], agent="claude", expires=None)
    assert changed == HAND_WRITTEN.replace('"How: it\'s tested"', "New").replace('  - "*.py"   # inner\n  - src/**\n', "").replace(
        "paths:\n", 'paths: [a b, "x:y"]\n'
    ).replace("expires: 2026-12-01\n", "agent: claude\n")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("\n\n## A heading\ntext", "A heading"),
        ("plain", "plain"),
        ("\ufeff# marked", "marked"),
        ("---\n---\nx\u202ey", "xy"),
        ("- x", "- x"),
    ],
)
def test_a_persons_file_needs_no_front_matter(text: str, title: str) -> None:
    found = parse(text)
    assert found.title == title and "broken" not in found.meta


@pytest.mark.parametrize(
    ("front", "why"),
    [
        ("paths: &x [1]\n", "cannot read paths"),
        ("title: !!python/object:os.system x\n", "cannot read title"),
        ("a: 1\na: 2\n", "twice"),
        ("- 1\n", "not a list of keys"),
        ("x" * (FRONT_MAX + 1) + "\n", "more than"),
        ("title: [1\n", "cannot read title"),
        ("title: |\n  x\n", "cannot read title"),
        ('task: "x\n', "cannot read task"),
        ("confidence: 7\n", "cannot read confidence"),
        ("created: soon\n", "cannot read created"),
        ("tags: {a: 1}\n", "cannot read tags"),
        ("? [a]\n: 1\n", "not a list of keys"),
        ("%YAML 9.9\n", "not a list of keys"),
        ("title: 0x\n b: 1\n", "cannot read title"),
        ("title: [x]\n", "cannot read title"),
    ],
)
def test_what_cannot_be_read_is_said(front: str, why: str) -> None:
    text = f"---\n{front}---\n# The body\n"
    found = parse(text)
    assert why in str(found.meta["broken"]) and found.title == "The body" and found.body == "# The body\n"
    if not why.startswith("cannot read"):
        with pytest.raises(UsageError, match="front matter"):
            rewritten(text, title="x")


@pytest.mark.parametrize("front", ["tags: " + "[" * 3800, "tags: " + "{[" * 1900, "- " * 1900 + "a", "tags: [" + "''" * 1900 + "x"])
def test_what_is_too_deep_is_refused(front: str) -> None:
    assert parse(f"---\n{front}\n---\nbody").meta["broken"]


def test_front_matter_without_an_end_is_not_changed() -> None:
    assert parse("---\ntitle: x\n").meta["broken"]
    with pytest.raises(UsageError):
        rewritten("---\ntitle: x\n", title="y")


def test_one_mapping_in_braces_is_not_changed() -> None:
    assert parse("---\n{title: x, a: 1}\n---\n").meta["broken"]
    with pytest.raises(UsageError):
        rewritten("---\n{title: x}\n---\n", title="y")


def test_moments() -> None:
    assert (
        note.moment("2026-11-23T18:00:00Z") == note.moment("2026-11-23T19:00:00+01:00") == note.moment("2026-11-23 18:00") == 1795456800.0
    )
    assert note.moment_text(1795456800.0) == "2026-11-23T18:00:00Z" and note.moment("99999-01-01") is None
    first, second = note.fresh_id(1795456800.0, "a"), note.fresh_id(1795456801.0, "b")
    assert len(first) == 26 and first < second and re.fullmatch("[0-9A-HJKMNP-TV-Z]+", first)


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\r\n", exclude_categories=["Cc", "Cs"]), max_size=30)
KEY = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
LINE = st.one_of(
    st.tuples(KEY, PLAIN).map(lambda both: f"{both[0]}: {both[1]}\n"),
    st.tuples(KEY, st.lists(PLAIN, max_size=3)).map(lambda both: f"{both[0]}: [{', '.join(both[1])}]\n"),
    st.tuples(KEY, st.lists(PLAIN, min_size=1, max_size=3)).map(
        lambda both: f"{both[0]}:\n" + "".join(f"  - {item}\n" for item in both[1])
    ),
    PLAIN.map(lambda text: f"# {text}\n"),
    st.tuples(KEY, PLAIN, PLAIN).map(lambda three: f"{three[0]}: '{three[1]}'   # {three[2]}\n"),
    st.just("\n"),
)
FRONT = st.lists(LINE, max_size=6).map("".join)


def as_yaml_has_it(front: str) -> object:
    """By YAML alone, all scalars as text; None where it is no YAML."""
    try:
        return yaml.load(front, Loader=yaml.BaseLoader)  # noqa: S506 - it makes no objects
    except yaml.YAMLError:
        return None


@settings(max_examples=examples(60))
@given(FRONT)
@example("a: x#y\n")
@example("a: 'it''s'\n")
@example("a: b: c\n")
@example("a: b:\n")
@example("a: ~\nb:\n")
@example("a: [x, y ]\nb: []\n")
@example("a: x  y \n")
def test_what_is_read_is_what_yaml_reads(front: str) -> None:
    """Whatever our reader takes, YAML reads as the same; where YAML reads nothing, people mean a text (`title: Re: x`, `paths: *.py`)."""
    try:
        read = note.read_head(front)
    except BrokenError:
        return
    found = as_yaml_has_it(front)
    if isinstance(found, dict) and not re.search("[\x85\u2028\u2029\ufeff]", front):
        assert {key: value for key, value in read.items() if value is not None} == {
            key: found[key] for key, value in read.items() if value is not None
        }


@settings(max_examples=examples(60))
@given(FRONT, st.text(max_size=50), st.data())
def test_a_change_leaves_every_other_line_byte_for_byte(front: str, body: str, data: st.DataObject) -> None:
    text = f"---\n{front}---\n{body}"
    before = parse(text)
    wanted = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "title": PLAIN.filter(str.strip),
                "task": PLAIN.filter(str.strip),
                "tags": st.lists(PLAIN, max_size=3),
                "expires": st.none(),
                "confidence": st.floats(0, 1),
                "source": st.text(min_size=1, max_size=20).filter(str.strip),
            },
        )
    )
    try:
        changed = rewritten(text, **wanted)
    except UsageError:
        assert before.meta.get("broken")
        return
    after = parse(changed)
    assert after.body == before.body
    for key in set(before.meta) - set(wanted) - {"title", "broken"}:
        assert after.meta.get(key) == before.meta[key]
    for key, value in wanted.items():
        if value is None:
            assert key not in after.meta
        elif key not in LISTS and key in KEYS and isinstance(value, str):
            assert after.meta.get(key) in (note._known(key, value), None, after.title)
    kept = [line for line in changed.split("\n") if line.startswith("#")]
    for line in text.split("\n"):
        if line.startswith("# "):
            assert line in kept, "a comment of a person's is gone"


@given(st.text(max_size=200))
@example("---\n: \n---\n")
@example("---\n? \n---\n")
@example("---\n!!\n---\n")
@example("---\n\ta: 1\n---\n")
@example('---\na: "\\ud800"\n---\n')
def test_reading_never_raises(text: str) -> None:
    for given_text in (text, f"---\n{text}\n---\n"):
        assert isinstance(parse(given_text).title, str)


@pytest.mark.timeout(20)
def test_a_line_is_read_in_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 * 10**10 steps where it grows with the square."""
    monkeypatch.setattr(note, "FRONT_MAX", 10**7)
    blanks, quotes = " " * 200_000, "''" * 100_000
    found = note.read_head(f"a: x{blanks}y\nb:{blanks}z \t\r\nc: [{quotes}\nd: x{blanks}#{blanks}\n")
    assert found == {"a": f"x{blanks}y", "b": "z", "c": None, "d": "x"}
