"""Completion, by the very shells: verbs, options, and the names of tasks and runs as they are now."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.main import VERBS
from tests.cli.terminal import Terminal
from tests.cli.test_imports import HEAVY, imported
from tests.support import House

SHELLS = ("bash", "zsh", "fish")


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `nightcrew` is this tree's."""
    directory = tmp_path_factory.mktemp("bin")
    command = directory / "nightcrew"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -m supervisor.cli.main "$@"\n')
    command.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def words(crew: House, *typed: str) -> list[str]:
    """What is offered for the last word, by click's protocol."""
    env = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["nightcrew", *typed]), "COMP_CWORD": str(len(typed))}
    done = crew.run(env=env)
    assert done.returncode == 0 and done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]


def loaded(crew: House, env: dict[str, str]) -> set[str]:
    """Return the files of verbs that a completion had to import."""
    program = """
import sys
from supervisor.cli.main import PLACES, main
COMMANDS = {place.partition(":")[0] for place in PLACES.values()}
try:
    main([])
finally:
    print(*(name for name in sys.modules if name in COMMANDS), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-I", "-c", program], env={**crew.env, **env}, capture_output=True, text=True, check=True)
    return {name.rpartition(".")[2] for name in done.stderr.split()}


def in_bash(crew: House, path: str, *typed: str) -> list[str]:
    """The same by a bash that has sourced our script."""
    line = " ".join(f"'{word}'" for word in ("nightcrew", *typed))
    program = f'eval "$(nightcrew completion bash)"; COMP_WORDS=({line}); COMP_CWORD={len(typed)}; _nightcrew_completion nightcrew'
    done = subprocess.run(
        ["bash", "--norc", "-c", program + '; printf "%s\\n" "${COMPREPLY[@]}"'],
        env={**crew.env, "PATH": path},
        cwd=crew.repo,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def in_fish(crew: House, path: str, line: str) -> list[str]:
    done = subprocess.run(
        ["fish", "--no-config", "-c", 'nightcrew completion fish | source; complete -C "$LINE"'],
        env={**crew.env, "PATH": path, "LINE": line},
        cwd=crew.repo,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def run(crew: House) -> str:
    """The id of the finished run."""
    return crew.task("good").run


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_says_how_to_install_it(house: House, shell: str) -> None:
    text = house.ok("completion", shell)
    assert sum(line.startswith("# To install: ") for line in text.splitlines()) == 1
    if shell == "zsh":
        assert text.startswith("#compdef nightcrew\n"), "an autoloaded file is one only when this is its first line"
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_verbs_are_offered_without_loading_them(crew: House) -> None:
    assert words(crew, "") == list(VERBS)
    assert words(crew, "d") == [verb for verb in VERBS if verb.startswith("d")]
    env = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": "nightcrew ", "COMP_CWORD": "1"}
    assert loaded(crew, env) == set()
    assert loaded(crew, {**env, "COMP_WORDS": "nightcrew kill ", "COMP_CWORD": "2"}) == {"tasks"}


def test_no_verb_that_takes_names_needs_anything_heavy_for_them(crew: House) -> None:
    for verb in ("attach", "logs", "kill", "retry", "diff", "take", "status", "wait", "clean"):
        env = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": f"nightcrew {verb} ", "COMP_CWORD": "2"}
        assert imported(crew, env=env) & (HEAVY | {"rich", "jinja2", "bandit", "radon", "anthropic"}) == set(), verb


def test_options_and_choices(crew: House) -> None:
    assert "--follow" in words(crew, "logs", "--")
    assert words(crew, "logs", "--stream", "std") == ["stdout", "stderr"]
    assert words(crew, "completion", "") == ["bash", "zsh", "fish"]
    assert "--debug" in words(crew, "--")


def test_each_verb_offers_the_names_that_it_can_use(crew: House, run: str) -> None:
    going = crew.task("agent").run
    assert words(crew, "attach", "") == ["supervisor", "agent-1", "agent", going]
    for verb in ("kill", "wait"):
        assert words(crew, verb, "") == ["agent-1", "agent", going]
        assert words(crew, verb, f"{going}/") == [f"{going}/agent-1", f"{going}/agent"]
    for verb in ("retry", "clean"):
        assert {"good", "bad", "behind", run} <= set(words(crew, verb, ""))
        assert f"{run}/bad" in words(crew, verb, f"{run}/")
        assert not {"agent-1", going} & set(words(crew, verb, ""))
    assert "good" in words(crew, "take", "") and "bad" not in words(crew, "take", "")
    for verb in ("status", "logs", "diff"):
        assert {"good", "bad", "agent-1", run, going} <= set(words(crew, verb, ""))
    assert words(crew, "report", "") == [going, run]


def test_what_was_cleaned_is_not_offered_to_take(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    assert "work" in words(house, "take", "")
    house.ok("take", "work")
    house.ok("clean", "--yes")
    assert words(house, "take", "") == []


def test_values_of_options(house: House) -> None:
    assert words(house, "analyze", "--agents", "") == ["security", "complexity", "docstrings", "tests", "structure"]
    assert words(house, "analyze", "--agents", "tests,s") == ["tests,security", "tests,structure"]
    assert words(house, "add", "--kind", "s") == ["shell"] and "claude" in words(house, "start", "--kind", "")
    assert words(house, "add", "--network", "") == ["yes", "no"] and words(house, "fork", "--network", "n") == ["no"]


def test_a_name_that_was_given_is_not_offered_again(crew: House) -> None:
    assert words(crew, "kill", "agent", "agent") == ["agent-1"]


def test_nothing_is_said_when_the_ledger_cannot_be_read(house: House) -> None:
    assert words(house, "kill", "") == []
    house.home.root.mkdir(mode=0o700)
    for content in (b"", b"no ledger at all" * 1000):
        house.home.ledger.write_bytes(content)
        assert words(house, "kill", "") == []
    house.home.ledger.unlink()
    with sqlite3.connect(house.home.ledger) as db:
        db.execute("CREATE TABLE task (name TEXT)")
    assert words(house, "kill", "") == []
    assert words(house, "attach", "") == ["supervisor"]


def test_in_bash(crew: House, path: str, run: str) -> None:
    needs("bash")
    assert in_bash(crew, path, "logs", "goo") == ["good"]
    assert in_bash(crew, path, "logs", f"{run}/go") == [f"{run}/good"]
    assert in_bash(crew, path, "wat") == []
    assert "doctor" in in_bash(crew, path, "d")


def test_in_fish(crew: House, path: str, run: str) -> None:
    needs("fish")
    assert in_fish(crew, path, "nightcrew logs goo") == ["good"]
    assert in_fish(crew, path, f"nightcrew logs {run}/go") == [f"{run}/good"]
    assert "doctor" in in_fish(crew, path, "nightcrew d")


@pytest.fixture
def typing(crew: House) -> Iterator[Terminal]:
    """A terminal in the crew's repository."""
    short = Path(tempfile.mkdtemp(prefix="nc-"))
    terminal = Terminal(short / "0", crew)
    yield terminal
    terminal.close()
    shutil.rmtree(short)


