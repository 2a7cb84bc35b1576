"""Message Batches of the simulated provider, as the real SDK reads them."""

from __future__ import annotations

import anthropic
import pytest
from anthropic.types import TextBlock
from anthropic.types.messages.batch_create_params import Request

from tests.gateway.simulator import Simulator

MODEL = "claude-haiku-4-5"


def asked(*names: str, text: str = "hi") -> list[Request]:
    return [
        {"custom_id": name, "params": {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": f"{text} {name}"}]}}
        for name in names
    ]


def test_a_batch_is_made_ends_and_gives_its_results_in_any_order(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    names = [f"item-{number}" for number in range(20)]
    batch = claude.messages.batches.create(requests=asked(*names))
    assert (batch.processing_status, batch.request_counts.processing, batch.results_url) == ("in_progress", 20, None)
    ended = claude.messages.batches.retrieve(batch.id)
    assert (ended.processing_status, ended.request_counts.succeeded) == ("ended", 20)
    assert ended.results_url is not None and ended.ended_at is not None and ended.ended_at >= ended.created_at
    assert [one.id for one in claude.messages.batches.list()] == [batch.id]
    body = claude.with_options(base_url=sim.url).get(f"/v1/messages/batches/{batch.id}/results", cast_to=str)
    assert body.count("\n") == 20 and '"service_tier":"batch"' in body
    found = [line.split('"')[3] for line in body.splitlines()]
    assert sorted(found) == sorted(names) and found != names
    assert sim.tally(key).used["output"] == 20 * 20


def test_what_becomes_of_a_request_is_a_faults_affair(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    sim.faults(api="batch", contains="hi late", batch="expired", key=key)
    sim.faults(api="batch", contains="hi bad", status=400, key=key)
    sim.faults(api="batch", contains="hi good", text="yes", key=key)
    batch = claude.messages.batches.create(requests=asked("late", "bad", "good"))
    counts = claude.messages.batches.retrieve(batch.id).request_counts
    assert (counts.expired, counts.errored, counts.succeeded, counts.processing) == (1, 1, 1, 0)


def test_one_that_is_cancelled_ends_with_what_is_done(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    sim.faults(api="batches", hold="all", key=key, times=1)
    batch = claude.messages.batches.create(requests=asked("a", "b"))
    assert claude.messages.batches.retrieve(batch.id).processing_status == "in_progress"
    assert claude.messages.batches.cancel(batch.id).processing_status == "canceling"
    ended = claude.messages.batches.retrieve(batch.id)
    assert (ended.processing_status, ended.request_counts.canceled) == ("ended", 2)


def test_what_is_no_batch_and_what_is_anothers_is_refused(claude: anthropic.Anthropic, sim: Simulator) -> None:
    with pytest.raises(anthropic.BadRequestError, match="twice"):
        claude.messages.batches.create(requests=asked("a", "a"))
    with pytest.raises(anthropic.BadRequestError, match="custom_id"):
        claude.messages.batches.create(requests=asked("no good"))
    batch = claude.messages.batches.create(requests=asked("a"))
    other = anthropic.Anthropic(api_key="another", base_url=sim.url, max_retries=0)
    with other, pytest.raises(anthropic.NotFoundError):
        other.messages.batches.retrieve(batch.id)
    assert isinstance(claude.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "x"}]).content[0], TextBlock)
