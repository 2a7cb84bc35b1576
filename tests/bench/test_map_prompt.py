"""The figures of one-shot prompts are those of the provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightcrew.plugins.bench.gateway.learned import Bucket, Sample
from nightcrew.plugins.bench.map import PromptOptions, measure_prompt, utilisation


def sample(at: float, arrived: int, offered: float, drawn: float) -> Sample:
    bucket = Bucket(per_minute=60_000, capacity=1000, level=1000 + offered - drawn, offered=offered, drawn=drawn, outside=0)
    return Sample(at, arrived, 0, 0, {"input": bucket}, {})


def test_use_is_judged_while_calls_wait() -> None:
    samples = [Sample(0.0, 0, 0, 0, {}, {}), sample(1.0, 5, 1000, 900), sample(2.0, 9, 2000, 2700), sample(3.0, 10, 3000, 2800)]
    assert utilisation(samples, 10, 100) == pytest.approx(2700 / (3000 - 100))
    assert utilisation(samples[:1], 10, 100) == 0.0


def test_a_small_run_loses_no_call(tmp_path: Path) -> None:
    found = measure_prompt(PromptOptions(calls=12, workers=2, at_once=3), tmp_path)
    assert (found["calls"], found["failed"], found["upstream_429"]) == (12, 0, 0) and found["tokens"] > 12 * 500
