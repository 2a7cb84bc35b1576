"""What a task started from and what it is kept from, in words and in a row."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView
from supervisor.views import agent_status, status
from supervisor.views.crew import Seen, crew


def view(**known: Any) -> TaskView:
    """A running shell task of which nothing else is known."""
    nothing = {field.name: None for field in fields(TaskView)}
    given = {"id": "r/t", "epoch": 1, "state": TaskState.RUNNING, "kind": "shell", "environment": "", "submitted": 0.0, "reason": ""}
    return TaskView(**{**nothing, **given, **known})


def test_nothing_is_said_before_it_started() -> None:
    assert status.made_of(view()) == []


def test_snapshot_isolation_and_name() -> None:
    said = status.made_of(view(snapshot="0123/deps@abc", backend="overlay", tier=1, environment="review"))
    assert [name for name, _ in said] == ["snapshot", "isolation", "name"]
    assert said[0][1] == "deps@abc (overlay)"
    assert said[1][1].startswith("tier 1: ")
    assert said[2][1] == "review: nightcrew fork --reopen review"
    assert status.made_of(view(port=20_010)) == [("ports", "20010-20019")]
    assert status.made_of(view(port=20_010, state=TaskState.DONE)) == [], "another may have them"
    assert status.made_of(view(tier=9)) == [("isolation", "tier 9")], "of a later version"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"tier": 0}, ["none for 1"]),
        ({"tier": 0, "kind": "terminal"}, []),
        ({"tier": 1}, []),
        ({"tier": None}, []),
        ({"tier": 0, "state": TaskState.DONE}, []),
    ],
)
def test_an_agent_that_nobody_watches_and_nothing_confines_is_said_loudly(known: dict[str, Any], said: list[str]) -> None:
    """Once above all, and not in each row."""
    assert [fact.value for fact in crew(Seen([view(**known)])).facts if fact.name == "sandbox" and fact.bad] == said


def test_what_was_assigned_is_said_everywhere() -> None:
    given = view(assigned="kind builtin by config.toml:12", state=TaskState.READY, changed=1.0)
    assert status.made_of(given) == [("assigned", "kind builtin by config.toml:12")]
    assert status.task_shape(given)["assigned"] == "kind builtin by config.toml:12" and status.task_shape(view())["assigned"] is None
    assert "  assigned  kind builtin by config.toml:12" in agent_status.lines(given, agent_status.of(given, {}, None, 1.0), 1.0)


def test_as_json() -> None:
    shape = status.task_shape(view(snapshot="0123/deps@abc", backend="plain", tier=2))
    assert status.task_shape(view(port=20_010))["port"] == 20_010
    assert [shape[key] for key in ("environment", "snapshot", "backend", "tier")] == [None, "0123/deps@abc", "plain", 2]
    assert status.task_shape(view(environment="review"))["environment"] == "review"


def test_what_an_agent_says_of_itself() -> None:
    agent = {"message": "\nI could not.\nSorry.", "denials": ["Bash: a", "Write: b"], "session": "s-1"}
    done = view(state=TaskState.DONE, result={"commits": 2, "agent": agent}, branch="b")
    assert status.said_of_itself(done.result) == [
        ("said", "I could not."),
        ("denied", "Bash: a"),
        ("denied", "Write: b"),
        ("session", "s-1"),
    ]
    assert status.detail(done, Path("/nowhere")) == "2 commits on b; I could not."


def test_its_own_words_come_before_what_it_printed_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "runs/r/t/1").mkdir(parents=True)
    (tmp_path / "runs/r/t/1/stderr.log").write_text("Reading additional input from stdin...\n")
    failed = {"state": TaskState.FAILED, "reason": "failed: exit status 1"}
    assert status.detail(view(**failed), tmp_path) == "exit status 1: Reading additional input from stdin..."
    assert status.detail(view(**failed, result={"agent": {"message": "", "denials": []}}), tmp_path) == "exit status 1"


@pytest.mark.parametrize("result", [None, {}, {"agent": None}, {"commits": 0}])
def test_results_of_older_versions_say_nothing_of_themselves(result: Any) -> None:
    assert (status.said_of_itself(result), status.last_message(result)) == ([], "")
