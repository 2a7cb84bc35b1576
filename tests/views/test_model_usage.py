"""What results say of models' tokens and cost, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.views import figures


def result(tokens: int | None, cost: float | None = 0.25, wait: float | None = 2.0) -> dict[str, Any]:
    kinds = {"input": tokens, "output": None if tokens is None else 1, "cache_read": None, "cache_write": None, "estimated": 0}
    return {"tokens": kinds, "cost_usd": cost, "waits": {"tokens_s": wait}}


def test_nobody_knows_of_any() -> None:
    assert figures.of([]) is None
    assert figures.of([None, {}, result(None, None, None)]) is None
    assert figures.total([None]) is None


def test_all_attempts_and_all_tasks_are_summed() -> None:
    one = figures.of([result(999), None, result(1999, 0.5, None)])
    assert one == {"tokens": 3000, "cost_usd": 0.75, "wait_s": 2.0, "models": []}
    assert figures.total([one, None, figures.of([result(0, 0.0)])]) == {
        "tokens": 3001,
        "cost_usd": 0.75,
        "wait_s": 4.0,
        "models": [],
    }


def test_a_cost_of_which_a_part_is_not_known_is_not_known() -> None:
    assert figures.of([result(5), result(5, None)]) == {"tokens": 12, "cost_usd": None, "wait_s": 4.0, "models": []}


BOTH = [{"asked": "opus", "answered": name, "requests": number} for name, number in (("haiku", 3), ("opus", 7))]


def test_who_answered_is_summed_over_attempts() -> None:
    taken = figures.of([{**result(5), "models": BOTH}, {**result(5), "models": BOTH[:1]}])
    assert taken is not None and [one["requests"] for one in taken["models"]] == [6, 7]


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"tokens": 61_000, "cost_usd": 4.214, "wait_s": 12.0}, "61k tokens, $4.21, waited 12s"),
        ({"tokens": 840, "cost_usd": 0.0123, "wait_s": 0.4}, "840 tokens, $0.0123"),
        ({"tokens": 840, "cost_usd": None, "wait_s": 0.0}, "840 tokens, cost not known"),
        ({"tokens": 840, "cost_usd": None, "wait_s": 0.0, "models": BOTH}, "840 tokens, cost not known, haiku answered 3 of 10 for opus"),
    ],
)
def test_in_words(of: dict[str, Any], said: str) -> None:
    assert figures.text(of, "12s") == said
