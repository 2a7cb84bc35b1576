"""Fixtures for every room."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import rounds, warm
from tests.support import House, make_repository


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help="an empty file, for the ids of what was skipped")
    parser.addoption("--skipped-from", type=Path, metavar="FILE", help="run what is listed there and does not differ for root")
    parser.addoption("--skipped-beside", type=Path, metavar="FILE", help="with --skipped-from: run also what is listed in both")
    parser.addoption("--refuse-skips", action="store_true", help="fail when a test is skipped for a reason that is not in ALLOWED_SKIPS")
    parser.addoption("--differs-for-root", action="store_true", help="run what differs for root")


def pytest_configure(config: pytest.Config) -> None:
    rounds.reset_signals()
    rounds.choose_examples()
    if not hasattr(config, "workerinput") and getattr(config.option, "tx", None):  # it has workers
        workers = contextlib.ExitStack()
        workers.enter_context(warm.shared())
        config.add_cleanup(workers.close)
    if config.option.skipped_to is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(rounds.Skipped(config.option.skipped_to))
    if config.option.skipped_from is not None:
        config.pluginmanager.register(rounds.what_was_skipped(config.option.skipped_from, config.option.skipped_beside))
    if config.option.refuse_skips and not hasattr(config, "workerinput"):
        config.pluginmanager.register(rounds.UnlistedSkips())
    if config.option.differs_for_root:
        config.pluginmanager.register(rounds.what_differs())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with rounds.no_garbage():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.skipped_from is None:  # else they were chosen among all
        rounds.thin(items)
    rounds.mark_seeded(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure that happens once in a hundred runs must say what the supervisor knew."""
    report = yield
    made = getattr(item, "funcargs", {}).get("house")
    if report.when == "call" and report.failed and isinstance(made, House):
        report.sections.append(("the supervisor of the test", made.account()))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What a random test draws from. The same each time in `make test`; where a change fails, it fails for what it changed."""
    number = rounds.seed(is_long=request.node.get_closest_marker("soak") is not None)
    print(f"{rounds.SEED}={number}")
    return number


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
