"""What an agent takes, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.kernel.account import Life, Measured, Tree, Used, closed
from supervisor.kernel.states import TaskState
from supervisor.views import figures, status
from tests.views.test_made_of import view

MIB = 2**20
SEEN = Measured().after(Tree(3, 700 * MIB, 70.0, 10.0)).after(Tree(3, 412 * MIB, 80.0, 10.0))


def account(measured: Measured) -> dict[str, Any]:
    """Of an attempt that lived for 200 s."""
    life = Life(queued=0.0, spawned=65.0, started=70.0, ended=270.0, model=((70.0, 190.0),), waited=((190.0, 230.0),), human_s=0.0)
    return closed(measured, Used(cpu_s=90.0, tokens=5), life)


def test_a_living_one(tmp_path: Path) -> None:
    living = view(account={"memory": 412 * MIB, "peak_memory": 700 * MIB, "cpu_s": 80.0}, memory_expected=384 * MIB, tier=0)
    assert status.detail(living, tmp_path) == "", "that is for its own page"
    assert list(figures.facts(living)) == [("memory", "now 412 MiB, at most 700 MiB, expected 384 MiB"), ("processor", "1m20s")]
    warned = view(account={"memory": 412 * MIB, "warning": "it holds 412.0 MiB, 82% of memory_max"})
    assert status.detail(warned, tmp_path) == "it holds 412.0 MiB, 82% of memory_max"
    log = tmp_path / f"runs/{living.id}/{living.epoch}/gate.log"
    log.parent.mkdir(parents=True)
    log.touch()
    assert status.detail(living, tmp_path) == "its gate runs"
    assert status.task_shape(living)["account"] == living.account and status.task_shape(living)["memory_expected"] == 384 * MIB


def test_one_that_has_ended() -> None:
    ended = view(state=TaskState.DONE, account=account(SEEN))
    assert list(figures.facts(ended)) == [
        ("memory", "at most 700 MiB"),
        ("processor", "1m30s, 1m20s of it by tools"),
        ("time", "3m20s: 2m at models, 40s waiting for tokens, 40s its own work; before that 1m05s in the queue"),
    ]


def test_what_nobody_measured_is_not_said(tmp_path: Path) -> None:
    assert list(figures.facts(view())) == [] and status.detail(view(), tmp_path) == ""
    assert [name for name, _ in figures.facts(view(state=TaskState.DONE, account=account(Measured())))] == ["processor", "time"]
