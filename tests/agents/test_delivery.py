"""When a text may be typed, and what confirms it: pure, and against recorded screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.data
from agents import typing_rules
from agents.agent_state import AgentState, Evidence, Source
from agents.tmux import typed_text
from agents.typing_rules import Known

SCREENS = Path(tests.data.__file__).parent / "screens"
RECORD = {"pid": 7, "procStart": "99", "status": "waiting", "waitingFor": "dialog open", "statusUpdatedAt": 5000, "sessionId": "s"}
"""As Claude Code 2.1.329 writes it, with the other keys left out."""


def words(state: str, at: float = 10.0, source: Source = Source.SESSION_FILE, detail: str = "", session: str = "") -> tuple[Evidence]:
    """What an agent says of itself."""
    return (Evidence(source, AgentState(state), at, detail, session),)


IDLE = words("idle")


@pytest.mark.parametrize("screen", sorted(SCREENS.glob("*/*.txt")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_dialog_is_known_by_its_label_and_nothing_else_is_one(screen: Path) -> None:
    cli = screen.parent.name.rpartition("-")[0]
    found = typing_rules.dialog(screen.read_text(encoding="utf-8"))
    expected = None if screen.stem.startswith("no-dialog") else (cli, screen.stem)
    assert (None if found is None else (found.cli, found.label)) == expected


def test_every_known_dialog_was_recorded() -> None:
    recorded = {(path.parent.name.rpartition("-")[0], path.stem) for path in SCREENS.glob("*/*.txt")}
    assert {(one.cli, one.label) for one in typing_rules.dialogs()} <= recorded


def test_words_of_a_dialog_that_scrolled_away_hold_nothing_back() -> None:
    screen = (SCREENS / "claude-2.1.329/trust.txt").read_text(encoding="utf-8")
    assert typing_rules.dialog(screen + "line\n" * 30) is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (Known(), ""),
        (Known(words=IDLE), ""),
        (Known(words=words("interrupted")), ""),
        (Known(words=words("working")), "it is working"),
        (Known(words=words("waiting_permission", detail="Bash: rm -rf x")), "it is waiting_permission: Bash: rm -rf x"),
        (Known(words=words("waiting_input")), "it is waiting_input"),
        (Known(words=(*words("idle", 9.0, Source.HOOK), *words("working"))), "it is working"),
        (Known(words=(*words("working", 9.0, Source.HOOK), *IDLE)), ""),
        (Known(words=(*words("working", 11.0, Source.HOOK, session="nested"), *words("idle", session="own")), session="own"), ""),
        (Known(begins=True), "it has not begun its session: it starts, or shows a dialog"),
        (Known(words=IDLE, begins=True), ""),
        (Known(words=IDLE, person_s=1.0), "a person types in its pane"),
        (Known(words=IDLE, person_s=60.0), ""),
        (Known(age_s=0.5), "its program has only just begun"),
        (Known(words=IDLE, age_s=0.5), ""),
        (Known(unread=1), "its program does not read its terminal now"),
        (Known(line_max=4), "its program reads whole lines, of at most 4 bytes; the longest has 5"),
        (Known(line_max=5), ""),
    ],
)
def test_what_is_known_says_whether_a_text_may_be_typed(known: Known, why: str) -> None:
    assert typing_rules.why_not(known, "abcd\näb") == why


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (RECORD, *words("waiting_permission", 5.0, detail="dialog open")),
        ({**RECORD, "status": "busy"}, *words("working", 5.0)),
        ({**RECORD, "pid": 8}, None),
        ({**RECORD, "procStart": "100"}, None),
        ({**RECORD, "status": "asleep"}, None),
        ({**RECORD, "status": ["idle"]}, None),
        ({**RECORD, "statusUpdatedAt": "never"}, None),
        ([], None),
    ],
)
def test_a_session_record_counts_for_the_process_that_it_names(record: Any, expected: Evidence | None) -> None:
    assert typing_rules.session_file(json.dumps(record).encode(), 7, 99) == expected


@given(st.one_of(st.none(), st.binary()))
def test_any_bytes_for_a_session_record_say_nothing(data: bytes | None) -> None:
    assert typing_rules.session_file(data, 7, 99) is None


def test_only_its_own_newer_words_confirm_and_only_a_ready_agent_is_pressed_again() -> None:
    before, same = Known(words=IDLE), Known(words=IDLE)
    busy, back = Known(words=words("working", 10.1)), Known(words=words("idle", 12.0))
    assert [typing_rules.confirmed(before, after) for after in (same, busy, back, Known())] == [False, True, True, False]
    assert [typing_rules.may_press_again(before, after) for after in (same, busy, back, Known())] == [True, False, False, False]
    trust = (SCREENS / "claude-2.1.329/trust.txt").read_text(encoding="utf-8")
    assert not typing_rules.may_press_again(before, Known(words=IDLE, screen=trust))
    assert not typing_rules.may_press_again(before, Known(words=IDLE, unread=1)), "it may be about to open a dialog"
    assert not typing_rules.may_press_again(Known(), Known()), "a program that says nothing gets one Enter"


def test_a_turn_too_short_for_the_session_record_is_confirmed_by_the_history_of_prompts() -> None:
    record = b'{"sessionId": "own"}'
    lines = [{"sessionId": session, "timestamp": at} for session, at in (("own", 9000), ("own", 10500), ("other", 99000))]
    history = b'...cut", "timestamp": 1}\n' + b"\n".join(json.dumps(line).encode() for line in lines) + b'\n{"sessionId": "ow'
    assert typing_rules.last_prompt(history, record) == 10.5
    assert [typing_rules.last_prompt(*said) for said in ((b"", record), (history, None), (history, b"{}"), (b"[]\n7", record))] == [0.0] * 4
    before = Known(words=IDLE, looked=10.0, prompted=9.0)
    assert not typing_rules.confirmed(before, Known(words=IDLE, prompted=9.0))
    assert typing_rules.confirmed(before, Known(words=IDLE, prompted=10.5))


def test_a_text_waits_for_a_turn_that_the_session_record_does_not_show_yet() -> None:
    at_once = Known(words=IDLE, looked=11.0, prompted=10.5)
    assert typing_rules.why_not(at_once, "text") == "it is working"
    over = Known(words=words("idle", 12.0), looked=13.0, prompted=10.5)
    assert typing_rules.why_not(over, "text") == ""
    too_short_for_the_record = Known(words=IDLE, looked=10.5 + typing_rules.RECORD_S, prompted=10.5)
    assert typing_rules.why_not(too_short_for_the_record, "text") == ""


def test_one_hook_that_says_idle_again_confirms_nothing_and_a_whole_turn_does() -> None:
    def known(state: str, at: float, sequence: int, session: str = "own") -> Known:
        return Known(words=(Evidence(Source.HOOK, AgentState(state), at, session=session, sequence=sequence),), session="own")

    before = known("idle", 10.0, 4)
    assert not typing_rules.confirmed(before, known("idle", 70.0, 5)), "a notice that an agent is still idle"
    assert typing_rules.confirmed(before, known("working", 11.0, 5))
    assert typing_rules.confirmed(before, known("idle", 11.0, 6)), "a turn that was over before we looked"
    assert typing_rules.confirmed(before, known("waiting_permission", 11.0, 7))
    assert not typing_rules.confirmed(before, known("working", 11.0, 9, session="nested"))
    assert typing_rules.confirmed(Known(), known("working", 11.0, 1))


def test_an_unknown_program_is_waited_for_until_it_has_read_all() -> None:
    assert [typing_rules.settled(Known(), after) for after in (Known(), Known(unread=3))] == [True, False]
    assert typing_rules.why_unconfirmed(Known(unread=3)) == "its program has not read all of it yet"
    assert typing_rules.why_unconfirmed(Known(words=IDLE)) == "nothing says that it took it"


@given(st.text(alphabet=st.characters()))
def test_what_is_typed_drives_no_terminal_and_is_typed_so_again(text: str) -> None:
    typed = typed_text(text)
    assert typed_text(typed) == typed
    assert not any((char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f" for char in typed)
