"""What one attempt came to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import trace_id
from supervisor.kernel.records import Exit
from supervisor.kernel.result import MAX_DEPTH, Spent, Times, Work, build, last_json_object
from supervisor.kernel.states import End

WORK = Work("nightcrew/r/a/work", "c0ffee", 2, 3, 40, 5, "refs/x", ("note",))


def test_a_result_with_its_record() -> None:
    record = Exit("r/a", 2, 1, None, "exit", "", 1700000001.0, 1700000003.5, 2.5, 0.1234567, {"stdout": 9})
    made = build(
        task="r/a",
        epoch=2,
        end=End.FAILED,
        cause="exit code 1",
        record=record,
        times=Times(queued=1699999999.0, spawned=1700000000.5, ended=1700000099.0, up=1700000000.75),
        work=WORK,
        output={"answer": 42},
    )
    assert made == {
        "schema": 1,
        "task": "r/a",
        "epoch": 2,
        "end": "failed",
        "cause": "exit code 1",
        "exit": {"code": 1, "signal": None},
        "queued": "2023-11-14T22:13:19.000Z",
        "up": "2023-11-14T22:13:20.750Z",
        "started": "2023-11-14T22:13:21.000Z",
        "ended": "2023-11-14T22:13:23.500Z",
        "waits": {"queue_s": 1.5, "tokens_s": None, "human_s": None},
        "cpu_s": 0.123,
        "account": None,
        "spawn_to_done_ms": 3000,
        "tokens": {"input": None, "output": None, "cache_read": None, "cache_write": None, "estimated": None},
        "first_request": None,
        "models": [],
        "trace": trace_id("r/a"),
        "assigned": None,
        "cost_usd": None,
        "branch": "nightcrew/r/a/work",
        "tip": "c0ffee",
        "rescue": "refs/x",
        "commits": 2,
        "diff": {"files": 3, "plus": 40, "minus": 5},
        "truncated": {"stdout": 9},
        "unleased": None,
        "notes": ["note"],
        "output": {"answer": 42},
        "agent": None,
        "gate": None,
        "measured": None,
    }


def test_a_result_without_a_record_and_with_a_clock_that_went_back() -> None:
    times = Times(queued=1700000100.0, spawned=1700000050.0, ended=1700000000.0)
    made = build(task="r/a", epoch=1, end=End.LOST, cause="", record=None, times=times, work=WORK, output=None)
    assert (made["started"], made["cpu_s"], made["truncated"]) == (None, None, {})
    assert made["exit"] == {"code": None, "signal": None}
    assert (made["waits"]["queue_s"], made["spawn_to_done_ms"]) == (0.0, 0)


def test_times_are_utc_with_milliseconds() -> None:
    assert rfc3339(1700000000.9996) == "2023-11-14T22:13:20.999Z"
    assert rfc3339(0.0) is None
    assert rfc3339(None) is None


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"", None),
        (b"hello\n", None),
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": 1}\n{"b": 2}\nbye\n', {"b": 2}),
        (b'cut off": 1}\n  {"b": 2}  \r\n\n', {"b": 2}),
        (b'{"a": 1}\n{broken}\n', {"a": 1}),
        (b'[1]\n"x"\n', None),
        (b'{"a": 1}\n{"b": "\xff"}\n', {"a": 1}),
        (b'{"a": 1}\n{"b": NaN}\n{"b": -Infinity}\n{"b": 1e999}\n', {"a": 1}),
        (b'{"a": 1}\n{"b": ' + b"9" * 5000 + b"}\n", {"a": 1}),
        (b'{"b": 0.5, "c": [-1, {"d": null}]}', {"b": 0.5, "c": [-1, {"d": None}]}),
    ],
)
def test_the_output_is_the_last_line_that_is_a_json_object(tail: bytes, expected: object) -> None:
    assert last_json_object(tail) == expected


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 990, 5000, 100_000])
def test_an_agent_cannot_stop_the_daemon_by_nesting(levels: int) -> None:
    inner = levels - 1
    assert last_json_object(b'{"ok": 1}\n' + b'{"a":' * inner + b"{}" + b"}" * inner) == {"ok": 1}
    assert last_json_object(b'{"ok": 1}\n{"a":' + b"[" * inner + b"]" * inner + b"}") == {"ok": 1}


def test_the_deepest_output_that_is_read_can_be_written() -> None:
    inner = MAX_DEPTH - 1
    found = last_json_object(b'{"a":' * inner + b"{}" + b"}" * inner)
    assert found is not None
    json.dumps(found, indent=2)


@given(st.binary())
def test_any_output_is_an_object_or_none(tail: bytes) -> None:
    found = last_json_object(tail + b"}")
    assert found is None or isinstance(found, dict)


def test_what_the_gateway_says_of_it() -> None:
    took = Spent(
        input=10, output=20, cache_read=30, cache_write=40, estimated=1, cost_usd=0.125, waited_s=7.5, notes=("late",), first=(1, 3, 0)
    )
    times = Times(1.0, 2.0, 3.0)
    made = build(task="r/a", epoch=1, end=End.DONE, cause="", record=None, times=times, work=WORK, output=None, spent=took)
    assert made["tokens"] == {"input": 10, "output": 20, "cache_read": 30, "cache_write": 40, "estimated": 1}
    assert made["first_request"] == {"input": 1, "cache_read": 3, "cache_write": 0, "cache_hits": 0.75}
    assert (made["cost_usd"], made["waits"]["tokens_s"], made["notes"]) == (0.125, 7.5, ["note", "late"])
