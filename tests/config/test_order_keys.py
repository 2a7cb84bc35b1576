"""The keys of a plan and of config.toml that say when a task may start, and before whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from supervisor.config import plan, user
from supervisor.kernel import codec
from supervisor.kernel.capacity import Growth
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Kind
from supervisor.kernel.night import Window
from supervisor.kernel.pressure import Limits
from supervisor.kernel.spec import RunSpec, TaskSpec

KINDS = {"shell": Kind("shell", ""), "scout": Kind("scout", "", program=("scout", "--fast"))}
TASK = '[[tasks]]\nid = "a"\ncommand = "true"\n'


def load(tmp_path: Path, text: str) -> RunSpec:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return plan.load(path, KINDS)


def test_after_is_a_list_or_a_table(tmp_path: Path) -> None:
    text = """
[[tasks]]
id = "a"
kind = "scout"
[[tasks]]
id = "b"
command = "true"
after = ["a"]
[[tasks]]
id = "lead"
command = "true"
after = { all = ["a", "b", "a"], on = "finished" }
together = "x"
"""
    found = {task.name: task for task in load(tmp_path, text).tasks}
    assert (found["b"].after, found["b"].after_on, found["b"].together) == (("a",), "done", "")
    assert (found["lead"].after, found["lead"].after_on, found["lead"].together) == (("a", "b"), "finished", "x")
    assert found["a"].argv == ("scout", "--fast"), "a kind that brings its command needs none"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('after = { all = ["a"], on = "maybe" }', "tasks.after.on"),
        ('after = { al = ["a"] }', "al: did you mean all?"),
        ('kind = "scout"', "brings its own command"),
    ],
)
def test_a_bad_table_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f'[[tasks]]\nid = "a"\ncommand = "true"\n{line}\n')
    assert said in caught.value.line()


def test_one_of_several_may_be_enough(tmp_path: Path) -> None:
    text = "".join(f'[[tasks]]\nid = "{name}"\ncommand = "true"\n' for name in "abcd") + 'after = { all = ["a"], any = ["b", "c", "b"] }\n'
    made = load(tmp_path, text).tasks[3]
    assert (made.after, made.after_any) == (("a", "b", "c"), ("b", "c"))
    assert codec.loads(TaskSpec, codec.dumps(made)) == made


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('after = { all = ["b"], any = ["b"] }', "'b' stands in all and in any"),
        ('after = { any = ["x"] }', "no task has the id 'x'"),
        ('after = { any = ["a"] }', "the tasks wait for each other: a -> a"),
        ('not_after = "soon"', "plan.toml:7 tasks.not_after: give a duration"),
        ("not_after = 0", "greater than 0"),
        ("deadline = true", "deadline"),
        ('submitter = "a\\nb"', "one line of printable text"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, '[[tasks]]\nid = "b"\ncommand = "true"\n' + TASK + line + "\n")
    assert said in caught.value.line()


def test_moments_and_submitter_come_from_defaults_too(tmp_path: Path) -> None:
    made = load(tmp_path, '[defaults]\nnot_after = "2h"\nsubmitter = "ci"\n' + TASK + "deadline = 2026-11-23T06:30:00Z\n").tasks[0]
    at = datetime(2026, 11, 23, 6, 30, tzinfo=UTC).timestamp()
    assert (made.submitter, made.not_after, made.deadline) == ("ci", 7200.0, at)
    again = made.submitted_at(1.7e9)
    assert (again.not_after, again.deadline) == (1.7e9 + 7200.0, at)


def test_the_users_order(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[queue]\nageing = "30m"\nweights = { ci = 0.5 }\n[batch]\nwindow = "22:00-06:00"\nwhen_idle = true\n')
    made = user.load(file, 2)
    assert (made.ageing_s, made.weights, made.batch_window, made.batch_when_idle) == (1800.0, {"ci": 0.5}, Window(1320, 360), True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[batch]\nwindow = "night"\n', "config.toml:2 batch.window: give the beginning"),
        ("[queue]\ngrow_above = true\n", "queue.grow_above"),
        ('[queue]\ngrow_above = "soon"\n', "queue.grow_above"),
        ("[queue]\ngrow_above = -1\n", "queue.grow_above"),
        ('[queue]\ngrow_above = 50\nshrink_below = "2m"\n', "queue"),
        ("[queue]\ngrow_above = 5\nshrink_below = 50\n", "queue"),
        ("[queue]\nload_max = -1\n", "queue.load_max"),
        ("[queue]\nwaiting_max = 0\n", "queue.waiting_max"),
        ("[queue.weights]\nci = 0\n", "queue.weights.ci"),
        ('[queue]\nageing = "0s"\n', "queue.ageing"),
    ],
)
def test_a_bad_order_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        user.load(file, 2)
    assert said in caught.value.line()


def test_how_many_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    made = user.load(file, 2)
    assert (made.slots, made.grows, made.growth, made.admission) == (8, True, Growth(), Limits())
    file.write_text("slots = 3\n[queue]\ngrow_above = 50\nshrink_below = 5\nload_max = 4\nwaiting_max = 10\n")
    made = user.load(file, 2)
    assert (made.slots, made.grows, made.growth, made.admission) == (3, False, Growth(50, 5), Limits(4.0, 10))
    file.write_text('[queue]\ngrow_above = "10m"\nshrink_below = "2m"\n')
    assert user.load(file, 16).growth == Growth(600, 120, seconds=True) and user.load(file, 16).slots == 32
