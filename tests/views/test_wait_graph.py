"""The graph of waits as a tree and as a drawing."""

from __future__ import annotations

from typing import Any

from memory import reports
from supervisor.kernel.leases import STATIC, Wait, WaitKind

NOW = 1000.0


def shape(*waits: Wait, **states: str) -> dict[str, Any]:
    """As the supervisor returns it."""
    names = dict.fromkeys(name for wait in waits for name in (wait.task, *wait.holders))
    edges = [
        {"from": wait.task, "to": holder, "kind": str(wait.kind), "what": wait.what, "number": wait.number}
        for wait in waits
        for holder in wait.holders
    ]
    nodes = [{"id": name, "state": states.get(name, "running")} for name in names]
    return {"nodes": nodes, "edges": edges, "waits": [wait.shape() for wait in waits], "more": False}


def test_a_tree_begins_with_those_for_whom_nobody_waits() -> None:
    found = shape(
        Wait(1, "b", 1, WaitKind.LEASE, "src/**", ("c",), 990.0, 1050.0),
        Wait(2, "a", 1, WaitKind.TASK, "b, d", ("b", "d"), 970.0, 1570.0, any_of=True),
        Wait(3, "e", 1, WaitKind.LEASE, "docs", ("b",), 999.0, 1001.0),
        Wait(4, "c", 1, WaitKind.RATE, "quota deploys", (), 999.0, 1001.0),
        Wait(STATIC, "d", 0, WaitKind.TASK, "after", ("c",), 0.0, 0.0),
        d="waiting",
    )
    assert list(reports.wait_graph_lines(found, NOW)) == [
        "a (running)",
        "  task b, d, one of them is enough, for 30s, at most 9m30s more",
        "    → b (running)",
        "      lease src/**, for 10s, at most 50s more",
        "        → c (running)",
        "          rate quota deploys, for 1s, at most 1s more",
        "    → d (waiting)",
        "      task after",
        "        → c (running) (see above)",
        "e (running)",
        "  lease docs, for 1s, at most 1s more",
        "    → b (running) (see above)",
    ]


HOSTILE = 'x" ]; evil [label="\\\x1b]0;owned\x07\u202e\U000e0041\n'


def test_a_hostile_name_drives_nothing() -> None:
    found = shape(Wait(1, HOSTILE, 1, WaitKind.LEASE, HOSTILE * 9, (HOSTILE, "person"), 990.0, 1050.0))
    for line in [*reports.wait_graph_lines(found, NOW), *reports.dot(found).splitlines()]:
        assert line.isprintable() and len(line) < 400
    assert len(reports.dot(found).splitlines()) == 7, "no line of its own"


def test_a_drawing_is_one_for_graphviz() -> None:
    drawn = reports.dot(shape(Wait(1, 'a"\\', 1, WaitKind.LEASE, HOSTILE, ("b",), 990.0, 1050.0)))
    assert drawn.splitlines()[2] == r'  "a\"\\" [label="a\"\\ (running)"];'


def test_a_circle_that_is_being_broken_is_drawn_too() -> None:
    found = shape(Wait(1, "a", 1, WaitKind.LEASE, "x", ("b",), 0.0, 0.0), Wait(2, "b", 1, WaitKind.LEASE, "y", ("a",), 0.0, 0.0))
    assert list(reports.wait_graph_lines(found, NOW)) == [
        "a (running)",
        "  lease x",
        "    → b (running)",
        "      lease y",
        "        → a (running) (see above)",
    ]
