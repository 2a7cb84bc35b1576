"""The clients (skipped, visibly, where `make clients` could not install them) and what they are pointed at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway.clients.kit import CLIENTS, ClaudeCode, Codex, Direct, Through
from tests.gateway.kit import all_apis, gateway_process
from tests.gateway.simulator import Simulator

TIGHT_TPM = 100_000
TIGHT = f"tpm = {TIGHT_TPM}"
PLENTY = Limits(rpm=10_000, itpm=100_000_000, otpm=10_000_000)


def _binary(name: str) -> Path:
    binary = CLIENTS / "node_modules" / ".bin" / name
    if not binary.exists():
        pytest.skip(f"{name} is not installed in {CLIENTS}: run make clients")
    return binary


@pytest.fixture
def claude() -> ClaudeCode:
    return ClaudeCode(_binary("claude"))


@pytest.fixture
def codex() -> Codex:
    return Codex(_binary("codex"))


@pytest.fixture(params=["claude", "codex"])
def client(request: pytest.FixtureRequest) -> ClaudeCode | Codex:
    """Each of them."""
    made: ClaudeCode | Codex = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A provider whose limits nobody here reaches."""
    with Simulator(limits=PLENTY) as simulator:
        yield simulator


@pytest.fixture
def direct(sim: Simulator) -> Direct:
    """No gateway in between: what the clients do by themselves."""
    return Direct(sim)


@pytest.fixture
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    """A gateway and a provider that agree on a limit of 100,000 tokens a minute."""
    root = tmp_path_factory.mktemp("gateway")
    with Simulator(limits=Limits(tpm=TIGHT_TPM)) as sim, gateway_process(root, all_apis(Home(root / "home"), sim.url, TIGHT)) as gate:
        gate.start()
        yield Through(gate, sim)


@pytest.fixture
def endpoint(sim: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    """What the contract is tested against: a gateway as it runs for a crew, the simulated provider behind it."""
    root = tmp_path_factory.mktemp("gateway")
    with gateway_process(root, all_apis(Home(root / "home"), sim.url)) as gate:
        gate.start()
        yield Through(gate, sim)
