"""The real agents still print what was recorded of them, as far as we read it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import protocols
from tests.agents.protocols.scenarios import CLIENT_OF, DATA, EVERY_RUN, SCENARIOS, AnyClient, Scenario
from tests.gateway.clients.conftest import PLENTY
from tests.gateway.clients.kit import CLIENTS
from tests.gateway.simulator import Simulator

RECORD = bool(os.environ.get("NIGHTCREW_TEST_RECORD"))
PLAYED = [scenario for scenario in SCENARIOS if RECORD or f"{scenario.cli}-{scenario.name}" in EVERY_RUN]


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(limits=PLENTY) as simulator:
        yield simulator


def _client(cli: str) -> AnyClient:
    binary = CLIENTS / "node_modules" / ".bin" / cli
    if not binary.exists():
        pytest.skip(f"{cli} is not installed in {CLIENTS}: run make clients")
    return CLIENT_OF[cli](binary)


@pytest.mark.parametrize("scenario", PLAYED, ids=lambda one: f"{one.cli}-{one.name}")
def test_what_it_prints_is_read_as_recorded(scenario: Scenario, sim: Simulator, tmp_path: Path) -> None:
    client = _client(scenario.cli)
    turn = scenario.play(client, sim, tmp_path / "work", tmp_path / "config")
    said = protocols.read(scenario.cli, turn.stdout.encode())
    assert said is not None, turn.explain()
    assert {name: getattr(said, name) for name in scenario.expected} == scenario.expected, turn.explain()
    assert said.reason.startswith(scenario.reason)
    assert bool(said.reason) == said.is_error
    assert turn.code == scenario.code
    if scenario.cli == "claude":
        assert Path(said.transcript).is_file(), "it keeps its conversation where it says"
    assert (turn.where / "note.txt").is_file() == (scenario.name == "tool")
    if scenario.name == "tool" and scenario.cli in ("claude", "codex"):
        assert subprocess.run(["git", "log", "--format=%s"], cwd=turn.where, capture_output=True, text=True).stdout == "note\none\n"
    if RECORD:
        _record(client, scenario, turn.stdout)


def _record(client: AnyClient, scenario: Scenario, stdout: str) -> None:
    said = subprocess.run([client.binary, "--version"], capture_output=True, text=True, check=True).stdout
    version = next(word for word in said.split() if word[0].isdigit())
    file = DATA / f"{scenario.cli}-{version}" / f"{scenario.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(stdout)
