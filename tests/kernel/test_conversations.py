"""How a conversation is kept, and when an agent gave up for a limit."""

from __future__ import annotations

import pytest

from supervisor.kernel import codec
from supervisor.kernel.conversations import How, Origin, is_limited

OLD = Origin(How.RESUME, "s", "run/a", 2, "c0ffee")


def test_an_origin_is_read_back() -> None:
    assert codec.loads(Origin, codec.dumps(OLD)) == OLD


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
