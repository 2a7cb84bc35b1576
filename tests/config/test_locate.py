"""The line that an error names is the line of the key."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from supervisor.config.toml import LocatePath, _Scan, line_of, longest_key
from tests.rounds import examples

PLAN = """\
# [[tasks]] is not a table here
title = "one"            # nor = here
defaults.timeout = "5m"

[[tasks]]
id = "a"
params = { A = "1", "B.C" = '2' }
prompt = \"\"\"
[[tasks]]
id = "not a key"
\\"\"\" still inside
\"\"\"
command = [
    "sh",   # [[tasks]]
    "-c",
    '[[tasks]]',
]
after = []

[tasks.extra]
deep . "quoted key" = 1

[[ tasks ]]
'id' = "b"
"comm\\u0061nd" = '''
id = 3
'''
retries=1
list = [
  { x = 1 },
  { x = 2, y = [
      3,
      4,
  ] },
]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["title"], 2),
        (["defaults", "timeout"], 3),
        (["defaults"], 3),
        (["defaults", "absent"], 3),
        (["tasks"], 5),
        (["tasks", 0], 5),
        (["tasks", 0, "absent"], 5),
        (["tasks", 0, "id"], 6),
        (["tasks", 0, "params"], 7),
        (["tasks", 0, "params", "B.C"], 7),
        (["tasks", 0, "params", "absent"], 7),
        (["tasks", 0, "prompt"], 8),
        (["tasks", 0, "command"], 13),
        (["tasks", 0, "command", 2], 16),
        (["tasks", 0, "after"], 18),
        (["tasks", 0, "extra"], 20),
        (["tasks", 0, "extra", "deep", "quoted key"], 21),
        (["tasks", 1], 23),
        (["tasks", 1, "id"], 24),
        (["tasks", 1, "command"], 25),
        (["tasks", 1, "retries"], 28),
        (["tasks", 1, "list", 0, "x"], 30),
        (["tasks", 1, "list", 1, "x"], 31),
        (["tasks", 1, "list", 1, "y", 1], 33),
        (["tasks", 2], 5),
        (["absent"], 1),
        ([], 1),
    ],
)
def test_lines(path: LocatePath, line: int) -> None:
    assert tomllib.loads(PLAN)
    assert line_of(PLAN, path) == line


def test_tables_inside_arrays_of_tables_belong_to_the_newest_element() -> None:
    text = "[[a]]\n[[a.b]]\n[a.b.c]\nx=1\n[[a.b]]\n[[a]]\n[[a.b]]\n[a.b.c]\nx=2\n"
    assert line_of(text, ["a", 0, "b", 0, "c", "x"]) == 4
    assert line_of(text, ["a", 0, "b", 1]) == 5
    assert line_of(text, ["a", 1, "b", 0, "c", "x"]) == 9


def test_quotes_at_the_end_of_a_long_string_are_its_own() -> None:
    text = 'x = ["""a"""", "b",\n[1]]\n'
    assert tomllib.loads(text) == {"x": ['a"', "b", [1]]}
    assert line_of(text, ["x", 2, 0]) == 2


@pytest.mark.parametrize(
    ("text", "parts", "line"),
    [
        ("", 0, 1),
        ("a = 1", 1, 1),
        ("a = 1\nb.c.d = 1", 3, 2),
        ("a = 1\nx = { b . 'c' . \"d\" . e = 1 }", 4, 2),
        ("\n[a.b.c]", 3, 2),
        ('a = "b.c.d"  # e.f.g', 1, 1),
        ('a = """\nb.c.d\n"""', 1, 1),
        ("a = 1.5", 2, 1),
    ],
)
def test_longest_key(text: str, parts: int, line: int) -> None:
    assert longest_key(text) == (parts, line)


# Every document that tomllib reads ---------------------------------------------------------------------------------------------------

KEYS = ["a", "B-2", "_c", "7", "x.y", "[t]", "tasks", "it's", 'say "no"', "tab\there", "é", ""]
TEXTS = ["", "plain", "[[tasks]]", "# no comment", "a = 1", "quote ' and \"", "back\\slash", "line\nbreak\n[x]\ny = 2", '"""', "}{][,="]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Text of random tables, keys, values and layout; not always valid."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 12))):
        gap = draw(st.sampled_from(["", " ", "\t "]))
        kind = draw(st.integers(0, 5))
        name = f"{gap}.{gap}".join(draw(st.lists(st.sampled_from(KEYS).map(_key_text), min_size=1, max_size=3)))
        comment = draw(st.sampled_from(["", "", '# "', "# [[a]]"]))
        if kind == 0:
            lines.append(f"{gap}[[{gap}{name}{gap}]]{gap}{comment}")
        elif kind == 1:
            lines.append(f"{gap}[{gap}{name}{gap}]{gap}{comment}")
        else:
            lines.append(f"{gap}{name}{gap}={gap}{draw(_values())}{gap}{comment}")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


def _key_text(key: str) -> str:
    return key if key and key.isascii() and key.replace("-", "").replace("_", "").isalnum() else json.dumps(key)


def _values() -> st.SearchStrategy[str]:
    scalars = st.one_of(
        st.sampled_from(["1", "-1.5", "1e3", "true", "nan", "2020-01-02T03:04:05.678Z", "0xff", "''", "'[[a]]'", "'''\n'a' = '''''"]),
        st.sampled_from(TEXTS).map(json.dumps),
        st.sampled_from(TEXTS).map(lambda text: '"""' + text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') + ' """'),
    )
    return st.recursive(scalars, _containers, max_leaves=8)


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    glue = st.sampled_from([",", " , ", ",\n", " # ]\n, # [\n"])
    arrays = st.tuples(glue, st.lists(inner, max_size=3)).map(lambda made: "[" + made[0].join(made[1]) + "]")
    pairs = st.tuples(st.sampled_from(KEYS).map(_key_text), inner).map(" = ".join)
    return arrays | st.lists(pairs, max_size=3).map(lambda made: "{" + ", ".join(made) + "}")


def paths_of(shape: Any) -> list[list[str | int]]:
    """Every path that leads to a scalar, or to an empty table or array."""
    inner = shape.items() if isinstance(shape, dict) else enumerate(shape) if isinstance(shape, list) else ()
    found: list[list[str | int]] = [[key, *rest] for key, item in inner for rest in paths_of(item)]
    return found or [[]]


@settings(max_examples=examples(60))
@given(documents())
def test_in_every_document_that_tomllib_reads_every_value_is_found(text: str) -> None:
    try:
        shape = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    found = {tuple(path): line for line, path in reversed(_Scan(text).found)}
    assert {tuple(path) for path in paths_of(shape) if path} <= found.keys()
    lines = text.splitlines()
    for where, line in found.items():
        here: Any = shape
        for part in where:
            here = here[part]
        assert isinstance(where[-1], int) or _key_text(where[-1]) in lines[line - 1]


@given(st.text("[]{}=.,\"'\\#\n ab1", max_size=60))
def test_of_any_other_text_it_makes_what_it_can(text: str) -> None:
    assert 1 <= line_of(text, ["a", 0, "b"]) <= text.count("\n") + 1
    assert 1 <= longest_key(text)[1] <= text.count("\n") + 1
