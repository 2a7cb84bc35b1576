"""Fixtures for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import rounds
from tests.support import House, make_repository


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help="an empty file, for the ids of what was skipped")
    parser.addoption("--second-round", type=Path, metavar="FILE", help="run what is listed there, and what differs for root")


def pytest_configure(config: pytest.Config) -> None:
    rounds.reset_signals()
    rounds.choose_examples()
    if config.option.skipped_to is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(rounds.Skipped(config.option.skipped_to))
    if config.option.second_round is not None:
        config.pluginmanager.register(rounds.SecondRound(config.option.second_round))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A small repository of one commit."""
    return make_repository(tmp_path / "repo")


@pytest.fixture
def house(tmp_path: Path, repo: Path) -> Iterator[House]:
    """A private supervisor; whatever it leaves is ended afterwards, by id."""
    made = House(tmp_path, repo)
    yield made
    made.reap()
