"""The live picture of a map, drawn from what the supervisor says of it."""

from __future__ import annotations

import io
import itertools
import time
from typing import Any

import pytest
from rich.console import Console

from supervisor.features.map import commands as map_commands
from supervisor.features.map.commands import Picture


def found(workers: int = 0, **changed: Any) -> dict[str, Any]:
    crew = [{"task": f"r/w{n}", "epoch": 1, "items": 9, "at": n, "silent_s": 7.0 if n == 3 else 0.2} for n in range(workers)]
    return {"title": "wc\x1b[31m {file}", "total": 200, "done": 50, "failed": 2, "idle": 0, "workers": crew, **changed}


def drawn(shape: dict[str, Any], rate: float) -> list[str]:
    console = Console(width=80, record=True, file=io.StringIO(), markup=False, highlight=False)
    console.print(map_commands.drawn(shape, rate))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_progress_pace_and_the_slowest_worker_first() -> None:
    lines = drawn(found(14, idle=3), 4.0)
    assert lines[0] == "wc\\x1b[31m {file}: 143 of 200, 2 failed; 14 at work, 3 idle"
    assert lines[2] == "4.0 items a second, 14s left"
    assert lines[3] == "  r/w3  item 4 of 9 of its shard, silent for 7s"
    assert lines[-1] == "  … and 4 more" and len(lines) == 3 + map_commands.WORKERS + 1


def test_before_anything_has_ended_and_at_the_end() -> None:
    assert drawn(found(), 0.0)[2] == "no item has ended lately"
    assert drawn(found(total=0, done=0, failed=0), 0.0)[0].startswith("wc")
    assert drawn(found(done=198), 2.0)[2] == "2.0 items a second"


def test_where_nothing_can_be_drawn_it_is_a_line() -> None:
    with Picture() as one:
        one.show(found())
        assert not one.live
    assert map_commands.line(found(2)) == "53 of 200 items, 2 failed; 2 workers at work"


def test_progress_that_is_lost_with_its_worker_is_no_pace_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(0.0, 5.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    one = Picture()
    one.show(found(9))
    one.show(found(0))
    assert one._rate() == 0.0
