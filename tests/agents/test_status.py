"""Fusion of evidence: which source decides, what absence means, and that every piece is explained."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.agent_state import ENDED, NEEDS_PERSON, AgentState, Evidence, Source, fuse

S = AgentState


def said(source: Source, state: AgentState, at: float = 1.0, detail: str = "", session: str = "", sequence: int = 0) -> Evidence:
    return Evidence(source, state, at, detail, session, sequence)


CASES = {
    "nothing is unknown": ([], S.UNKNOWN),
    "a process alone is only starting": ([said(Source.PROCESS, S.STARTING)], S.STARTING),
    "a process of which nobody can say more": ([said(Source.PROCESS, S.WORKING)], S.WORKING),
    "a process that could say more and does not": ([said(Source.PROCESS, S.UNKNOWN)], S.UNKNOWN),
    "an end wins over every word": (
        [said(Source.PROCESS, S.CRASHED, 1), said(Source.HOOK, S.WORKING, 9), said(Source.GATEWAY, S.WORKING, 9)],
        S.CRASHED,
    ),
    "paused wins": ([said(Source.PROCESS, S.PAUSED), said(Source.HOOK, S.WORKING, 9)], S.PAUSED),
    "a hook": ([said(Source.PROCESS, S.STARTING), said(Source.HOOK, S.WORKING)], S.WORKING),
    "Esc fires no hook, the session file tells": ([said(Source.HOOK, S.WORKING, 5), said(Source.SESSION_FILE, S.IDLE, 8)], S.IDLE),
    "a session file that lags behind a hook": ([said(Source.HOOK, S.WORKING, 5), said(Source.SESSION_FILE, S.IDLE, 4)], S.WORKING),
    "at one moment the surer of two": ([said(Source.PROTOCOL, S.IDLE, 5), said(Source.SESSION_FILE, S.WORKING, 5)], S.IDLE),
    "a request after the last word": ([said(Source.HOOK, S.IDLE, 5), said(Source.GATEWAY, S.WORKING, 6)], S.WORKING),
    "a request of before the last word": ([said(Source.HOOK, S.IDLE, 5), said(Source.GATEWAY, S.WORKING, 4)], S.IDLE),
    "a side request while a person is asked": (
        [said(Source.HOOK, S.WAITING_PERMISSION, 5), said(Source.GATEWAY, S.WORKING, 6)],
        S.WAITING_PERMISSION,
    ),
    "a held request": ([said(Source.HOOK, S.WORKING, 5), said(Source.GATEWAY, S.RATE_LIMITED, 4)], S.RATE_LIMITED),
    "a held side request while a person is asked": (
        [said(Source.HOOK, S.WAITING_INPUT, 5), said(Source.GATEWAY, S.RATE_LIMITED, 6)],
        S.WAITING_INPUT,
    ),
    "the gateway alone": ([said(Source.GATEWAY, S.WORKING)], S.WORKING),
    "a dialog before the first word": (
        [said(Source.PROCESS, S.STARTING), said(Source.SCREEN, S.BLOCKED_STARTUP, 2, "trust")],
        S.BLOCKED_STARTUP,
    ),
    "a dialog's text after the first word": ([said(Source.HOOK, S.WORKING), said(Source.SCREEN, S.BLOCKED_STARTUP, 9)], S.WORKING),
    "a screen that says done (X10)": ([said(Source.HOOK, S.WORKING), said(Source.SCREEN, S.DONE, 9)], S.WORKING),
    "a title that says idle": ([said(Source.PROCESS, S.STARTING), said(Source.TITLE, S.IDLE, 9)], S.STARTING),
    "a dialog of one that rests": ([said(Source.HOOK, S.IDLE), said(Source.SCREEN, S.WAITING_INPUT, 9)], S.WAITING_INPUT),
    "a dialog of one that works": ([said(Source.HOOK, S.WORKING), said(Source.SCREEN, S.WAITING_INPUT, 9)], S.WORKING),
    "a screen alone": ([said(Source.SCREEN, S.DONE)], S.UNKNOWN),
    "silence is not idle": ([said(Source.HOOK, S.WORKING, 5), said(Source.SILENCE, S.IDLE, 900)], S.WORKING),
    "a sequence orders one moment": (
        [said(Source.HOOK, S.WORKING, 5, sequence=2), said(Source.HOOK, S.WAITING_PERMISSION, 5, sequence=1)],
        S.WORKING,
    ),
}


@pytest.mark.parametrize(("evidence", "state"), CASES.values(), ids=CASES)
def test_which_source_decides(evidence: list[Evidence], state: AgentState) -> None:
    for order in itertools.permutations(evidence):
        assert fuse(order).state is state


def test_a_nested_agent_of_the_same_kind_does_not_speak_for_its_parent() -> None:
    parents, childs = said(Source.HOOK, S.WORKING, 5, session="parent"), said(Source.HOOK, S.IDLE, 9, session="child")
    status = fuse([parents, childs], "parent")
    assert status.state is S.WORKING
    assert [one.why for one in status.considered] == ["decides", "another session's"]
    assert fuse([childs, said(Source.HOOK, S.WORKING, 5)], "parent").state is S.WORKING


def test_each_piece_is_explained_and_a_hint_asks_for_a_look() -> None:
    evidence = [
        said(Source.HOOK, S.WORKING, 5),
        said(Source.HOOK, S.IDLE, 4),
        said(Source.SESSION_FILE, S.IDLE, 3),
        said(Source.SCREEN, S.WAITING_PERMISSION, 7, "its screen asks: Do you want to proceed?"),
    ]
    status = fuse(evidence)
    assert (status.state, status.since, status.rule) == (S.WORKING, 5, "the agent's newest word")
    assert [one.why for one in status.considered] == ["decides", "older than another of its source", "is overruled", "only a hint"]
    assert status.look == "its screen asks: Do you want to proceed?"
    assert not status.needs_person


PIECES = st.builds(
    Evidence,
    st.sampled_from(Source),
    st.sampled_from(AgentState),
    st.integers(0, 9).map(float),
    st.sampled_from(["", "detail"]),
    st.sampled_from(["", "own", "child"]),
    st.integers(0, 3),
)


@given(st.lists(PIECES, max_size=12), st.randoms(use_true_random=False))
def test_order_never_matters_and_hints_end_and_finish_nothing(evidence: list[Evidence], chance: random.Random) -> None:
    status = fuse(evidence, "own")
    shuffled = list(evidence)
    chance.shuffle(shuffled)
    again = fuse(shuffled, "own")
    assert (again.state, again.rule) == (status.state, status.rule)
    assert len(status.considered) == len(evidence)
    own = [piece for piece in evidence if piece.session in ("", "own")]
    if status.state in ENDED | {S.IDLE, S.INTERRUPTED, S.WORKING}:
        assert any(piece.state is status.state and piece.source < Source.TITLE for piece in own)
    if status.state in NEEDS_PERSON - {S.BLOCKED_STARTUP}:
        assert any(piece.state is status.state and piece.source < Source.TITLE for piece in own)
