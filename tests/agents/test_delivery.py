"""When a text may be typed, and what confirms it: pure, and against recorded screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.data
from agents import delivery
from agents.delivery import Known, Session
from agents.tmux import typed_text

SCREENS = Path(tests.data.__file__).parent / "screens"
IDLE = Session("idle", since=1000)
RECORD = {"pid": 7, "procStart": "99", "status": "waiting", "waitingFor": "dialog open", "statusUpdatedAt": 5}
"""As Claude Code 2.1.329 writes it, with the other keys left out."""


@pytest.mark.parametrize("screen", sorted(SCREENS.glob("*/*.txt")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_dialog_is_known_by_its_label_and_nothing_else_is_one(screen: Path) -> None:
    cli = screen.parent.name.rpartition("-")[0]
    found = delivery.dialog(screen.read_text(encoding="utf-8"))
    expected = None if screen.stem.startswith("no-dialog") else (cli, screen.stem)
    assert (None if found is None else (found.cli, found.label)) == expected


def test_every_known_dialog_was_recorded() -> None:
    recorded = {(path.parent.name.rpartition("-")[0], path.stem) for path in SCREENS.glob("*/*.txt")}
    assert {(one.cli, one.label) for one in delivery.dialogs()} <= recorded


def test_words_of_a_dialog_that_scrolled_away_hold_nothing_back() -> None:
    screen = (SCREENS / "claude-2.1.329/trust.txt").read_text(encoding="utf-8")
    assert delivery.dialog(screen + "line\n" * 30) is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (Known(), ""),
        (Known(session=IDLE), ""),
        (Known(session=Session("busy")), "it works"),
        (Known(session=Session("waiting", "permission prompt")), "it waits for a person: permission prompt"),
        (Known(session=Session("waiting")), "it waits for a person: a dialog"),
        (Known(session=Session("")), "it has not begun its session: it starts, or shows a dialog"),
        (Known(session=IDLE, person_s=1.0), "a person types in its pane"),
        (Known(session=IDLE, person_s=60.0), ""),
        (Known(age_s=0.5), "its program has only just begun"),
        (Known(session=IDLE, age_s=0.5), ""),
        (Known(unread=1), "its program does not read its terminal now"),
        (Known(line_max=4), "its program reads whole lines, of at most 4 bytes; the longest has 5"),
        (Known(line_max=5), ""),
    ],
)
def test_what_is_known_says_whether_a_text_may_be_typed(known: Known, why: str) -> None:
    assert delivery.why_not(known, "abcd\näb") == why


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (RECORD, Session("waiting", "dialog open", 5)),
        ({**RECORD, "pid": 8}, Session("")),
        ({**RECORD, "procStart": "100"}, Session("")),
        ({**RECORD, "status": "asleep"}, Session("")),
        ({**RECORD, "status": ["idle"]}, Session("")),
        ({**RECORD, "status": "idle", "statusUpdatedAt": "never", "waitingFor": None}, Session("idle")),
        ([], Session("")),
    ],
)
def test_a_session_record_counts_for_the_process_that_it_names(record: Any, expected: Session) -> None:
    assert delivery.session(json.dumps(record).encode(), 7, 99) == expected


@given(st.one_of(st.none(), st.binary()))
def test_any_bytes_for_a_session_record_say_nothing(data: bytes | None) -> None:
    assert delivery.session(data, 7, 99) == Session("")


def test_only_a_change_of_its_status_confirms_and_only_idle_is_pressed_again() -> None:
    before = Known(session=IDLE)
    same, busy, back = Known(session=IDLE), Known(session=Session("busy", since=1001)), Known(session=Session("idle", since=1500))
    assert [delivery.confirmed(before, after) for after in (same, busy, back, Known())] == [False, True, True, False]
    assert [delivery.may_press_again(before, after) for after in (same, busy, back, Known())] == [True, False, False, False]
    trust = (SCREENS / "claude-2.1.329/trust.txt").read_text(encoding="utf-8")
    assert not delivery.may_press_again(before, Known(session=IDLE, screen=trust))
    assert not delivery.may_press_again(Known(), Known()), "a program that says nothing gets one Enter"


def test_an_unknown_program_is_waited_for_until_it_has_read_all() -> None:
    assert [delivery.settled(Known(), after) for after in (Known(), Known(unread=3))] == [True, False]
    assert delivery.why_unconfirmed(Known(unread=3)) == "its program has not read all of it yet"
    assert delivery.why_unconfirmed(Known(session=IDLE)) == "nothing says that it took it"


@given(st.text(alphabet=st.characters()))
def test_what_is_typed_drives_no_terminal_and_is_typed_so_again(text: str) -> None:
    typed = typed_text(text)
    assert typed_text(typed) == typed
    assert not any((char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f" for char in typed)
