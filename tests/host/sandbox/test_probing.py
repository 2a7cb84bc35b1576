"""What works is found by trying, and what does not is told with its reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from supervisor.core.sandbox import Tier
from supervisor.host.sandbox import probing
from supervisor.host.sandbox.executors import Executor
from tests.host.sandbox.kit import TIERS


def test_a_tool_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probing.probe()
    assert found.works[Executor.BUBBLEWRAP] == frozenset()
    assert "bwrap" in found.why_not[Executor.BUBBLEWRAP, Tier.FILES]


def test_one_that_does_not_hide_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A `bwrap` that only runs its command: it starts well, and must be found out."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = probing.probe()
    assert found.works[Executor.BUBBLEWRAP] == frozenset()
    assert found.why_not[Executor.BUBBLEWRAP, Tier.FILES]


def test_what_works_is_offered() -> None:
    found = probing.probe()
    assert Tier.NONE in found.tiers
    assert set(found.why_not) | {(each, tier) for each in Executor for tier in found.works[each]} == {
        (each, tier) for each in Executor for tier in TIERS
    }
    for tier in TIERS:
        chosen = found.executor(tier)
        assert (chosen is None) == (tier not in found.tiers)
    if shutil.which("bwrap") is None:
        assert found.works[Executor.BUBBLEWRAP] == frozenset()
