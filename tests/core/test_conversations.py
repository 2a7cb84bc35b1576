"""What an agent that continues a conversation is told, and when it gave up for a limit."""

from __future__ import annotations

import pytest

from supervisor.kernel.conversations import How, Origin, Where, is_limited, told

OLD = Origin(How.RESUME, "s", "run/a", 2, "c0ffee")
HERE = Where("/w", "nightcrew/run/a/work", moved=False)


def test_who_was_interrupted_is_told_where_it_is_and_not_its_prompt_again() -> None:
    said = told(OLD, HERE, "Do it.", own=True)
    assert said.startswith("[nightcrew] You were interrupted. You are now in /w, on the branch nightcrew/run/a/work.")
    assert "Do it." not in said and "not yours" not in said
    assert "not yours any more" in told(OLD, Where("/w", "b", moved=True), None, own=True)


def test_who_was_stopped_by_us_is_told_why() -> None:
    assert told(OLD, HERE, "Do it.", own=True, stopped="You took too much.").startswith("[nightcrew] You took too much. You are now in /w")


def test_a_question_and_a_copy_say_whose_conversation_it_is() -> None:
    assert "goes on from the task run/a." in told(OLD, HERE, "Why?", own=False)
    copy = told(Origin(How.FORK, "s", "run/a", 2, "c0ffee"), HERE, "Do more.", own=False)
    assert "is a copy of that of the task run/a." in copy and copy.endswith("\n\nDo more.")


def test_an_origin_is_read_back() -> None:
    assert Origin.from_json(OLD.to_json()) == OLD


@pytest.mark.parametrize(
    ("reason", "limited"),
    [
        ("api_error 429: rate_limit_error", True),
        ("error: Claude AI usage limit reached|1763800000", True),
        ("You've hit your usage limit.", True),
        ("api_error 529: Overloaded", True),
        ("max_turns: it took 4290 steps", False),
        ("permission denied", False),
        ("", False),
    ],
)
def test_a_spent_limit_is_known_by_its_words(reason: str, limited: bool) -> None:
    assert is_limited(reason) is limited
