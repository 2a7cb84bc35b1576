"""What an agent's turn needs, with the real clients: they work, wait, and are charged apart, whatever the provider does."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nightcrew.plugins.sim.dialects import BYTES_PER_TOKEN
from tests.gateway.clients.kit import ClaudeCode, Codex, Endpoint, Through

Either = ClaudeCode | Codex
pytestmark = pytest.mark.in_turns
"""Each of them with one client, the next one with the other."""


def test_a_tool_turn_writes_a_file(client: Either, endpoint: Endpoint, tmp_path: Path) -> None:
    made = tmp_path / "made by a tool.txt"
    endpoint.sim.faults(client.writing(made, "it's done\n"))
    endpoint.sim.faults(text="The file is there.")
    turn = client.turn(endpoint, "write a file", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    assert made.read_text() == "it's done\n"
    assert client.said(turn) == "The file is there."
    assert endpoint.sim.tally().answered == 2


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_one_turn_after_a_long_silence_before_the_first_byte(client: Either, endpoint: Endpoint, tmp_path: Path, seconds: float) -> None:
    endpoint.sim.faults(delay_s=seconds, times=1)
    turn = client.turn(endpoint, "say hello", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    assert client.said(turn).startswith("[simulated] ")
    assert client.tokens(turn) == endpoint.charged("a"), "the client and the account count the same"
    told = endpoint.sim.tally()
    assert (told.asked, told.answered) == (1, 1), "it waited, and did not ask again"


@pytest.mark.parametrize("spent", [105_000, pytest.param(190_000, marks=pytest.mark.soak)])
def test_held_until_there_are_tokens_again(client: Either, tight: Through, tmp_path: Path, spent: int) -> None:
    """Another agent has spent the minute's tokens, and more. A turn needs about 14,000, and 1,667 come back every second: those until the
    client has started as well, so it is held for what is left of 12 s (63 s) then."""
    body = json.dumps(client.plain("x" * round(spent * BYTES_PER_TOKEN))).encode()
    headers = {"Authorization": f"Bearer {tight.token('hog')}", "Content-Type": "application/json"}
    hog = urllib.request.Request(f"{tight.url}{client.path}", body, headers)  # noqa: S310 - our own loopback
    urllib.request.urlopen(hog, timeout=30).close()  # noqa: S310 - the same
    turn = client.turn(tight, "say hello", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    told = tight.sim.tally()
    assert (told.asked, told.answered, told.refused) == (2, 2, {}), "one request each, and the provider refused none"
    (row,) = tight.rows("a")
    assert row["queued_ms"] > 0
    print(f"held for {row['queued_ms'] / 1000:.1f} s")


@pytest.mark.parametrize("retry_after", ["1", "date:2"])
def test_429(client: Either, endpoint: Endpoint, tmp_path: Path, retry_after: str) -> None:
    endpoint.sim.faults(api=client.api, status=429, retry_after=retry_after, times=2)
    turn = client.turn(endpoint, "say hello", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    told = endpoint.sim.tally()
    assert (told.refused, told.answered) == ({"fault:429": 2}, 1)


def test_529(client: Either, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.sim.faults(api=client.api, status=529, times=2)
    turn = client.turn(endpoint, "say hello", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    told = endpoint.sim.tally()
    assert (told.refused, told.answered) == ({"fault:529": 2}, 1)


def test_a_cut_stream(client: Either, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.sim.faults(then="cut", after=6, times=1)
    turn = client.turn(endpoint, "say hello", where=tmp_path)
    assert client.went_well(turn), turn.explain()
    told = endpoint.sim.tally()
    assert (told.cut, told.answered) == (1, 1)


def test_two_agents_at_once_have_accounts_of_their_own(client: Either, endpoint: Endpoint, tmp_path: Path) -> None:
    for agent, tokens in (("first", 111), ("second", 222)):
        endpoint.token(agent)  # made here: the ledger's connection belongs to this thread
        endpoint.sim.faults(contains=f"as the {agent}", output_tokens=tokens, hold="both")

    def ask(agent: str) -> tuple[int, int]:
        (tmp_path / agent).mkdir()
        turn = client.turn(endpoint, f"say hello as the {agent}", agent=agent, where=tmp_path / agent)
        assert client.went_well(turn), turn.explain()
        return client.tokens(turn)

    with ThreadPoolExecutor(2) as pool:
        turns = [pool.submit(ask, agent) for agent in ("first", "second")]
        try:
            endpoint.sim.wait_held("both", 2)
        finally:
            endpoint.sim.release("both")
        first, second = (turn.result() for turn in turns)
    assert (first[1], second[1]) == (111, 222)
    assert (endpoint.charged("first"), endpoint.charged("second")) == (first, second)
