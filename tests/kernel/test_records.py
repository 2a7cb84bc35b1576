"""The files of an attempt. What a runner wrote is read whole or not at all, and nothing that is read can harm the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import result
from supervisor.kernel.names import Identity, mark
from supervisor.kernel.records import Exit, LaunchSpec, Started, parse_exit, parse_started, write_spec
from supervisor.kernel.states import End

STARTED: dict[str, Any] = {"schema": 1, "task": "r/a", "epoch": 2, "pid": 77, "ticks": 12345, "boot_id": "b-o-o-t", "at": 1700000000.5}
EXIT: dict[str, Any] = {
    "schema": 1,
    "task": "r/a",
    "epoch": 2,
    "code": None,
    "signal": 9,
    "why": "exit",
    "detail": "",
    "started": 1700000000.0,
    "ended": 1700000009.5,
    "duration_s": 9.5,
    "cpu_s": 0.25,
    "truncated": {"stdout": 10},
    "survivors": [5],
}
NASTY: list[Any] = [None, "x", [], {}, float("nan"), float("inf"), -float("inf"), 1e300, -1, "\ud800"]


def test_started_is_read_back() -> None:
    assert parse_started(json.dumps(STARTED)) == Started("r/a", 2, Identity(77, 12345, "b-o-o-t"), 1700000000.5)


def test_exit_is_read_back() -> None:
    assert parse_exit(json.dumps(EXIT)) == Exit(
        "r/a", 2, None, 9, "exit", "", 1700000000.0, 1700000009.5, 9.5, 0.25, {"stdout": 10}, (5,)
    )  # fmt: skip
    older = {key: value for key, value in EXIT.items() if key not in ("detail", "truncated", "survivors")}
    assert parse_exit(json.dumps({**older, "code": 0, "signal": None})) == Exit(
        "r/a", 2, 0, None, "exit", "", 1700000000.0, 1700000009.5, 9.5, 0.25
    )


@pytest.mark.parametrize("shape", [STARTED, EXIT], ids=["started", "exit"])
def test_a_record_that_is_cut_short_or_newer_is_none(shape: dict[str, Any]) -> None:
    parse = parse_started if shape is STARTED else parse_exit
    whole = json.dumps(shape)
    for length in range(len(whole)):
        assert parse(whole[:length]) is None
    for text in ("", "null", "[]", "3", "{}", " " * 4096, "[" * 100_000, json.dumps({**shape, "schema": 2})):
        assert parse(text) is None
    for key in shape.keys() - {"detail", "truncated", "survivors"}:
        assert parse(json.dumps({name: value for name, value in shape.items() if name != key})) is None, key


@pytest.mark.parametrize("value", NASTY, ids=repr)
@pytest.mark.parametrize("key", sorted(EXIT))
def test_no_value_in_an_exit_record_stops_the_daemon(key: str, value: Any) -> None:
    found = parse_exit(json.dumps({**EXIT, key: value}))
    if found is not None:
        assert json.loads(json.dumps(build(found), allow_nan=False))["task"] == "r/a"
        for text in (found.task, found.why, found.detail):
            text.encode()  # as the ledger does


def build(record: Exit) -> dict[str, Any]:
    work = result.Work(None, None, 0, 0, 0, 0, None)
    times = result.Times(1.0, 2.0, 3.0)
    return result.build(task="r/a", epoch=2, end=End.DONE, cause="", record=record, times=times, work=work, output=None)


@pytest.mark.parametrize("value", NASTY, ids=repr)
@pytest.mark.parametrize("key", sorted(STARTED))
def test_no_value_in_a_start_record_names_a_group_of_processes(key: str, value: Any) -> None:
    found = parse_started(json.dumps({**STARTED, key: value}))
    assert found is None or found.identity.pid > 0


@pytest.mark.parametrize("pid", [0, -1, -77, 2**31, float("inf")])
def test_a_pid_is_one_process(pid: float) -> None:
    assert parse_started(json.dumps({**STARTED, "pid": pid})) is None
    assert parse_exit(json.dumps({**EXIT, "survivors": [pid]})) is None


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)


@given(st.dictionaries(st.sampled_from(sorted(STARTED | EXIT)), json_values))
def test_any_json_is_a_record_or_none(shape: dict[str, Any]) -> None:
    text = json.dumps({**STARTED, **EXIT, **shape})
    assert parse_started(text) is None or isinstance(parse_started(text), Started)
    assert parse_exit(text) is None or isinstance(parse_exit(text), Exit)


@given(st.text())
def test_any_text_is_a_record_or_none(text: str) -> None:
    assert parse_started(text) is None
    assert parse_exit(text) is None


def test_launch_spec_is_entries_ended_by_nul() -> None:
    spec = LaunchSpec(
        "r/a",
        3,
        "tag",
        ("sh", "-c", "a=b\nc"),
        "/w",
        (("PATH", "/bin"), ("X", "a=b"), ("BYTES", "\udcff")),
        cores=(1, 2),
        rlimits=(("AS", 5),),
    )
    entries = write_spec(spec).split(b"\0")
    assert entries.pop() == b""
    assert [entry for entry in entries if entry.startswith((b"argv", b"env", b"core", b"rlimit"))] == [
        b"argv=sh",
        b"argv=-c",
        b"argv=a=b\nc",
        b"env=PATH=/bin",
        b"env=X=a=b",
        b"env=BYTES=\xff",
        b"core=1",
        b"core=2",
        b"rlimit=AS=5",
    ]
    assert {b"task=r/a", b"epoch=3", b"mode=headless", b"timeout_s=0.0", b"stdin="} <= set(entries)


@pytest.mark.parametrize("spec", [LaunchSpec("r/a", 1, "t", ("a\0b",), "/w"), LaunchSpec("r/a", 1, "t", ("a",), "/w", (("X", "\0"),))])
def test_launch_spec_cannot_carry_nul(spec: LaunchSpec) -> None:
    with pytest.raises(ValueError, match="NUL"):
        write_spec(spec)


@given(st.text(st.characters(codec="utf-8")))
def test_marks_fit_a_limit_and_tell_attempts_apart(text: str) -> None:
    assert 2**40 <= mark(text) < 2**62
    assert mark(text) != mark(text + "x")
