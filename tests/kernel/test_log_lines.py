"""A line of a log as JSON: one line, whatever was said; an error keeps its parts; who it is about is named."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.audit import Level, level_of, line
from supervisor.kernel.errors import NotFound
from supervisor.kernel.names import trace_id

HOSTILE = st.text() | st.sampled_from(["\x1b]0;x\x07", "a\nb\r", "\ud800\u202e", '}"}{'])


@given(HOSTILE, HOSTILE, HOSTILE)
def test_it_is_one_line_of_ascii(text: str, why: str, more: str) -> None:
    for said in (text, NotFound(text, on=why, why=why, kept=text, hint=more)):
        written = line(1.0, level_of(said), "nightcrew.supervisor", said, more)
        assert written.isascii() and written.isprintable()
        shape = json.loads(written)
        assert shape["time"] == "1970-01-01T00:00:01.000Z"
        assert not any(ord(char) < 32 or char == "\u202e" for char in shape["message"])


def test_an_error_keeps_its_parts() -> None:
    error = NotFound("no task", on="x", why="nothing has it", kept="all", hint="nightcrew status")
    shape = json.loads(line(1.0, Level.WARNING, "nightcrew.gateway", error, " (3 more)"))
    assert shape["error"] == {
        "class": "NotFound", "what": "no task", "on": "x", "why": "nothing has it", "kept": "all", "hint": "nightcrew status",
    }  # fmt: skip
    assert (shape["level"], shape["logger"], shape["message"]) == ("warning", "nightcrew.gateway", f"{error.line()} (3 more)")


def test_who_it_is_about() -> None:
    for text, about in (
        ("1125-k3f9/fix_it:2: its git hung", ("1125-k3f9", "1125-k3f9/fix_it", 2)),
        ("429 for 1125-k3f9/fix-it: no turn", ("1125-k3f9", "1125-k3f9/fix-it", None)),
    ):
        shape = json.loads(line(1.0, Level.INFO, "l", text))
        assert (shape["run"], shape["task"], shape["epoch"], shape["trace"]) == (*about, trace_id("1125-k3f9"))
    for text in ("/state/1125-k3f9/fix/1/out", "at 2026-11-25/x.py", "nothing"):
        assert "task" not in json.loads(line(1.0, Level.INFO, "l", text)), text
