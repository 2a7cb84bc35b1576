"""What is sent of a conversation, what is left out as it grows, and when a budget is reached. Pure."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agents.conversation import Budget, Conversation, Spent, reached

WINDOW = 10_000


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def turn(conversation: Conversation, number: int, size: int) -> None:
    """A call and its result of `size` characters."""
    conversation.add("assistant", [{"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": "x"}}])
    conversation.add("user", [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "r" * size}])


def marks(messages: list[dict[str, Any]]) -> list[int]:
    return [place for place, message in enumerate(messages) if "cache_control" in message["content"][-1]]


def test_each_request_has_breakpoints_where_the_one_before_had_its_last() -> None:
    conversation = Conversation(WINDOW)
    conversation.add("user", [text("do it")])
    assert marks(conversation.for_request()) == [0]
    turn(conversation, 1, 10)
    assert marks(conversation.for_request()) == [0, 2]
    turn(conversation, 2, 10)
    assert marks(conversation.for_request()) == [2, 4]
    assert marks(conversation.messages) == [], "what is kept stays as it was"


def test_old_results_are_shortened_first_and_the_newest_stay() -> None:
    conversation = Conversation(WINDOW)
    conversation.add("user", [text("do it")])
    for number in range(5):
        turn(conversation, number, 6000)
    assert conversation.fit() > 0
    results = [message["content"][0]["content"] for message in conversation.messages[2::2]]
    assert len(results) == 5 and len(results[0]) < 600 and "left out" in results[0]
    assert results[-1] == "r" * 6000
    assert conversation.fit() == 0, "far enough that the next requests find their cache again"


def test_it_never_grows_beyond_the_room_and_stays_what_the_api_takes(seed: int) -> None:
    rng = random.Random(seed)
    conversation = Conversation(WINDOW)
    conversation.add("user", [text("do it")])
    for number in range(300):
        turn(conversation, number, rng.choice([10, 700, 3000, 20_000]))
        conversation.fit()
        sent = conversation.for_request()
        assert len(json.dumps(sent)) < 3 * WINDOW
        assert [message["role"] for message in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"]
        asked = [block["id"] for message in sent for block in message["content"] if block["type"] == "tool_use"]
        assert asked == [block["tool_use_id"] for message in sent for block in message["content"] if block["type"] == "tool_result"]
    assert sent[0]["content"][0] == text("do it") and "left out here" in sent[0]["content"][1]["text"]
    assert len(sent[0]["content"]) == 2, "said once"


def test_too_long_for_the_server_means_less_room_from_then_on() -> None:
    conversation = Conversation(1_000_000)
    conversation.add("user", [text("do it")])
    for number in range(4):
        turn(conversation, number, 6000)
    assert conversation.shrink() > 0
    size = len(json.dumps(conversation.messages))
    for number in range(4, 40):
        turn(conversation, number, 6000)
        conversation.fit()
    assert len(json.dumps(conversation.messages)) < 1.5 * size + 6000
    alone = Conversation(1_000_000)
    alone.add("user", [text("a prompt that is all there is")])
    assert alone.shrink() == 0


def test_tokens_are_counted_as_the_answers_say() -> None:
    conversation = Conversation(WINDOW)
    conversation.add("user", [text("do it")])
    for number in range(4):
        turn(conversation, number, 6000)
    conversation.learn(5000)  # 24 kB in 5000 tokens: half of the room
    assert conversation.fit() == 0
    conversation.learn(9000)
    assert conversation.fit() > 0


@pytest.mark.parametrize(
    ("budget", "spent", "newest", "why"),
    [
        (Budget(), Spent(10**6, 10**9, 10**6), Spent(), ""),
        (Budget(steps=1), Spent(), Spent(), "steps"),
        (Budget(steps=3), Spent(1), Spent(1), ""),
        (Budget(steps=3), Spent(2), Spent(1), "steps"),
        (Budget(tokens=100), Spent(1, 39), Spent(1, 30), ""),
        (Budget(tokens=100), Spent(1, 40), Spent(1, 30), "tokens"),
        (Budget(cost_usd=1), Spent(1, 9, 0.5), Spent(1, 9, 0.2), ""),
        (Budget(cost_usd=1), Spent(1, 9, 0.6), Spent(1, 9, 0.2), "cost"),
    ],
)
def test_when_the_next_request_is_the_last(budget: Budget, spent: Spent, newest: Spent, why: str) -> None:
    assert reached(budget, spent, newest) == why
