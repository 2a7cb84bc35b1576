"""The runner's own small writers and readers against the ones that own the formats."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runner import loop
from agents.runner.loop import ExitRecord, Spec, SpecError, to_json, write_started
from supervisor.kernel import names, records
from supervisor.kernel.records import LaunchSpec

DATA = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b""))
BYTES = DATA.map(os.fsdecode)
NAMES = DATA.map(lambda data: os.fsdecode(data.replace(b"=", b""))).filter(bool)
SPECS = st.builds(
    LaunchSpec,
    task=BYTES,
    epoch=st.integers(0, 10**6),
    tag=BYTES,
    argv=st.lists(BYTES, min_size=1, max_size=4).map(tuple),
    cwd=BYTES,
    env=st.dictionaries(NAMES, BYTES, max_size=4).map(lambda pairs: tuple(pairs.items())),
    mode=st.sampled_from(["headless", "terminal"]),
    stdin=BYTES,
    timeout_s=st.floats(0, 1e9),
    grace_s=st.floats(0, 1e9),
    log_max=st.integers(0, 2**40),
    nice=st.integers(-20, 19),
    idle=st.booleans(),
    share=st.lists(BYTES, max_size=3).map(tuple),
    cores=st.lists(st.integers(0, 500), max_size=4).map(tuple),
    rlimits=st.lists(st.tuples(st.sampled_from(["AS", "CPU"]), st.integers(0, 2**62)), max_size=3).map(tuple),
    mark=st.integers(0, 2**62),
    hint_socket=BYTES,
    warm=st.booleans(),
    quiet=st.booleans(),
    sentinel=BYTES,
    policy=BYTES,
    wrap=st.lists(BYTES, max_size=3).map(tuple),
    join=st.lists(BYTES, max_size=3).map(tuple),
    gate=st.lists(BYTES, max_size=3).map(tuple),
    gate_timeout_s=st.floats(0, 1e9),
)


@given(SPECS)
def test_the_runner_reads_what_the_daemon_writes(spec: LaunchSpec) -> None:
    read = Spec(records.write_spec(spec))
    assert (read.task, read.epoch, os.fsdecode(read.tag)) == (spec.task, spec.epoch, spec.tag)
    assert tuple(map(os.fsdecode, read.argv)) == spec.argv
    assert (os.fsdecode(read.cwd), os.fsdecode(read.stdin), os.fsdecode(read.hint_socket)) == (spec.cwd, spec.stdin, spec.hint_socket)
    assert {os.fsdecode(name): os.fsdecode(text) for name, text in read.env.items()} == dict(spec.env)
    assert read.headless == (spec.mode == "headless")
    assert (read.timeout_s, read.grace_s, read.log_max) == (spec.timeout_s, spec.grace_s, spec.log_max)
    assert (read.nice, tuple(read.cores), tuple(read.rlimits), read.mark) == (spec.nice, spec.cores, spec.rlimits, spec.mark)
    assert read.quiet == spec.quiet
    assert os.fsdecode(read.sentinel) == spec.sentinel
    assert (read.warm, os.fsdecode(read.policy), tuple(map(os.fsdecode, read.wrap))) == (spec.warm, spec.policy, spec.wrap)
    assert (tuple(map(os.fsdecode, read.join)), tuple(map(os.fsdecode, read.share)), read.idle) == (spec.join, spec.share, spec.idle)
    assert (tuple(map(os.fsdecode, read.gate)), read.gate_timeout_s) == (spec.gate, spec.gate_timeout_s)


def test_every_field_of_the_contract_is_read() -> None:
    theirs = {field.name for field in dataclasses.fields(LaunchSpec)}
    assert set(Spec.__slots__) == theirs


def test_a_spec_of_an_older_supervisor_starts_cold_and_alone() -> None:
    more: dict[str, Any] = {"warm": True, "idle": True, "policy": "p", "wrap": ("w",), "join": ("/j",), "share": ("/s",), "gate": ("g",)}
    whole = records.write_spec(LaunchSpec("run/t", 1, "tag", ("true",), "/", **more))
    newer = (b"warm=", b"quiet=", b"sentinel=", b"idle=", b"policy=", b"wrap=", b"join=", b"share=", b"gate=", b"gate_timeout_s=")
    older = b"".join(entry + b"\0" for entry in whole.split(b"\0")[:-1] if not entry.startswith(newer))
    assert len(older) < len(whole)
    read = Spec(older)
    assert (read.warm, read.idle, read.policy, read.wrap, read.join, read.share) == (False, False, b"", [], [], [])
    assert (read.gate, read.gate_timeout_s, read.confined) == ([], 0.0, False)


def test_a_spec_that_is_cut_short_anywhere_is_refused() -> None:
    lists: dict[str, Any] = {"env": (("A", "b"),), "cores": (1,), "rlimits": (("AS", 1),), "wrap": ("w",), "join": ("/j",)}
    whole = records.write_spec(LaunchSpec("run/t", 1, "tag", ("true",), "/", **lists))
    for length in range(len(whole)):
        with pytest.raises(SpecError):
            Spec(whole[:length])


@pytest.mark.parametrize("entry", [b"epoch=one", b"epoch=", b"timeout_s=soon", b"core=x", b"rlimit=AS"])
def test_a_spec_with_a_bad_number_is_refused(entry: bytes) -> None:
    whole = records.write_spec(LaunchSpec("run/t", 1, "tag", ("true",), "/"))
    with pytest.raises(SpecError):
        Spec(whole + entry + b"\0")


JSON = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | BYTES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_its_json_is_json(value: object) -> None:
    text = to_json(value)
    assert text.isascii()
    assert json.loads(text) == value


def test_the_tag_variable_is_the_same() -> None:
    assert f"{names.TAG_VARIABLE}=".encode() == loop._TAG
    assert records.FINISHED == loop._FINISHED


def test_only_the_first_claim_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_started({"pid": 1})
    before = os.stat("started.json")
    assert not write_started({"pid": 2})
    assert json.loads(Path("started.json").read_text()) == {"pid": 1}
    assert os.stat("started.json").st_mtime_ns == before.st_mtime_ns
    assert os.listdir() == ["started.json"]


def test_the_exit_record_appears_whole_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = ExitRecord()
    assert "exit.json" not in os.listdir()
    record.write({"code": 3})
    assert Path("exit.json").read_text() == '{"code": 3}'
    assert os.stat("exit.json").st_mode & 0o777 == 0o600
    assert os.listdir() == ["exit.json"]
