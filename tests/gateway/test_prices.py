"""Prices: held against genai-prices itself, and against what a user says."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices import data_snapshot

from supervisor.gateway.account.charges import Prices, matches
from supervisor.gateway.admission.types import Usage
from supervisor.kernel.errors import ToolFailed
from supervisor.server import prices

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def _table(rates: dict[str, Any]) -> str:
    models = [{"id": "m", "match": {"equals": "m"}, "rates": rates}]
    return json.dumps({"schema": 1, "providers": [{"id": "p", "match": {"contains": "m"}, "models": models}]})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("prices") / "prices.json"
    prices.write(made, NOW)
    return made


def theirs(model: str, usage: Usage) -> float | None:
    """What genai-prices itself says; its input has the cached tokens in it."""
    total = usage.limited_input + usage.cache_read
    asked = genai_prices.Usage(
        input_tokens=total, output_tokens=usage.output, cache_read_tokens=usage.cache_read, cache_write_tokens=usage.cache_write
    )
    try:
        return float(genai_prices.calc_price(asked, model, genai_request_timestamp=NOW).total_price)
    except LookupError:
        return None


def test_the_cost_that_claude_code_itself_reported(path: Path) -> None:
    """1,200 tokens of input, 300 written to and 5,000 read from the cache, 42 of output: $0.011425 (its `total_cost_usd`)."""
    assert Prices.load(path, {}).cost("claude-opus-4-8", Usage(1200, 42, 5000, 300)) == pytest.approx(0.011425, abs=1e-12)


def test_what_is_cached_for_an_hour_has_its_own_price(path: Path) -> None:
    """Anthropic's list for Opus 4.8: $6.25 for five minutes, $10 for an hour. A price without it is that of any write."""
    assert Prices.load(path, {}).cost("claude-opus-4-8", Usage(0, 0, 0, 300, 200)) == pytest.approx((100 * 6.25 + 200 * 10) / 1e6)
    own = {"m": {"input": 1.0, "output": 1.0, "cache_write": 2.0}, "n": {"input": 1.0, "output": 1.0, "cache_write_1h": 4.0}}
    prices = Prices.load(path, own)
    assert prices.cost("m", Usage(0, 0, 0, 300, 200)) == pytest.approx(600 / 1e6)
    assert prices.cost("n", Usage(0, 0, 0, 300, 200)) == pytest.approx(900 / 1e6)


