"""The weight of a request's work, by the stated signals in their order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.gateway.wire.requests import Asked, Endpoint, read, recognise
from supervisor.gateway.wire.work import LONG_BYTES, LONG_TURNS, SHORT_BYTES, SHORT_TURNS, weigh
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.spec import RAISED, WORK


def asked(*, tools: bool = False, turns: int = 1) -> Asked:
    return Asked(Api.ANTHROPIC, Endpoint.MESSAGES, "m", tools=tools, turns=turns)


@pytest.mark.parametrize(
    ("size", "tools", "turns", "weight"),
    [
        (100, False, 1, "trivial"),
        (SHORT_BYTES, False, SHORT_TURNS, "trivial"),
        (SHORT_BYTES + 1, False, 1, "simple"),
        (100, False, SHORT_TURNS + 1, "simple"),
        (100, False, LONG_TURNS + 1, "simple"),
        (100, True, 1, "simple"),
        (LONG_BYTES, True, LONG_TURNS, "simple"),
        (100, True, LONG_TURNS + 1, "complex"),
        (LONG_BYTES + 1, False, 1, "complex"),
    ],
)
def test_a_request_is_weighed_by_its_prompt_then_its_tools_then_its_history(size: int, tools: bool, turns: int, weight: str) -> None:
    found, why = weigh(asked(tools=tools, turns=turns), size, "", raised=False)
    assert found == weight and why


@pytest.mark.parametrize("word", WORK)
def test_the_tasks_own_word_goes_before_every_measure(word: str) -> None:
    assert weigh(asked(tools=True, turns=100), 2 * LONG_BYTES, word, raised=False) == (word, "the task says so")


@pytest.mark.parametrize(("weight", "stronger"), [("trivial", "simple"), ("simple", "complex")])
def test_a_failed_gate_raises_by_one_also_a_tasks_own_word(weight: str, stronger: str) -> None:
    found, why = weigh(asked(), 10, weight, raised=True)
    assert found == stronger and why.endswith(RAISED)
    assert weigh(asked(), 10, "", raised=True)[0] == "simple"


def test_nothing_is_stronger_than_complex_and_none_says_that_it_was_raised() -> None:
    assert weigh(asked(), 10, "complex", raised=True) == ("complex", "the task says so")


@pytest.mark.parametrize(
    ("path", "body", "tools", "turns"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}] * 3, "tools": [{"name": "t"}], "max_tokens": 1}, True, 3),
        ("/v1/messages", {"messages": [], "tools": [], "max_tokens": 1}, False, 0),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, False, 1),
        ("/v1/responses", {"input": "text", "tools": [{"type": "function"}]}, True, 0),
        ("/v1/responses", {"input": [{"role": "user", "content": "x"}] * 2}, False, 2),
    ],
)
def test_the_signals_are_read_from_each_api(path: str, body: dict[str, Any], tools: bool, turns: int) -> None:
    found = recognise("POST", path)
    assert found is not None
    seen = read(found, {"anthropic-version": "1"}, json.dumps({"model": "m", **body}).encode())
    assert (seen.tools, seen.turns) == (tools, turns)


def test_the_signals_are_read_from_gemini() -> None:
    found = recognise("POST", "/v1beta/models/g:generateContent")
    assert found is not None
    body = {"contents": [{"parts": [{"text": "x"}]}] * 4, "tools": [{"functionDeclarations": []}]}
    seen = read(found, {}, json.dumps(body).encode())
    assert (seen.tools, seen.turns) == (True, 4)
