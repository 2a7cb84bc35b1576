"""What agents say of a spent limit, and when it opens again by their words."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import protocols
from agents.protocols.lines import is_spent, resets_at
from tests.agents.protocols.scenarios import DATA, RESETS_AT

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
NOW = datetime(2026, 11, 23, 22, 30, tzinfo=UTC).timestamp()
"""Half past eleven in the evening in Berlin."""


def at(*when: int, zone: ZoneInfo | None = None) -> float:
    return datetime(*when, tzinfo=zone or UTC).timestamp()  # type: ignore[misc,arg-type]  # year to minute


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("Claude AI usage limit reached|1795417472", 1795417472.0),
        ("You've hit your session limit · resets 8pm (UTC)", at(2026, 11, 24, 20)),
        ("You've hit your 5-hour limit · resets 11:04pm (UTC)", at(2026, 11, 23, 23, 4)),
        ("You've hit your 5-hour limit · resets 2am (Europe/Berlin)", at(2026, 11, 24, 2, zone=BERLIN)),
        ("You've hit your 5-hour limit · resets 12am (Europe/Berlin)", at(2026, 11, 24, zone=BERLIN)),
        ("You've hit your 5-hour limit · resets 10:10pm (UTC)", at(2026, 11, 23, 22, 10)),
        ("You've hit your weekly limit · resets Nov 25, 3pm (Europe/Berlin)", at(2026, 11, 25, 15, zone=BERLIN)),
        ("You've hit your weekly limit · resets Jan 2, 2027, 3:33am (UTC)", at(2027, 1, 2, 3, 33)),
        ("You've hit your weekly limit · resets Jan 2 at 3am (UTC)", at(2027, 1, 2, 3)),
        ("You’ve hit your usage limit. Upgrade or try again at 7:04 AM.", at(2026, 11, 24, 7, 4, zone=NEW_YORK)),
        ("You’ve hit your usage limit. Try again at Nov 25th, 2026 7:04 AM.", at(2026, 11, 25, 7, 4, zone=NEW_YORK)),
        ("You’ve hit your usage limit. Try again later.", 0.0),
        ("You've hit your 5-hour limit · resets 25:00pm (Mars/Phobos)", 0.0),
        ("You've hit your weekly limit · resets Feb 31, 3pm (UTC)", 0.0),
        ("You've hit your weekly limit · resets Xyz 3, 3pm (UTC)", 0.0),
    ],
)
def test_when_it_opens_again(words: str, moment: float) -> None:
    assert is_spent(words)
    assert resets_at(words, NOW, NEW_YORK) == moment


@pytest.mark.parametrize(
    "words",
    [
        "You've hit your monthly spend limit.",
        "You've hit your org's monthly spend limit · resets Dec 1",
        "api_error 429: This request would exceed your account's rate limit. Please try again later.",
        "Reached maximum number of turns (2)",
        "I read that you have a limit",
    ],
)
def test_what_is_no_spent_window(words: str) -> None:
    assert not is_spent(words)


@pytest.mark.parametrize(("hours", "day"), [(datetime(2026, 3, 28, 23, tzinfo=UTC), 29), (datetime(2026, 10, 24, 22, tzinfo=UTC), 25)])
def test_a_time_of_day_in_the_night_in_which_the_clocks_change(hours: datetime, day: int) -> None:
    """In March two hours and a half after midnight there are an hour and a half, in October there are three and a half."""
    found = resets_at("You've hit your 5-hour limit · resets 3:30am (Europe/Berlin)", hours.timestamp(), UTC)
    assert datetime.fromtimestamp(found, BERLIN).strftime("%d %H:%M") == f"{day} 03:30"


@given(st.text(max_size=80), st.floats(0, 4e9))
def test_no_words_break_it(words: str, now: float) -> None:
    for text in (words, f"resets {words}", f"try again at {words}"):
        assert resets_at(text, now, UTC) >= 0.0


def test_recorded_answers_say_it() -> None:
    claude = protocols.read("claude", (DATA / "claude-2.1.329" / "spent.jsonl").read_bytes())
    assert claude is not None and claude.spent and claude.resets_at == RESETS_AT == resets_at(claude.spent, NOW, BERLIN) + 20
    codex = protocols.read("codex", (DATA / "codex-0.169.0" / "spent.jsonl").read_bytes())
    assert codex is not None and codex.spent and codex.resets_at == 0.0
    assert NOW < resets_at(codex.spent, NOW, UTC) < NOW + 86_400
    for other in ("tool", "529"):
        said = protocols.read("claude", (DATA / "claude-2.1.329" / f"{other}.jsonl").read_bytes())
        assert said is not None and not said.spent and not said.resets_at
