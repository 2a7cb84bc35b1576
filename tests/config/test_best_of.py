"""The keys of a task that several try: what they become, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.kinds import kinds
from supervisor.config import plan
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.spec import TaskSpec

HEAD = '[[tasks]]\nid = "api"\n'


def load(tmp_path: Path, text: str) -> tuple[TaskSpec, ...]:
    (tmp_path / "plan.toml").write_text(text)
    return plan.load(tmp_path / "plan.toml", kinds()).tasks


def test_a_table_is_its_candidates_their_judges_and_the_group(tmp_path: Path) -> None:
    (tmp_path / "rubric.md").write_text("Shorter.")
    text = f"""{HEAD}prompt = "do it"
kind = "claude"
model = "opus"
allow = ["Bash"]
cost_max = 2
gate = "make test"
after = ["first"]
candidates = [{{}}, {{ model = "sonnet" }}, {{ kind = "codex", cost_max = 3 }}]
judge = {{ kind = "builtin", rubric_file = "rubric.md" }}
decide = "gate"

[[tasks]]
id = "first"
command = "true"

[[tasks]]
id = "last"
command = "true"
after = ["api", "api-2"]
"""
    found = {task.name: task for task in load(tmp_path, text)}
    assert list(found) == ["api-1", "api-2", "api-3", "api-judge-1", "api-judge-2", "api", "first", "last"]
    one, two, three = (found[f"api-{number}"] for number in (1, 2, 3))
    assert [(task.kind, task.model, task.allow, task.cost_max) for task in (one, two, three)] == [
        ("claude", "opus", ("Bash",), 2.0), ("claude", "sonnet", ("Bash",), 2.0), ("codex", "", None, 3.0),
    ]  # fmt: skip
    assert {(task.candidate_of, task.prompt, task.after, task.gate_words) for task in (one, two, three)} == {
        ("api", "do it", ("first",), "make test")
    }
    group, judge = found["api"], found["api-judge-2"]
    names = ("api-1", "api-2", "api-3")
    assert (group.candidates, group.after, group.after_on, group.decide, group.argv) == (
        names, (*names, "api-judge-1", "api-judge-2"), "finished", "gate", (),
    )  # fmt: skip
    assert (group.prompt, group.gate, group.cost_max, group.candidate_of) == (None, (), 0.0, "")
    assert (judge.kind, judge.prompt, judge.after, judge.candidates, judge.judge_round) == ("builtin", "Shorter.", names, names, 2)
    assert (judge.allow, judge.sandbox, judge.gate) == (("read", "grep", "glob"), 1, ())
    assert found["last"].after == ("api", "api-2")


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ("best_of = 1", "bad value plan.toml:4 tasks.best_of: Input should be greater than or equal to 2"),
        ("best_of = 17", "bad value plan.toml:4 tasks.best_of: Input should be less than or equal to 16"),
        ("candidates = [{}]", "bad value plan.toml:4 tasks.candidates: List should have at least 2 items"),
        ("candidates = [{}, { modle = 'x' }]", "unknown key plan.toml:4 modle: did you mean model?"),
        ("best_of = 3\ncandidates = [{}, {}]", "bad value plan.toml:4 tasks.best_of: it says 3 and candidates has 2"),
        (
            "candidates = [{}, { kind = 'clade' }]",
            "bad value plan.toml:4 tasks.candidates.kind: 'clade' is not a kind of agent; did you mean claude?",
        ),
        (
            "candidates = [{}, { kind = 'claude' }]",
            "bad value plan.toml:3 tasks.command: a task of kind claude takes a prompt and no command",
        ),
        ("candidates = [{}, { model = 'x' }]", "bad value plan.toml:4 tasks.candidates.model: a task of kind shell has no model"),
        ("decide = 'gate'", "bad value plan.toml:4 tasks.decide: decide is for a task with candidates: give best_of or candidates too"),
        ("best_of = 2\ndecide = 'gate'", "bad value plan.toml:5 tasks.decide: gate is for a task that has a gate"),
        ("best_of = 2\ndecide = 'coin'", "bad value plan.toml:5 tasks.decide: Input should be 'person' or 'gate'"),
        ("judge = { kind = 'claude' }", "bad value plan.toml:4 tasks.judge: judge is for a task with candidates"),
        (
            "best_of = 2\njudge = { kind = 'clade' }",
            "bad value plan.toml:5 tasks.judge.kind: 'clade' is not a kind of agent; did you mean claude?",
        ),
        (
            "best_of = 2\njudge = { rubric = 'x', rubric_file = 'y' }",
            "bad value plan.toml:5 tasks.judge: give rubric or rubric_file, not both",
        ),
        ("best_of = 2\njudge = { command = 'x', rubric_file = 'y' }", "bad value plan.toml:5 tasks.judge.rubric_file: y: "),
        ("best_of = 2\njudge = { rubric = 'x' }", "missing key plan.toml:5 tasks.judge.command: a task of kind shell needs a command"),
        ("best_of = 2\nafter = ['api']", "bad value plan.toml:5 tasks.after: the tasks wait for each other: "),
        (
            "best_of = 2\n[[tasks]]\nid = 'api-2'\ncommand = 'x'",
            "bad value plan.toml:6 tasks.id: 'api-2' is already the id of another task",
        ),
        (
            "best_of = 2\n[[tasks]]\nid = 'b'\nkind = 'claude'\nprompt = 'x'\ncontinue_from = 'api'",
            "bad value plan.toml:9 tasks.continue_from: api is one of several",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, lines: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f'{HEAD}command = "true"\n{lines}\n')
    assert caught.value.line().replace(f"{tmp_path}/", "").startswith(answer)


def test_a_name_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has at most 56 characters"):
        load(tmp_path, f'[[tasks]]\nid = "{"x" * 57}"\ncommand = "true"\nbest_of = 2\n')


def test_one_command_is_tried_several_times() -> None:
    made = plan.single(("true",), kinds(), {"id": "task", "best_of": 3, "gate": "true", "decide": "gate"}).tasks
    assert [task.name for task in made] == ["task-1", "task-2", "task-3", "task"] and made[-1].decide == "gate"
    with pytest.raises(UsageError, match="decide is for a task with candidates"):
        plan.single(("true",), kinds(), {"id": "task", "decide": "gate"})
