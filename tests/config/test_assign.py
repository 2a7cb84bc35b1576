"""`[[assign]]` in config.toml, and what it does to a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.kinds import kinds
from supervisor.config import plan, project, user
from supervisor.config.kinds import Choices
from supervisor.kernel import codec
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Rule
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass

RULES = """\
slots = 2
[[assign]]
class = "batch"
tags = ["docs"]
kind = "builtin"
model = "claude-haiku-4-5"

[[assign]]
size = "large"
model = "claude-opus-4-8"
"""


def rules(tmp_path: Path, text: str = RULES) -> tuple[Rule, ...]:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return user.choices(file, kinds()).rules


def task(tmp_path: Path, text: str) -> TaskSpec:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return plan.load(file, kinds(), choices=Choices(rules(tmp_path))).tasks[0]


def test_rules_in_their_order_with_their_lines(tmp_path: Path) -> None:
    assert rules(tmp_path) == (
        Rule("config.toml:2", TaskClass.BATCH, "", ("docs",), "builtin", "claude-haiku-4-5"),
        Rule("config.toml:8", None, "large", (), "", "claude-opus-4-8"),
    )
    assert rules(tmp_path, "") == ()


@pytest.mark.parametrize(
    ("plan_text", "expected"),
    [
        ('class = "batch"\ntags = ["docs"]\nprompt = "x"', ("builtin", "claude-haiku-4-5", "kind builtin, model claude-haiku-4-5")),
        ('class = "batch"\ntags = ["docs"]\nprompt = "x"\nmodel = "m"', ("builtin", "m", "kind builtin")),
        ('kind = "claude"\nsize = "large"\nprompt = "x"', ("claude", "claude-opus-4-8", "model claude-opus-4-8")),
        ('kind = "claude"\nclass = "batch"\ntags = ["docs"]\nprompt = "x"', ("claude", "", "")),
        ('class = "batch"\ntags = ["docs"]\nprompt = "x"\ncommand = "true"', ("shell", "", "")),
    ],
)
def test_a_task_gets_what_it_does_not_say(tmp_path: Path, plan_text: str, expected: tuple[str, str, str]) -> None:
    found = task(tmp_path, f"[[tasks]]\n{plan_text}\n")
    assert (found.kind, found.model, found.assigned.partition(" by ")[0]) == expected
    assert codec.loads(TaskSpec, codec.dumps(found)) == found


def test_what_the_plans_defaults_say_is_said(tmp_path: Path) -> None:
    found = task(tmp_path, '[defaults]\nkind = "claude"\nclass = "batch"\ntags = ["docs"]\n[[tasks]]\nprompt = "x"\n')
    assert (found.kind, found.model, found.assigned, found.tags) == ("claude", "", "", ("docs",))


def test_a_command_of_add_keeps_its_kind_and_an_agent_gets_a_model(tmp_path: Path) -> None:
    some = rules(tmp_path, '[[assign]]\nkind = "claude"\nmodel = "m"\n')
    (shell,) = plan.single(("true",), kinds(), {"id": "a"}, choices=Choices(some)).tasks
    (agent,) = plan.single(("do it",), kinds(), {"id": "a", "kind": "claude"}, choices=Choices(some)).tasks
    assert (shell.kind, shell.assigned) == ("shell", "")
    assert (agent.model, agent.assigned) == ("m", "model m by config.toml:1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[assign]]\nclass = 'batch'", "config.toml:1 assign: it gives nothing"),
        ("[[assign]]\nmodel = 'm'\nclas = 'batch'", "config.toml:3 clas: did you mean class?"),
        ("[[assign]]\nmodel = 'm'\nsize = 'huge'", "config.toml:3 assign.size"),
        (
            "[[assign]]\nmodel = 'm'\n[[assign]]\nkind = 'claud'",
            "config.toml:4 assign.kind: 'claud' is not a kind of agent; did you mean claude?",
        ),
        ("[[assign]]\nkind = 'shell'", "config.toml:2 assign.kind: 'shell' is not a kind of agent"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(tmp_path, text)
    assert said in caught.value.line()


def test_a_repository_cannot_assign(tmp_path: Path) -> None:
    (tmp_path / "nightcrew.toml").write_text('[[assign]]\nkind = "builtin"\n')
    with pytest.raises(ConfigError, match="unknown key"):
        project.load(tmp_path, kinds())
