"""Tokens, model classes and the prompt cache."""

from __future__ import annotations

from typing import Any

import pytest

from nightcrew.plugins.sim.account import PrefixCache, model_class, tokens_of
from supervisor.gateway.admission.types import Usage

MARK = {"cache_control": {"type": "ephemeral"}}


def said(role: str, text: str, **more: object) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text, **more}]}


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("claude-opus-4-8", "opus-4"),
        ("claude-opus-4-1-20250805", "opus-4"),
        ("claude-sonnet-4-20250514", "sonnet-4"),
        ("claude-haiku-4-5-20251001", "haiku-4"),
        ("claude-3-5-haiku-20241022", "haiku-3"),
        ("claude-3-opus-20240229", "opus-3"),
        ("gpt-5", "gpt-5"),
        ("gemini-3-pro", "gemini-3-pro"),
    ],
)
def test_models_that_share_a_limit(model: str, named: str) -> None:
    assert model_class(model) == named


def test_tokens_by_size() -> None:
    assert [tokens_of(size) for size in (0, 1, 36, 37, 72_600)] == [1, 1, 10, 11, 20_167]


def test_the_first_turn_writes_and_the_next_reads_what_did_not_change() -> None:
    cache = PrefixCache(ttl_s=300, min_tokens=100)
    system = [{"type": "text", "text": "s" * 4000, **MARK}]
    first = {"system": system, "messages": [said("user", "a" * 1000, **MARK)]}
    wrote = cache.count(first, 1400, now=0)
    assert wrote == Usage(input=0, cache_write=1400)
    # The mark moves on to the newest block: what it was on before is still found.
    second = {"system": system, "messages": [said("user", "a" * 1000), said("assistant", "b" * 500), said("user", "c" * 500, **MARK)]}
    read = cache.count(second, 1700, now=10)
    assert read.cache_read == pytest.approx(1400, rel=0.05)
    assert read.input == 0 and read.total == 1700


def test_what_changed_before_the_mark_is_written_anew() -> None:
    cache = PrefixCache(ttl_s=300, min_tokens=100)
    cache.count({"system": [{"text": "x" * 4000, **MARK}], "messages": [said("user", "hi")]}, 1200, now=0)
    changed = cache.count({"system": [{"text": "y" * 4000, **MARK}], "messages": [said("user", "hi")]}, 1200, now=1)
    assert changed.cache_read == 0 and changed.cache_write > 1000


def test_an_entry_lives_for_a_while_after_its_last_use() -> None:
    cache, body = PrefixCache(ttl_s=300, min_tokens=100), {"system": [{"text": "x" * 4000, **MARK}], "messages": []}
    assert [cache.count(body, 1000, now=at).cache_read for at in (0, 299, 598, 899)] == [0, 1000, 1000, 0]


def test_short_prefixes_and_bodies_without_marks_are_not_cached() -> None:
    cache = PrefixCache(ttl_s=300, min_tokens=1024)
    short = {"system": [{"text": "x" * 400, **MARK}], "messages": []}
    plain = {"system": "x" * 40_000, "messages": [said("user", "hi")]}
    for body, tokens in ((short, 120), (plain, 11_000)):
        assert {cache.count(body, tokens, now=at) for at in (0, 1)} == {Usage(input=tokens)}
