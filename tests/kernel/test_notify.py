"""What a person is told, when, and how often."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.notify import rules as notify_rules
from supervisor.features.notify.rules import (
    AGAIN_S,
    ASKED_S,
    AWAY,
    GROUP_S,
    HERE,
    LINE_MAX,
    LINES,
    PAUSE_S,
    RETRY_S,
    URGENT_PAUSE_S,
    Kind,
    Known,
    Message,
    Notice,
    Receiver,
    Terms,
)
from supervisor.kernel import codec
from supervisor.kernel.night import Window

NOW = 1_700_000_000.0
NOON = 12 * 60
TERMS = Terms((Receiver("env:A", "env:A"), Receiver("env:B", "env:B")))
QUIET = replace(TERMS, quiet=Window(22 * 60, 6 * 60))


def failed(task: str, at: float = NOW) -> Notice:
    return Notice(Kind.FAILED, f"failed {task}", f"{task}: failed", at)


def told(known: Known, happened: Iterable[Notice], now: float, *, terms: Terms = TERMS, minute: int = NOON) -> tuple[Known, list[Message]]:
    """One look, at which every receiver takes everything."""
    known = notify_rules.pack(notify_rules.hear(known, happened, [], now, terms), now, minute, terms)
    sent = []
    while (message := notify_rules.due(known, now)) is not None:
        sent.append(message)
        known, _ = notify_rules.sent(notify_rules.sending(known, message.number, now), message.number, (), now)
    return known, sent


def test_many_of_a_short_time_are_one_message() -> None:
    known, first = told(Known(), [failed(f"r/{number}") for number in range(200)], NOW)
    assert first == [], "others may follow"
    known, (message,) = told(known, [], NOW + GROUP_S)
    assert message.title == "nightcrew: 200 failed"
    assert message.body.splitlines() == [*(f"r/{number}: failed" for number in range(LINES)), f"and {200 - LINES} more failed"]
    known, soon = told(known, [failed("r/late", NOW + 20)], NOW + 20)
    _, later = told(known, [], NOW + GROUP_S + PAUSE_S - 1)
    assert (soon, later) == ([], []), "a storm that goes on is a message every few minutes"
    _, (second,) = told(known, [], NOW + GROUP_S + PAUSE_S)
    assert second.title == "nightcrew: failed"


def test_who_needs_a_person_is_told_at_once_and_the_next_ones_together_a_little_later() -> None:
    for pace, pause in ((AWAY, URGENT_PAUSE_S), (HERE, 10.0)):
        terms = replace(TERMS, pace=pace)
        known, first = told(Known(), [notify_rules.needs_person("r/a", "", NOW)], NOW, terms=terms)
        known, (message,) = told(known, [], NOW + ASKED_S, terms=terms)
        assert first == [] and (message.title, message.at) == ("nightcrew: needs you", NOW)
        more = [notify_rules.needs_person(f"r/{number}", "", NOW + 2) for number in range(200)]
        known, soon = told(known, more, NOW + 2, terms=terms)
        known, before = told(known, [], NOW + ASKED_S + pause - 0.1, terms=terms)
        _, (second,) = told(known, [], NOW + ASKED_S + pause, terms=terms)
        assert (soon, before, second.title) == ([], [], "nightcrew: 200 needs you")


def test_the_same_thing_is_told_once_in_a_quarter_of_an_hour() -> None:
    known, _ = told(Known(), [failed("r/a")], NOW)
    known, (_,) = told(known, [failed("r/a")], NOW + GROUP_S)
    kept = codec.check(Known, json.loads(codec.dumps(known)))
    assert kept == known, "and so does the next supervisor"
    kept, again = told(kept, [failed("r/a", NOW + AGAIN_S - 1)], NOW + AGAIN_S - 1)
    assert again == [] and kept.groups == ()
    kept, _ = told(kept, [failed("r/a", NOW + AGAIN_S)], NOW + AGAIN_S)
    assert [group.count for group in kept.groups] == [1]


def test_what_goes_on_is_told_once_while_it_does() -> None:
    asks, known, count = notify_rules.needs_person("r/a", "may I?", NOW), Known(), 0
    for second in range(0, 4 * int(AGAIN_S), 5):
        known = notify_rules.pack(notify_rules.hear(known, [], [asks], NOW + second, TERMS), NOW + second, NOON, TERMS)
        count += len(known.outbox)
        known = replace(known, outbox=())
    assert count == 1
    gone = notify_rules.hear(known, [], [], NOW + 5 * AGAIN_S, TERMS)
    assert notify_rules.hear(gone, [], [asks], NOW + 5 * AGAIN_S, TERMS).groups != (), "a new question of an hour later"


def test_quiet_hours_hold_all_but_the_urgent_and_end_with_one_message() -> None:
    night, trouble = 23 * 60, Notice(Kind.BREAKER_OPEN, "gateway", "the key is refused", NOW)
    known, _ = told(Known(), [failed("r/a"), notify_rules.needs_person("r/b", "", NOW), trouble], NOW, terms=QUIET, minute=night)
    known, (urgent,) = told(known, [], NOW + GROUP_S, terms=QUIET, minute=night)
    assert urgent.title == "nightcrew: no model is served"
    known, held = told(known, [failed("r/c", NOW + 7200)], NOW + 7200, terms=QUIET, minute=night)
    assert held == []
    _, (morning,) = told(known, [], NOW + 8 * 3600, terms=QUIET, minute=6 * 60)
    assert morning.title == "nightcrew: 2 failed, needs you"


def test_a_receiver_that_is_down_is_tried_again_and_then_given_up() -> None:
    known, _ = told(Known(), [failed("r/a")], NOW)
    known = notify_rules.pack(known, NOW + GROUP_S, NOON, TERMS)
    now, tries, left = NOW + GROUP_S, 0, list[tuple[str, ...]]()
    while (message := notify_rules.due(known, now)) is not None:
        tries, left = tries + 1, [*left, message.left]
        known, given_up = notify_rules.sent(notify_rules.sending(known, message.number, now), message.number, ("env:B",), now)
        now += RETRY_S[min(tries, len(RETRY_S)) - 1]
    assert given_up and known.outbox == () and tries == len(RETRY_S) + 1
    assert left == [("env:A", "env:B"), *[("env:B",)] * len(RETRY_S)], "who has it is not told again"


def test_a_message_whose_sender_was_killed_goes_again_but_not_before_a_quarter_of_an_hour() -> None:
    known, _ = told(Known(), [failed("r/a")], NOW)
    known = notify_rules.sending(notify_rules.pack(known, NOW + GROUP_S, NOON, TERMS), 1, NOW + GROUP_S)
    after = codec.check(Known, json.loads(codec.dumps(known)))
    assert notify_rules.due(after, NOW + GROUP_S + AGAIN_S - 1) is None
    assert notify_rules.due(after, NOW + GROUP_S + AGAIN_S) is not None


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    known, _ = told(Known(), [failed("r/a")], NOW)
    _, (message,) = told(known, [], NOW - 86400)
    assert message.title == "nightcrew: failed"


def test_what_is_a_day_old_or_not_asked_for_is_not_told() -> None:
    terms = replace(TERMS, on=frozenset({Kind.NIGHT_DONE}))
    assert notify_rules.hear(Known(), [failed("r/a")], [], NOW, terms).groups == ()
    assert notify_rules.hear(Known(), [failed("r/a", NOW - 90000)], [], NOW, TERMS).groups == ()


@pytest.mark.parametrize(
    ("event", "data", "tells"),
    [
        ("end failed", {"task": "failed", "cause": "SECRET"}, "r/a: failed"),
        ("end failed", {"task": "ready", "cause": "it runs again"}, None),
        ("end lost", {"task": "quarantined"}, "r/a: quarantined"),
        ("end cancelled", {"task": "cancelled"}, None),
        ("expired", {"reason": "SECRET"}, "r/a: expired"),
        ("skipped", {}, None),
        ("set aside", {"question": "SECRET"}, "r/a needs you"),
        ("permission asked", {"why": "rm -rf"}, None),
    ],
)
def test_what_the_journal_tells_without_text(event: str, data: dict[str, str], tells: str | None) -> None:
    found = notify_rules.of_journal(event, "r/a", data, NOW, text=False)
    assert (found and found.line) == tells
    shown = notify_rules.of_journal(event, "r/a", data, NOW, text=True)
    assert shown is None or ("SECRET" in shown.line) is ("SECRET" in data.values())


def test_the_crews_own_events() -> None:
    ended = notify_rules.of_journal("night ended", None, {"run": "1121-k3f9", "why": "all is done"}, NOW, text=False)
    assert ended is not None and (ended.kind, ended.line) == (Kind.NIGHT_DONE, "night 1121-k3f9 has ended: all is done")
    assert notify_rules.of_journal("outage", None, {"why": "no provider"}, NOW, text=False) is not None
    assert notify_rules.cap_near("cost_per_night", 0.79, NOW) == [] == notify_rules.cap_near("x", None, NOW)
    (near,) = notify_rules.cap_near("cost_per_night", 0.805, NOW)
    assert near.line == "cost_per_night: 80% is spent"


@given(st.text(max_size=500), st.text(max_size=500))
def test_hostile_text_is_one_harmless_line(task: str, question: str) -> None:
    found = notify_rules.line(task, question)
    assert len(found) <= LINE_MAX
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) <= 0xDFFF for char in found)
    assert not set(found) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
