"""When a path is looked at."""

from __future__ import annotations

from memory.rescan import Debounce


def test_it_is_looked_at_once_it_is_quiet() -> None:
    waits: Debounce[str] = Debounce()
    waits.add(["a"], 10.0)
    waits.add(["a", "b"], 10.03)
    assert waits.due(10.06) == []
    assert waits.next_at() == 10.08
    assert waits.due(10.08) == ["a", "b"]
    assert waits.due(11.0) == []
    assert waits.next_at() is None


def test_one_that_never_becomes_quiet_is_looked_at_all_the_same() -> None:
    waits: Debounce[str] = Debounce()
    looked = []
    for step in range(100):
        now = 10.0 + step / 100
        waits.add(["a"], now)
        looked += [round(now, 2) for _ in waits.due(now)]
    assert looked[0] == 10.1
    assert len(looked) == 9
