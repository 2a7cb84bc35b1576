"""JSON that is laid out as `json.dumps(indent=2)` does it, by json's encoder in C."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.client.common import indented
from supervisor.kernel.states import TaskState
from tests.rounds import examples

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(TaskState))
KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none())
VALUES = st.recursive(PLAIN, lambda one: st.one_of(st.lists(one, max_size=4), st.dictionaries(KEYS, one, max_size=5)), max_leaves=20)


@settings(max_examples=examples(300), deadline=None)
@given(VALUES)
def test_it_is_what_json_makes_of_it(value: Any) -> None:
    assert indented(value) == json.dumps(value, indent=2)
