"""`size` of a task: by `[size.NAME]` in config.toml it gets cores, memory and a model, and "auto" measures it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.kinds import kinds
from supervisor.config import plan, project, user
from supervisor.config.kinds import Choices
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.spec import Repository, TaskSpec

SIZES = """\
[size.small]
cores = 1
memory_max = "1GiB"
model = { claude = "haiku" }

[size.large]
cores = 4

[[assign]]
size = "large"
kind = "claude"
model = "opus"
"""


def choices(tmp_path: Path, text: str = SIZES) -> Choices:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return user.choices(file, kinds())


def tasks(tmp_path: Path, text: str, given: Choices | None = None) -> list[TaskSpec]:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return list(plan.load(file, kinds(), choices=given or choices(tmp_path)).tasks)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ('kind = "claude"\nprompt = "x"\nsize = "small"', (1, 2**30, "haiku", "cores 1, memory_max 1.0 GiB, model haiku by size.small")),
        ('kind = "claude"\nprompt = "x"\nsize = "small"\nmodel = "m"\ncores = 2', (2, 2**30, "m", "memory_max 1.0 GiB by size.small")),
        ('kind = "codex"\nprompt = "x"\nsize = "small"', (1, 2**30, "", "cores 1, memory_max 1.0 GiB by size.small")),
        ('kind = "claude"\nprompt = "x"\nsize = "large"', (4, 0, "opus", "model opus by config.toml:9; cores 4 by size.large")),
        ('command = "make"\nsize = "small"', (1, 2**30, "", "cores 1, memory_max 1.0 GiB by size.small")),
        ('command = "make"\nsize = "medium"', (0, 0, "", "")),
        ('command = "make"', (0, 0, "", "")),
    ],
)
def test_a_task_gets_what_its_size_has_and_it_does_not_say(tmp_path: Path, keys: str, expected: tuple[int, int, str, str]) -> None:
    (task,) = tasks(tmp_path, f"[[tasks]]\n{keys}\n")
    assert (task.cores, task.memory_max, task.model, task.assigned) == expected


def test_auto_is_measured_once_for_a_plan_before_anything_is_chosen_by_it(tmp_path: Path) -> None:
    asked = []

    def measure(base: str) -> Repository:
        asked.append(base)
        return Repository(20_000, 2**30)

    (tmp_path / "p.md").write_text("word " * 1000)
    text = 'base = "main"\n[defaults]\nsize = "auto"\n' + "".join(
        f"[[tasks]]\n{keys}\n"
        for keys in ('prompt_file = "p.md"', 'kind = "claude"\nprompt = "fix it"', 'command = "make"\nsize = "small"')
    )
    first, second, third = tasks(tmp_path, text, replace(choices(tmp_path), repository=measure))
    assert (first.size, first.kind, first.model, first.cores) == ("large", "claude", "opus", 4)
    assert first.assigned.startswith("size large by a prompt of 1000 words and 20,000 files of 1.0 GiB; kind claude, model opus by")
    assert (second.size, third.size, asked) == ("medium", "small", ["main"])
    assert tasks(tmp_path, '[[tasks]]\ncommand = "make"\nsize = "small"\n', replace(choices(tmp_path), repository=measure)) and asked == [
        "main"
    ]


def test_a_project_can_say_auto_and_cannot_say_what_a_size_is(tmp_path: Path) -> None:
    (tmp_path / "nightcrew.toml").write_text('[defaults]\nsize = "auto"\n')
    assert project.load(tmp_path, kinds()).defaults.size == "auto"
    (tmp_path / "nightcrew.toml").write_text("[size.small]\ncores = 1\n")
    with pytest.raises(ConfigError, match="unknown key"):
        project.load(tmp_path, kinds())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[size.huge]\ncores = 1", "config.toml:1"),
        ("[size.small]\ncores = 0", "config.toml:2 size.small.cores"),
        ('[size.small]\nmodel = { claud = "x" }', "config.toml:2 size.small.model: 'claud' is not a kind of agent; did you mean claude?"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choices(tmp_path, text)
    assert said in caught.value.line()
