"""Counts of the providers, cleaned and brought to one form (battery N11)."""

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import Usage
from supervisor.gateway.wire.metering import ABSURD, Meter

from .streams import asked


def meter(kind: str, *messages: object) -> Meter:
    found = Meter(asked(kind))
    for message in messages:
        found.read(message)
    return found


def began(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def changed(**usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "usage": usage}


def chat(**usage: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage}


def gemini(**counts: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": "STOP"}], "usageMetadata": counts}


def test_anthropics_counts_are_cumulative_and_overwrite() -> None:
    found = meter(
        "anthropic", began(input_tokens=10, cache_read_input_tokens=7, output_tokens=1), changed(output_tokens=5), changed(output_tokens=9)
    )
    assert (found.usage, found.final, found.flags) == (Usage(10, 9, 7, 0), True, [])
    assert meter("anthropic", began(input_tokens=10), changed(input_tokens=12, output_tokens=3)).usage == Usage(12, 3)


def test_a_delta_that_splits_the_input_anew_is_believed_when_the_sum_holds() -> None:
    found = meter(
        "anthropic", began(input_tokens=100, output_tokens=1), changed(input_tokens=40, cache_read_input_tokens=60, output_tokens=2)
    )
    assert (found.usage, found.flags) == (Usage(40, 2, 60, 0), [])


def test_what_is_cached_for_an_hour_is_told_apart_or_taken_for_the_dearer() -> None:
    parts = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
    start = began(input_tokens=1, cache_creation_input_tokens=100, cache_creation=parts, output_tokens=1)
    assert meter("anthropic", start, changed(output_tokens=5)).usage == Usage(1, 5, 0, 100, 70)
    assert meter("anthropic", start, changed(cache_creation_input_tokens=100, output_tokens=5)).usage == Usage(1, 5, 0, 100, 70)
    assert meter("anthropic", began(cache_creation=parts)).usage == Usage(0, 0, 0, 100, 70), "the sum is not less than its parts"
    unsplit = began(cache_creation_input_tokens=100)
    assert meter("anthropic", unsplit).usage == Usage(0, 0, 0, 100, 0)
    found = Meter(asked("anthropic")._replace(may_cache_hour=True))
    found.read(unsplit)
    assert found.usage == Usage(0, 0, 0, 100, 100)
    bad = meter("anthropic", began(input_tokens=9, cache_creation={"ephemeral_1h_input_tokens": -1}))
    assert (bad.usage, bad.flags) == (None, ["usage_negative"])


def test_compaction_is_added_because_anthropic_leaves_it_out() -> None:
    parts = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ]
    found = meter("anthropic", began(input_tokens=23_000, output_tokens=1), changed(output_tokens=1_000, iterations=parts))
    assert found.usage == Usage(203_000, 4_500)


@pytest.mark.parametrize(
    ("bad", "flag"),
    [
        (-5, "usage_negative"),
        (ABSURD + 1, "usage_absurd"),
        (10**30, "usage_absurd"),
        (1e300, "usage_absurd"),
        (1.5, "usage_absurd"),
        (float("nan"), "usage_absurd"),
        ("7", "usage_not_a_number"),
        (True, "usage_not_a_number"),
        ([], "usage_not_a_number"),
    ],
)
def test_nonsense_is_flagged_and_what_was_known_stays(bad: object, flag: str) -> None:
    found = meter("anthropic", began(input_tokens=10, output_tokens=1), changed(output_tokens=bad))
    assert (found.usage, found.final, found.flags) == (Usage(10, 1), False, [flag])
    found = meter("anthropic", began(input_tokens=bad, output_tokens=1))
    assert (found.usage, found.began, found.flags) == (None, False, [flag])
    for kind, message in (
        ("chat", chat(prompt_tokens=5, completion_tokens=bad)),
        ("gemini", gemini(promptTokenCount=5, thoughtsTokenCount=bad)),
    ):
        found = meter(kind, message)
        assert (found.usage, found.final, found.flags) == (None, False, [flag])


def test_a_count_that_falls_is_not_believed() -> None:
    found = meter("anthropic", began(input_tokens=10, output_tokens=1), changed(input_tokens=0, output_tokens=9), changed(output_tokens=3))
    assert (found.usage, found.flags) == (Usage(10, 9), ["usage_fell"])


def test_a_usage_that_comes_twice_is_flagged_and_counted_once() -> None:
    found = meter("anthropic", began(input_tokens=10), began(input_tokens=10), changed(output_tokens=3))
    assert (found.usage, found.flags) == (Usage(10, 3), ["usage_repeated"])
    found = meter("chat", chat(prompt_tokens=10, completion_tokens=2), chat(prompt_tokens=10, completion_tokens=2))
    assert (found.usage, found.flags) == (Usage(10, 2), ["usage_repeated"])


def test_openai_counts_the_cached_tokens_within_the_prompt() -> None:
    details = {"cached_tokens": 60, "cache_write_tokens": 10}
    assert meter("chat", chat(prompt_tokens=100, completion_tokens=5, prompt_tokens_details=details)).usage == Usage(30, 5, 60, 10)
    found = meter("chat", chat(prompt_tokens=50, completion_tokens=5, prompt_tokens_details=details))
    assert (found.usage, found.flags) == (Usage(0, 5, 50, 0), ["cached_above_input"])
    assert meter("chat", chat(prompt_tokens=50, completion_tokens=5, prompt_tokens_details=None)).usage == Usage(50, 5)


def test_thinking_is_output_once() -> None:
    within = chat(prompt_tokens=10, completion_tokens=20, total_tokens=30, completion_tokens_details={"reasoning_tokens": 8})
    beside = chat(prompt_tokens=10, completion_tokens=12, total_tokens=30, completion_tokens_details={"reasoning_tokens": 8})
    assert meter("chat", within).usage == meter("chat", beside).usage == Usage(10, 20)
    assert meter("gemini", gemini(promptTokenCount=10, candidatesTokenCount=12, thoughtsTokenCount=8)).usage == Usage(10, 20)


def test_gemini_counts_its_tools_prompts_as_input() -> None:
    found = meter("gemini", gemini(promptTokenCount=10, toolUsePromptTokenCount=5, cachedContentTokenCount=4, candidatesTokenCount=1))
    assert found.usage == Usage(11, 1, 4, 0)


def test_only_the_last_word_is_final() -> None:
    running = {"choices": [{"delta": {}, "finish_reason": None}], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    found = meter("chat", running)
    assert found.usage == Usage(5, 1) and not found.final
    found.read({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
    assert (found.usage, found.final, found.flags) == (Usage(5, 3), True, [])
    assert not meter("gemini", {"candidates": [{}], "usageMetadata": {"promptTokenCount": 5}}).final
    assert meter("gemini", {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}}).final


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete", "response.failed"])
def test_every_end_of_a_response_carries_its_usage(kind: str) -> None:
    found = meter("responses", {"type": kind, "response": {"usage": {"input_tokens": 5, "output_tokens": 2}, "error": None}})
    assert found.usage == Usage(5, 2) and found.final and bool(found.failed) == (kind == "response.failed")


NAMES_SEEN = [
    "type",
    "message",
    "usage",
    "error",
    "choices",
    "response",
    "status",
    "code",
    "iterations",
    "usageMetadata",
    "candidates",
    "promptFeedback",
    "prompt_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "input_tokens",
    "output_tokens",
    "promptTokenCount",
    "cachedContentTokenCount",
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES_SEEN) | st.text(max_size=4), inner, max_size=5),
    max_leaves=12,
)


@given(st.sampled_from(["anthropic", "chat", "responses", "gemini"]), st.lists(anything, max_size=4))
def test_any_json_gives_counts_that_make_sense(kind: str, messages: list[object]) -> None:
    last = 0
    found = Meter(asked(kind))
    for message in messages:
        found.read(message)
        if found.usage is not None:
            counts = (found.usage.input, found.usage.output, found.usage.cache_read, found.usage.cache_write)
            assert all(type(count) is int and 0 <= count <= 4 * ABSURD for count in counts)
            assert found.usage.total >= last
            last = found.usage.total


@pytest.mark.parametrize("kind", ["anthropic", "chat", "responses", "gemini"])
def test_a_meter_goes_with_its_answer_and_waits_for_no_collector(kind: str) -> None:
    gc.disable()
    try:
        found = weakref.ref(meter(kind))
        assert found() is None
    finally:
        gc.enable()
