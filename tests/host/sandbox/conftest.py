"""The table of attacks and what came of them, printed at the end: the documents quote it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.attacks import ATTACKS
from tests.host.sandbox.kit import Box, House, house, need

OUTCOMES: dict[tuple[str, str], str] = {}
"""(attack, column) -> "denied" or "succeeds"; filled by test_attacks."""


@pytest.fixture
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house of its own for one test. Its path is short: it holds sockets."""
    with house(tmp_path_factory.mktemp("h")) as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row an attack, one column a tier and executor."""
    if not OUTCOMES:
        return
    columns = sorted({column for _, column in OUTCOMES})
    terminalreporter.write_line(f"\nWhat came of each attack, as uid {os.geteuid()}:\n")
    terminalreporter.write_line("| attack | " + " | ".join(columns) + " |")
    terminalreporter.write_line("| --- |" + " --- |" * len(columns))
    for attack in ATTACKS:
        row = [OUTCOMES.get((attack.name, column), "not run") for column in columns]
        terminalreporter.write_line(f"| {attack.name} | " + " | ".join(row) + " |")


BOXES = [
    (Executor.NAMESPACES, Tier.FILES),
    (Executor.NAMESPACES, Tier.OFFLINE),
    (Executor.BUBBLEWRAP, Tier.OFFLINE),
    (Executor.BUBBLEWRAP, Tier.FILES),
]
"""Every other one (`in_turns`) has both executors and both tiers."""


@pytest.fixture(scope="module", params=BOXES, ids=lambda each: f"{each[0]}-tier{int(each[1])}")
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Each executor and tier that this machine has, around the attempt of a house. The tests of a file share the four houses."""
    executor, tier = request.param
    need(executor, tier)
    with house(tmp_path_factory.mktemp("h")) as made:
        yield Box(made, executor, tier, made.prefix(executor, made.policy(tier)))
