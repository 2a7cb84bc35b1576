"""What a snapshot is, when it is stale and when it goes: properties, and each rule once by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import codec
from supervisor.kernel import snapshots as snapshots_rules
from supervisor.kernel.errors import Refused
from supervisor.kernel.snapshots import (
    STALE_KEPT_S,
    TRANSITIONS,
    Change,
    Pruned,
    Snapshot,
    SnapshotKind,
    SnapshotSpec,
    SnapshotState,
)
from supervisor.kernel.spec import TaskSpec

texts = st.lists(st.text(max_size=4), max_size=3).map(tuple)
numbers = st.integers(0, 2)
specs = st.builds(
    SnapshotSpec,
    name=st.just("deps"),
    kind=st.sampled_from(SnapshotKind),
    setup=texts,
    verify=texts,
    preload=texts,
    copy=texts,
    lock_files=texts,
    memory_max=numbers,
    processes_max=numbers,
    cores=numbers,
)
digests = st.dictionaries(st.sampled_from(["uv.lock", "go.sum", "sub/yarn.lock"]), st.sampled_from(["aa", "bb"]))
oids = st.sampled_from(["0" * 40, "1" * 40])
made = st.builds(
    Snapshot, id=st.just("i"), project=st.just("p"), spec=specs, state=st.just(SnapshotState.READY), base_oid=oids, digests=digests
)


def row(name: str = "deps", state: SnapshotState = SnapshotState.READY, **facts: object) -> Snapshot:
    shape = {"id": f"p/{name}@{len(facts)}", "project": "p", "spec": SnapshotSpec(name), "state": state, "base_oid": "c0ffee", **facts}
    return Snapshot(**shape)  # type: ignore[arg-type]


def task(**facts: object) -> TaskSpec:
    return TaskSpec(**{"name": "a", "title": "a", "kind": "shell", "argv": ("true",), **facts})  # type: ignore[arg-type]


# Chosen ---------------------------------------------------------------------------------------------------------------------------------

BUILDING, READY, FAILED, STALE = SnapshotState


@pytest.mark.parametrize(
    ("found", "noted", "meant"),
    [
        ((), ("a",), None),
        ((FAILED, STALE), (), 0),
        ((STALE, READY), (), 1),
        ((READY, STALE), ("1",), 1),
        ((READY, READY, STALE), ("2", "1"), 2),
        ((READY, STALE), (None, "", "gone", "1"), 1),
        ((READY, FAILED), ("1",), 0),
        ((READY, BUILDING), ("1",), 0),
    ],
)
def test_which_of_a_name_is_meant(found: tuple[SnapshotState, ...], noted: tuple[str | None, ...], meant: int | None) -> None:
    rows = [row(id=str(index), state=state) for index, state in enumerate(found)]
    assert snapshots_rules.chosen(rows, *noted) == (None if meant is None else rows[meant])


@pytest.mark.parametrize("name", ["setup", "verify", "preload"])
def test_whatever_making_it_runs_is_asked_for_with_its_words(name: str) -> None:
    error = snapshots_rules.not_agreed(SnapshotSpec("deps", **{name: ("else",)}))  # type: ignore[arg-type]
    assert error is not None and "else" in error.why and error.hint == "nightcrew snapshot create deps"
    assert snapshots_rules.not_agreed(SnapshotSpec("deps", copy=(".env",))) is None


# Keys and staleness ---------------------------------------------------------------------------------------------------------------------


@given(made, specs, oids, digests)
def test_it_is_stale_exactly_when_its_key_is_another(one: Snapshot, spec: SnapshotSpec, base: str, files: dict[str, str]) -> None:
    same = snapshots_rules.key(one.spec, one.base_oid, one.digests) == snapshots_rules.key(spec, base, files)
    assert (snapshots_rules.staleness(one, spec, base, files) == ()) == same


@given(specs, oids, digests)
def test_a_key_does_not_know_the_name_the_order_or_the_patterns(spec: SnapshotSpec, base: str, files: dict[str, str]) -> None:
    other = dataclasses.replace(spec, name="x", lock_files=("never.lock",))
    assert snapshots_rules.key(spec, base, files) == snapshots_rules.key(other, base, dict(reversed(files.items())))


def test_a_key_is_the_same_for_ever() -> None:
    """It is in ledgers: another key for the same ingredients would make every snapshot stale."""
    spec = SnapshotSpec("deps", SnapshotKind.MEMORY, ("uv sync",), ("ruff --version",), ("ast",), (".env",), ("uv.lock",), 2**30, 64, 2)
    assert snapshots_rules.key(spec, "c0ffee", {"uv.lock": "ab"}) == "92a7cfd297fa864f6257a936ec7bc37ce9e813ff50af14413fa38ff47eba58e6"
    assert snapshots_rules.snapshot_id("0123456789ab", "deps", "f" * 64) == "0123456789ab/deps@ffffffffffff"


def test_what_changed_is_said_in_plain_words() -> None:
    one = row(digests={"uv.lock": "a", "go.sum": "b"}, base_oid="0" * 40)
    now = SnapshotSpec("deps", setup=("make",), memory_max=5)
    assert snapshots_rules.staleness(one, now, "1" * 40, {"uv.lock": "x", "yarn.lock": "y"}) == (
        "its set-up commands changed",
        "its memory_max changed",
        "the base commit is 111111111111, it was made at 000000000000",
        "go.sum is gone",
        "uv.lock changed",
        "yarn.lock is new",
    )


def test_the_changes_are_those_that_change_something() -> None:
    now = SnapshotSpec("deps", setup=("make",))
    rows = [
        row(id="was", epoch=3),
        row(id="is", spec=now),
        row(id="back", spec=now, state=SnapshotState.STALE),
        row(id="still", state=SnapshotState.STALE),
        row(id="other", state=SnapshotState.FAILED),
    ]
    found = snapshots_rules.changes(rows, now, "c0ffee", {"uv.lock": "a"})
    assert found[0] == Change("was", 3, "changed", "its set-up commands changed; uv.lock is new")
    assert [(one.id, one.event) for one in snapshots_rules.changes(rows, now, "c0ffee", {})] == [
        ("was", "changed"),
        ("back", "changed back"),
    ]


@given(specs)
def test_what_is_stored_is_read_back(spec: SnapshotSpec) -> None:
    assert codec.loads(SnapshotSpec, codec.dumps(spec)) == spec


def test_a_spec_of_another_version_is_read() -> None:
    assert codec.loads(SnapshotSpec, '{"name": "a", "from_the_future": [1]}') == SnapshotSpec("a")
    with pytest.raises(ValueError, match="hologram"):
        codec.loads(SnapshotSpec, '{"name": "a", "kind": "hologram"}')


# States -----------------------------------------------------------------------------------------------------------------------------------


def test_every_state_is_in_the_table_can_be_reached_and_can_be_left() -> None:
    reached = {after for steps in TRANSITIONS.values() for after in steps.values()}
    assert set(TRANSITIONS) == reached == set(SnapshotState)
    assert all(TRANSITIONS.values())


def test_an_event_that_the_table_does_not_have_is_refused() -> None:
    assert snapshots_rules.snapshot_after(SnapshotState.BUILDING, "verified") is SnapshotState.READY
    with pytest.raises(Refused, match="cannot take 'verified' for a snapshot: it is failed"):
        snapshots_rules.snapshot_after(SnapshotState.FAILED, "verified")


# Overriding -------------------------------------------------------------------------------------------------------------------------------

FROZEN = SnapshotSpec("warm", SnapshotKind.MEMORY, memory_max=2**30, cores=2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"memory_max": 2**31}, "cannot change memory_max of a memory snapshot warm: it was frozen with 1073741824,"),
        ({"processes_max": 9}, "cannot change processes_max of a memory snapshot warm: it was frozen with none,"),
        ({"cores": 1}, "the task asks for 1;"),
        ({"cores": (0, 1)}, "the task asks for [0, 1]; kept: the snapshot; next: leave cores out of the task"),
    ],
)
def test_what_was_frozen_cannot_be_overridden(asked: dict[str, object], said: str) -> None:
    refused = snapshots_rules.overriding(FROZEN, task(**asked))
    assert refused is not None
    assert said in refused.line()
    assert snapshots_rules.overriding(dataclasses.replace(FROZEN, kind=SnapshotKind.FILESYSTEM), task(**asked)) is None


def test_repeating_what_was_frozen_or_asking_for_what_is_no_resource_is_fine() -> None:
    assert snapshots_rules.overriding(FROZEN, task(memory_max=2**30, cores=2, disk_max=5, timeout_s=9.0)) is None
    assert snapshots_rules.overriding(FROZEN, task()) is None


# Pruning ----------------------------------------------------------------------------------------------------------------------------------

DAY = 86400.0
OLD = STALE_KEPT_S + DAY


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (row(), ""),
        (row(used=0.0), ""),
        (row(state=SnapshotState.BUILDING), ""),
        (row(state=SnapshotState.FAILED), "it failed"),
        (row(state=SnapshotState.FAILED, reason="exit code 1"), "it failed: exit code 1"),
        (row(state=SnapshotState.STALE, used=DAY * 2), ""),
        (row(state=SnapshotState.STALE, used=DAY / 2), "it is stale, and nobody used it for 7 days"),
        (row(state=SnapshotState.STALE, used=DAY / 2, uses=1), ""),
    ],
)
def test_what_goes_and_why(one: Snapshot, why: str) -> None:
    assert snapshots_rules.prune([one], OLD) == ((Pruned(one.id, why),) if why else ())


def test_a_stale_one_goes_when_there_is_a_newer_one_of_its_name_and_project() -> None:
    stale = row(state=SnapshotState.STALE, used=OLD)
    newer = row(used=OLD, id="new")
    assert snapshots_rules.prune([stale, newer], OLD) == (Pruned(stale.id, "it is stale, and there is a newer one of its name"),)
    others = [dataclasses.replace(newer, project="q"), row("other", used=OLD)]
    assert all(snapshots_rules.prune([stale, other], OLD) == () for other in others)


@given(st.lists(st.builds(row, state=st.sampled_from(SnapshotState), uses=numbers)))
def test_nothing_that_is_used_or_being_built_or_ready_by_name_ever_goes(rows: list[Snapshot]) -> None:
    rows = [dataclasses.replace(one, id=str(number)) for number, one in enumerate(rows)]
    kept = [one for one in rows if one.uses or one.state is SnapshotState.BUILDING or one.state is SnapshotState.READY]
    assert not {one.id for one in kept} & {gone.id for gone in snapshots_rules.prune(rows, 1e12)}