START = {
    "bash": "bash --norc -i",
    "zsh": "zsh -f -i",
    "fish": "fish --no-config",
}
PROMPT = {"bash": "PS1='b> '", "zsh": "PS1='b> '; autoload -U compinit; compinit -u -D", "fish": "function fish_prompt; echo -n 'b> '; end"}
SOURCE = {
    "bash": 'eval "$(nightcrew completion bash)"',
    "zsh": 'eval "$(nightcrew completion zsh)"',
    "fish": "nightcrew completion fish | source",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_person_presses_tab(typing: Terminal, path: str, run: str, shell: str) -> None:
    needs(shell)
    typing.type(f"export PATH='{path}'; {START[shell]}")
    typing.type(PROMPT[shell])
    typing.type(f"{SOURCE[shell]}; clear; echo read''y")
    typing.sees("ready")
    typing.press("n", "i", "g", "h", "t", "c", "r", "e", "w", "Space", "a", "t", "Tab")
    typing.sees("nightcrew attach")
    typing.press("s", "u", "Tab")
    typing.sees("nightcrew attach supervisor")
    typing.press("C-u")
    typing.press(*"nightcrew", "Space", *"logs", "Space", *run, "/", "g", "o", "Tab")
    typing.sees(f"nightcrew logs {run}/good")
