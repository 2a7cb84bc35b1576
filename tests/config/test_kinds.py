"""Kinds that a person adds, and the keys of a task that depend on its kind."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from agents.kinds import driven, kinds
from supervisor.config import kinds as own
from supervisor.config import plan, task_keys
from supervisor.config.kinds import KindModel
from supervisor.config.toml import parse
from supervisor.kernel import codec
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.spec import RunSpec, TaskSpec

GOOD = 'description = "d"\nbinary = "b"\nheadless = ["{prompt}"]\n'


@pytest.mark.parametrize("name", [name for name, made in kinds().items() if made.binary])
def test_our_own_are_files_that_a_person_could_have_written(name: str) -> None:
    ours = (resources.files("agents") / "kinds.toml").read_text()
    text = re.split(rf"(?m)^\[(?!{name}\.)", ours.partition(f"\n[{name}]\n")[2])[0].replace(f"\n[{name}.", "\n[")
    assert parse(text, KindModel, name).binary == kinds()[name].binary
    assert text.startswith("# Flags: ") and kinds()[name].version in text.partition("description")[0]


def test_every_key_reaches_the_kind(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    more = 'gateway = ["-g"]\nprompt = "stdin"\nenv = { A = "1" }\nallow = ["A"]\nsandboxed = ["-y"]\nunsandboxed = ["-n"]\n'
    file.write_text(f'{GOOD}{more}interactive = ["-i"]\nprotocol = "codex"\nversion = "1"\n')
    made = own.load("k", file)
    assert (made.name, made.program, made.source, made.headless, made.interactive) == ("k", ("b",), str(file), ("{prompt}",), ("-i",))
    assert (made.protocol, made.version, made.allow, made.sandboxed, made.unsandboxed) == ("codex", "1", ("A",), ("-y",), ("-n",))
    assert (made.gateway, made.prompt, made.env) == (("-g",), "stdin", {"A": "1"})


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("sweep = true", "unknown key k.toml:4 sweep: known:"),
        ("module = 'os'", "unknown key k.toml:4 module:"),
        ("interactive = ['{promt}']", "bad value k.toml:4 interactive: {promt} is no placeholder; there are prompt, prompt_file,"),
        ("interactive = ['-x{permissions}']", "bad value k.toml:4 interactive: {permissions} is no placeholder"),
        ('interactive = ["\\u0000"]', "bad value k.toml:4 interactive: a word cannot hold a NUL"),
        ("prompt = 'file'", 'bad value k.toml:1: headless has no {prompt_file}; prompt = "file" needs it'),
        ("prompt = 'pipe'", "bad value k.toml:4 prompt: Input should be 'argument', 'stdin', 'file' or 'stream', not 'pipe'"),
        ("protocol = 'lsp'", "bad value k.toml:4 protocol:"),
        ("protocol = 'acp'", 'bad value k.toml:1: prompt = "stream" goes with protocol = claude or acp'),
        ("prompt = 'stream'", 'bad value k.toml:1: prompt = "stream" goes with protocol = claude or acp'),
        ("env = { NIGHTCREW_TOKEN = 'x' }", "bad value k.toml:4 env: 'NIGHTCREW_TOKEN' cannot be a variable of an agent"),
    ],
)
def test_a_bad_line_of_a_kind_is_named(tmp_path: Path, line: str, answer: str) -> None:
    file = tmp_path / "k.toml"
    file.write_text(f"{GOOD}{line}\n")
    with pytest.raises(ConfigError) as caught:
        own.load("k", file)
    assert caught.value.line().replace(f"{tmp_path}/", "").startswith(answer)


def test_a_kind_needs_arguments(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    file.write_text('description = "d"\nbinary = "b"\n')
    with pytest.raises(ConfigError, match="give headless or interactive"):
        own.load("k", file)


def test_a_kind_of_an_acp_agent_needs_no_arguments_and_a_task_of_any_acp_agent_a_command(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    file.write_text('description = "d"\nbinary = "b"\nprotocol = "acp"\nprompt = "stream"\n')
    made = driven(own.load("k", file))
    assert (made.is_agent, made.takes_input, made.output, made.takes_prompt(interactive=False)) == (True, True, "json lines", True)
    assert [made.knows(key, interactive=False) for key in ("model", "allow", "steps_max")] == [True, True, False]
    task = '[[tasks]]\nid = "a"\nkind = "acp"\nprompt = "do"\n'
    assert loaded(tmp_path, f'{task}command = ["gemini", "--acp"]\n').tasks[0].argv == ("gemini", "--acp")
    for line, answer in {
        "": "missing key plan.toml:1 tasks.command: a task of kind acp needs the command of its agent",
        'command = "x"\ninteractive = true\n': "bad value plan.toml:6 tasks.interactive: kind acp only works by itself",
    }.items():
        with pytest.raises(ConfigError) as caught:
            loaded(tmp_path, task + line)
        assert caught.value.line().replace(f"{tmp_path}/", "").startswith(answer)


def loaded(tmp_path: Path, text: str) -> RunSpec:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return plan.load(path, kinds())


def test_a_task_of_an_agent(tmp_path: Path) -> None:
    keys = 'kind = "claude"\nprompt = "do"\nmodel = "m"\nsteps_max = 3\nallow = ["Bash(git *)"]\n'
    made = loaded(tmp_path, f'[[tasks]]\nid = "a"\n{keys}').tasks[0]
    usual: dict[str, Any] = {"timeout_s": 14400.0, "cost_max": 20.0, "assumed": ("cost_max", "timeout_s")}
    assert made == TaskSpec("a", "do", "claude", (), prompt="do", model="m", steps_max=3, allow=("Bash(git *)",), **usual)
    assert codec.loads(TaskSpec, codec.dumps(made)) == made


def bounds(made: TaskSpec) -> tuple[float, int, float]:
    return made.timeout_s, made.steps_max, made.cost_max


def test_what_works_by_itself_has_the_bounds_of_its_kind_and_what_it_says_goes_before(tmp_path: Path) -> None:
    tasks = loaded(
        tmp_path,
        """
        [[tasks]]
        kind = "claude"
        prompt = "x"
        [[tasks]]
        kind = "claude"
        interactive = true
        [[tasks]]
        kind = "claude"
        prompt = "leads others"
        children_max = 3
        [[tasks]]
        command = "x"
        [[tasks]]
        kind = "aider"
        prompt = "x"
        timeout = "6h"
        cost_max = 1.5
        """,
    ).tasks
    none = (0.0, 0, 0.0)
    assert list(map(bounds, tasks)) == [(14400.0, 500, 20.0), none, none, none, (21600.0, 0, 1.5)]
    assert [made.assumed for made in tasks] == [("cost_max", "steps_max", "timeout_s"), (), (), (), ()]
    assert (tasks[0].urgent_s, tasks[4].urgent_s) == (0.0, 21600.0), "nobody said how long the first one takes"
    given = plan.load(tmp_path / "plan.toml", kinds(), task_keys.Shared.model_validate({"timeout": 60.0, "cost_max": 2.0})).tasks[0]
    assert bounds(given) == (60.0, 500, 2.0) and given.assumed == ("steps_max",)


def test_a_kind_of_a_persons_own_has_the_bounds_that_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('description = "x"\nbinary = "b"\nheadless = ["{prompt}", "--turns", "{steps_max}"]\ntimeout = "1h"\nsteps_max = 9\n')
    mine = own.load("mine", file)
    assert (mine.timeout_s, mine.steps_max, mine.cost_max) == (3600.0, 9, 0.0)
    made = plan.single(("x",), {"mine": mine}, {"id": "a", "kind": "mine"}).tasks[0]
    assert bounds(made) == (3600.0, 9, 0.0)


def test_defaults_are_for_the_kinds_that_know_them(tmp_path: Path) -> None:
    defaults = '[defaults]\nkind = "aider"\nmodel = "m"\nsteps_max = 3\n'
    shell, aider = loaded(tmp_path, f'{defaults}[[tasks]]\nkind = "shell"\ncommand = "x"\n[[tasks]]\nprompt = "do"\n').tasks
    assert (shell.model, shell.steps_max) == ("", 0)
    assert aider.model == "m"


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ("kind = 'claude'", "missing key plan.toml:1 tasks.prompt: a task of kind claude needs a prompt"),
        ("kind = 'claude'\nprompt = '  '", "bad value plan.toml:3 tasks.prompt: a prompt must not be empty"),
        ("kind = 'claude'\nprompt = \"a\\u0000b\"", "bad value plan.toml:3 tasks.prompt: a prompt cannot hold a NUL character"),
        ("kind = 'claude'\nprompt = 'x'\ncommand = 'y'", "bad value plan.toml:4 tasks.command: a task of kind claude takes a prompt"),
        ("kind = 'aider'\nprompt = 'x'\nsteps_max = 3", "bad value plan.toml:4 tasks.steps_max: kind aider has no steps_max"),
        ("kind = 'codex'\nprompt = 'x'\nallow = ['a']", "bad value plan.toml:4 tasks.allow: kind codex has no allow"),
        ("kind = 'aider'\nprompt = 'x'\ninteractive = true", "bad value plan.toml:3 tasks.prompt: kind aider takes no prompt"),
        ("kind = 'claude'\nprompt = 'x'\nmodel = '--x'", "bad value plan.toml:4 tasks.model: give one line that does not begin"),
        ("kind = 'claude'\nprompt = 'x'\nallow = ['--x']", "bad value plan.toml:4 tasks.allow: give one line that does not begin"),
        ("kind = 'claude'\nprompt = 'x'\nsteps_max = 0", "bad value plan.toml:4 tasks.steps_max: Input should be greater"),
        ("command = 'x'\nmodel = 'm'", "bad value plan.toml:3 tasks.model: a task of kind shell has no model"),
        ("command = 'x'\ninteractive = true", "bad value plan.toml:3 tasks.interactive: a task of kind shell has no interactive"),
        ("kind = 'claud'\nprompt = 'x'", "bad value plan.toml:2 tasks.kind: 'claud' is not a kind of agent; did you mean claude?"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_kind_is_named(tmp_path: Path, lines: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"[[tasks]]\n{lines}\n")
    assert caught.value.line().replace(f"{tmp_path}/", "").startswith(answer)


def test_the_words_of_a_command_line_are_the_prompt(tmp_path: Path) -> None:
    options = {"id": "a", "title": None, "kind": "claude"}
    made = plan.single(("fix", "it\nnow"), kinds(), options).tasks[0]
    assert (made.prompt, made.title, made.argv) == ("fix it\nnow", "fix it", ())
    (tmp_path / "p").write_text("from a file")
    assert plan.single((), kinds(), {**options, "prompt_file": str(tmp_path / "p")}).tasks[0].prompt == "from a file"
    for words, more, why in (
        ((), {}, "needs a prompt"),
        (("x",), {"prompt_file": "p"}, "not both"),
        (("x",), {"kind": "lead"}, "own command"),
    ):
        with pytest.raises(UsageError, match=why):
            plan.single(words, kinds(), {**options, **more})


def test_what_cannot_continue_a_conversation_is_named(tmp_path: Path) -> None:
    first = '[[tasks]]\nid = "a"\nkind = "claude"\nprompt = "x"\n'
    for lines, answer in (
        ("kind = 'aider'\nprompt = 'x'\non_loss = 'resume'", "tasks.on_loss: kind aider has no on_loss"),
        ("kind = 'codex'\ninteractive = true\non_loss = 'resume'", "tasks.on_loss: kind codex has no on_loss with a person at it"),
        ("kind = 'claude'\nprompt = 'x'\ncontinue_from = 'b'", "tasks.continue_from: no task has the id 'b'"),
        ("kind = 'codex'\nprompt = 'x'\ncontinue_from = 'a'", "tasks.continue_from: a is of kind claude; only a task of that kind"),
        ("command = 'x'\nsame_path = true", "tasks.same_path: a task of kind shell has no same_path"),
        ("command = 'x'\ncontinue_from = 'a'", "tasks.continue_from: a task of kind shell has no continue_from"),
        ("kind = 'claude'\nprompt = 'x'\nsame_path = true\nsandbox = 0", "tasks.sandbox: same_path = true needs a sandbox"),
    ):
        with pytest.raises(ConfigError) as caught:
            loaded(tmp_path, f"{first}[[tasks]]\n{lines}\n")
        assert answer in caught.value.line()


def test_a_copy_comes_after_what_it_continues_and_both_are_at_one_path(tmp_path: Path) -> None:
    tasks = {
        "a": "kind = 'claude'\nprompt = 'x'\n",
        "b": "kind = 'claude'\nprompt = 'x'\ncontinue_from = 'a'\n",
        "c": "kind = 'claude'\nprompt = 'x'\ncontinue_from = 'b'\nsandbox = 0\n",
        "d": "kind = 'claude'\nprompt = 'x'\ncontinue_from = 'a'\nsame_path = false\non_loss = 'restart'\n",
        "e": "kind = 'claude'\nprompt = 'x'\n",
    }
    plan_text = "".join(f"[[tasks]]\nid = '{name}'\n{text}" for name, text in tasks.items())
    found = {task.name: task for task in loaded(tmp_path, plan_text).tasks}
    assert [found[name].after for name in "abcd"] == [(), ("a",), ("b",), ("a",)]
    assert [found[name].same_path for name in "abcde"] == [True, True, False, False, False]
    assert (found["d"].on_loss, found["e"].on_loss, found["b"].continue_how) == ("restart", "", "fork")