def test_every_model_costs_what_genai_prices_says(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    ours, compared = Prices.load(path, {}), 0
    for provider in data_snapshot.get_snapshot().providers:
        for model in provider.models:
            if provider.model_match is None:
                continue
            usage = Usage(*(draw.randrange(400_000) for _ in range(4)))
            cost, said = ours.cost(model.id, usage), theirs(model.id, usage)
            if cost is None:
                assert not said, f"{model.id} has a price"
                continue
            if model.id.startswith("deepseek"):  # which costs less at some hours
                assert said is not None and cost >= said - 1e-12, model.id
            else:
                assert cost == pytest.approx(said), model.id
            bound = ours.bound(model.id, usage.limited_input + usage.cache_read, usage.output)
            assert bound is not None and bound >= cost - 1e-12, model.id
            compared += 1
    assert compared > 300


def test_a_model_that_nobody_knows_has_no_price(path: Path) -> None:
    prices = Prices.load(path, {})
    assert prices.cost("my-own-model", Usage(1000, 1000)) is None
    assert prices.bound("my-own-model", 1000, 1000) is None
    assert prices.cost("", Usage(1)) is None


def test_a_long_request_costs_the_higher_rate_for_the_whole_of_it(path: Path) -> None:
    prices = Prices(path.with_name("none.json"), {})
    assert prices.cost("x", Usage(1)) is None
    steps = path.with_name("steps.json")
    steps.write_text(_table({"input": [[0, 1.0], [200_000, 2.0]], "output": [[0, 10.0], [200_000, 20.0]]}))
    prices = Prices.load(steps, {})
    assert prices.cost("m", Usage(100_000, 100, 100_000)) == pytest.approx(0.2 + 0.001)
    assert prices.cost("m", Usage(100_000, 100, 100_001)) == pytest.approx(0.400002 + 0.002)


def test_the_bound_is_the_dearest_way_to_take_so_many_tokens(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(_table({"input": [[0, 5.0]], "cache_write": [[0, 6.25]], "cache_write_1h": [[0, 10.0]], "output": [[0, 25.0]]}))
    assert Prices.load(path, {}).bound("m", 1_000_000, 100_000) == pytest.approx(10.0 + 2.5)


def test_what_the_user_says_goes_first(path: Path) -> None:
    own = {"claude-opus-4-8": {"input": 1.0, "output": 2.0}, "llama-*": {"input": 0.5, "output": 0.5, "cache_read": 0.0}}
    prices = Prices.load(path, own)
    assert prices.cost("claude-opus-4-8", Usage(1_000_000, 1_000_000, 1_000_000)) == pytest.approx(1.0 + 2.0 + 1.0)
    assert prices.cost("llama-4", Usage(1_000_000, 0, 1_000_000)) == pytest.approx(0.5), "a price of 0 is a price"
    assert prices.cost("claude-sonnet-4-5", Usage(1)) is not None, "the others stay as they are"


def test_a_new_table_is_taken_when_it_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    prices = Prices.load(path, {})
    assert prices.cost("m", Usage(1_000_000)) is None and "No such file" in prices.trouble
    for rate in (1.0, 3.0):
        path.with_name("draft").write_text(_table({"input": [[0, rate]]}))
        path.with_name("draft").rename(path)
        prices.refresh()
        assert prices.cost("m", Usage(1_000_000)) == rate and prices.trouble == ""


@pytest.mark.parametrize(
    "spoilt",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "providers": []}',
        '{"schema": 1}',
        '{"schema": 1, "providers": [{"match": {"regex": "("}, "models": []}]}',
        '{"schema": 1, "providers": [{"match": {"contains": 1}, "models": []}]}',
        '{"schema": 1, "providers": [{"match": {}, "models": []}]}',
        '{"schema": 1, "providers": [{"match": {"contains": "m"}, "models": [{"match": {"sounds_like": "m"}, "rates": {}}]}]}',
        _table({"input": [[0, -1]]}),
        _table({"input": []}),
        _table({"input": [[0, "x"]]}),
        _table({"input": [[5, 1], [0, 1]]}),
    ],
)
def test_a_spoilt_table_leaves_the_prices_as_they_were(tmp_path: Path, spoilt: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(_table({"input": [[0, 1.0]]}))
    prices = Prices.load(path, {})
    path.with_name("draft").write_text(spoilt)
    path.with_name("draft").rename(path)
    prices.refresh()
    assert prices.cost("m", Usage(1_000_000)) == 1.0
    assert prices.trouble


def test_names_without_end_take_no_memory_without_end(path: Path) -> None:
    prices = Prices.load(path, {})
    for number in range(3000):
        prices.cost(f"claude-opus-{number}", Usage(1))
    assert len(prices._known) <= 1000


def test_the_rules_of_the_table() -> None:
    rule = {"or": [{"equals": "A"}, {"and": [{"starts_with": "b"}, {"ends_with": "Z"}, {"contains": "mid"}, {"regex": r"\d$|z$"}]}]}
    assert [name for name in ("a", "b-mid-z", "b-mid-y", "c-mid-z", "bz") if matches(rule, name)] == ["a", "b-mid-z"]


def test_the_daemons_own_process_writes_it_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    prices.refresh(path)
    assert path.stat().st_mode & 0o777 == 0o600
    table = json.loads(path.read_text())
    assert table["source"].startswith("genai-prices ") and {"anthropic", "openai", "google"} <= {one["id"] for one in table["providers"]}
    assert os.listdir(tmp_path) == ["prices.json"]


def test_a_table_that_cannot_be_written_is_said_and_the_old_one_stays(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="cannot write the price table"):
        prices.refresh(tmp_path / "absent" / "prices.json")
