"""Which rule gives a task its kind and model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.kind import Given, Rule, Task, assign
from supervisor.kernel.states import TaskClass

NORMAL, BATCH = TaskClass.NORMAL, TaskClass.BATCH
RULES = (
    Rule("config.toml:1", BATCH, "small", ("docs",), "builtin", "qwen3"),
    Rule("config.toml:7", BATCH, kind="codex"),
    Rule("config.toml:9", kind="claude", model="claude-opus-4-8"),
)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (Task(BATCH, "small", ("docs", "de")), Given("builtin", "qwen3", "kind builtin, model qwen3 by config.toml:1")),
        (Task(BATCH, "small"), Given("codex", "", "kind codex by config.toml:7")),
        (Task(NORMAL), Given("claude", "claude-opus-4-8", "kind claude, model claude-opus-4-8 by config.toml:9")),
        (Task(NORMAL, model="mine"), Given("claude", "", "kind claude by config.toml:9")),
        (Task(BATCH, kind="claude"), Given("", "claude-opus-4-8", "model claude-opus-4-8 by config.toml:9")),
        (Task(BATCH, kind="codex"), Given()),
        (Task(NORMAL, kind="gemini"), Given()),
    ],
)
def test_the_first_rule_that_fits_gives_what_the_task_does_not_say(task: Task, expected: Given) -> None:
    assert assign(RULES, task) == expected


words = st.sampled_from(["", "a", "b"])
tags = st.lists(st.sampled_from("xyz"), max_size=3, unique=True).map(tuple)
rules = st.builds(
    Rule, where=st.uuids().map(str), task_class=st.sampled_from([None, *TaskClass]), size=words, tags=tags, kind=words, model=words
)
tasks = st.builds(Task, task_class=st.sampled_from(TaskClass), size=words, tags=tags, kind=words, model=words)


@given(st.lists(rules, max_size=6), tasks)
def test_what_a_task_says_is_never_changed_and_later_rules_never_matter(some: list[Rule], task: Task) -> None:
    found = assign(some, task)
    assert not (found.kind and task.kind) and not (found.model and task.model)
    assert bool(found.by) == bool(found.kind or found.model)
    fitting = [rule for rule in some if assign([rule], task) != Given()]
    if found.by:
        assert fitting and found.by.endswith(fitting[0].where)
        assert assign(some[: some.index(fitting[0]) + 1], task) == found
    said = Task(task.task_class, task.size, task.tags, found.kind or task.kind, found.model or task.model)
    assert all(not given.kind for given in (assign(some, said),)) or not said.kind
