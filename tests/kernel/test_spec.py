"""What a task is, stored as JSON and read back by every later version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import codec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass

texts = st.text(st.characters(exclude_categories=()))
specs = st.builds(
    TaskSpec,
    name=texts,
    title=texts,
    kind=texts,
    argv=st.lists(texts).map(tuple),
    params=st.dictionaries(texts, texts),
    prompt=st.none() | texts,
    after=st.lists(texts).map(tuple),
    priority=st.integers(),
    task_class=st.sampled_from(TaskClass),
    timeout_s=st.floats(0, 1e9),
    retries=st.integers(),
    cores=st.integers() | st.lists(st.integers()).map(tuple),
    snapshot=texts,
    snapshot_id=texts,
    sandbox=st.none() | st.integers(0, 2),
    network=st.booleans() | st.lists(texts, min_size=1).map(tuple),
    memory_max=st.integers(0),
    disk_max=st.integers(0),
    processes_max=st.integers(0),
    cpu_max=st.floats(0, 1e9),
    model=texts,
    steps_max=st.integers(0),
    allow=st.none() | st.lists(texts).map(tuple),
    interactive=st.booleans(),
)


@given(specs)
def test_what_is_stored_is_read_back(spec: TaskSpec) -> None:
    assert codec.loads(TaskSpec, codec.dumps(spec)) == spec
    assert codec.dumps(spec).isascii()
    assert codec.load(TaskSpec, json.loads(json.dumps(spec, default=codec.brief))) == spec


def test_a_spec_of_another_version_is_read() -> None:
    least = '{"name": "a", "title": "A", "kind": "shell", "argv": ["true"]}'
    assert codec.loads(TaskSpec, least) == TaskSpec("a", "A", "shell", ("true",))
    assert codec.loads(TaskSpec, json.dumps({**json.loads(least), "from_the_future": 1})) == codec.loads(TaskSpec, least)


def test_hosts_come_back_as_they_were_and_an_old_row_keeps_its_yes_or_no() -> None:
    least = {"name": "a", "title": "A", "kind": "shell", "argv": ["true"]}
    stored = [codec.loads(TaskSpec, json.dumps({**least, "network": network})).network for network in (True, False, ["a.org", "*.b.org"])]
    assert stored == [True, False, ("a.org", "*.b.org")]


def test_a_damaged_spec_is_loud() -> None:
    for text in ("", "[]", '{"name": "a"}', '{"name": "a", "title": "", "kind": "", "argv": [], "task_class": "royal"}'):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            codec.loads(TaskSpec, text)
