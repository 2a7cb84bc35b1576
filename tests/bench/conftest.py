"""Fixtures for the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import warm_starts


@pytest.fixture(scope="module", autouse=True)
def started_warm() -> Iterator[None]:
    """What a benchmark starts in this very process is forked."""
    with warm_starts.everywhere():
        yield
