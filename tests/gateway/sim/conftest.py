"""One simulated provider for all these tests; each test is another customer, with a key (and so buckets) of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import anthropic
import openai
import pytest

from tests.gateway.simulator import Simulator

_numbers = count()


@pytest.fixture(scope="session")
def shared() -> Iterator[Simulator]:
    with Simulator(output_spread=0) as simulator:
        yield simulator


@pytest.fixture
def sim(shared: Simulator) -> Iterator[Simulator]:
    """Without faults before and after."""
    yield shared
    shared.clear()


@pytest.fixture
def claude(sim: Simulator, key: str) -> Iterator[anthropic.Anthropic]:
    """The SDK, which does not retry."""
    with anthropic.Anthropic(api_key=key, base_url=sim.url, max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(sim: Simulator, key: str) -> Iterator[openai.OpenAI]:
    """The SDK, which does not retry."""
    with openai.OpenAI(api_key=key, base_url=f"{sim.url}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"key-{next(_numbers)}"
