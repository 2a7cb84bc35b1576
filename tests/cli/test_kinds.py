"""Kinds of agent as a person uses them: listed, shown, added by a file, and started by one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.support import House, wait_until

OURS = """
description = "ours"
binary = "our-agent"
headless = ["--model", "{model}", "--", "{prompt}"]
interactive = ["--person", "--", "{prompt}"]
"""
AGENT = """#!/bin/sh
printf '<%s>' "$@" > heard
test "$1" != --person || { echo 'ask me'; read line; echo "$line" > heard; }
"""


@pytest.fixture
def path(house: House, tmp_path: Path) -> dict[str, str]:
    """The shell's variables, with a program for the kind `ours` on the PATH, and the file that makes it a kind."""
    program = tmp_path / "bin" / "our-agent"
    program.parent.mkdir()
    program.write_text(AGENT)
    program.chmod(0o755)
    write(house, "ours", OURS)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def write(house: House, name: str, text: str) -> Path:
    file = house.config.parent / "kinds" / f"{name}.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def heard(house: House, name: str) -> str:
    return next(line for line in house.ok("diff", name).splitlines() if line.startswith("+<") or line == "+hello")


def test_a_kind_is_added_changed_and_taken_away_while_the_supervisor_runs(house: House, path: dict[str, str]) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--kind", "ours", "--model", "m", "--id", "a", "--", "-do", "it", env=path)
    assert heard(house, "a") == "+<--model><m><--><-do it>"
    assert house.task("a").title == "-do it"
    write(house, "ours", OURS.replace('"--model"', '"--new"'))
    house.ok("add", "-f", "--kind", "ours", "--model", "m", "--id", "a", "x" * 200, env=path)
    assert heard(house, "a") == f"+<--new><m><--><{'x' * 200}>"
    assert house.task("a").title == "x" * 100
    write(house, "ours", "").unlink()
    house.ok("retry", "a")
    house.wait_final()
    assert (house.state("a"), house.ready()) == ("failed", True)
    assert "ours" in house.task("a").reason and "not a kind of agent any more" in house.task("a").reason


def test_they_are_listed_and_shown_and_a_broken_one_hides_no_other(house: House, path: dict[str, str]) -> None:
    file = write(house, "broken", OURS.replace("binary", "binry"))
    write(house, "shell", OURS)  # what has no program of its own is not replaced
    (house.repo / "kinds").mkdir()
    (house.repo / "kinds" / "theirs.toml").write_text(OURS)
    rows = {row["name"]: row for row in json.loads(house.ok("kinds", "ls", "--json", env=path))["kinds"]}
    assert {"claude", "codex", "shell", "ours", "broken"} <= set(rows) and "theirs" not in rows
    assert rows["broken"]["error"].startswith(f"unknown key {file}:3 binry: did you mean binary?")
    assert rows["ours"]["path"].endswith("/bin/our-agent") and rows["ours"]["source"].endswith("/kinds/ours.toml")
    assert rows["shell"]["source"] == "" and rows["claude"]["protocol"] == "claude"
    plain = house.ok("kinds", "ls", env=path)
    assert "(yours)" in plain and "did you mean binary?" in plain
    assert "binary       our-agent" in house.ok("kinds", "show", "ours", env=path)
    assert "did you mean ours?" in house.run("kinds", "show", "our").stderr
    house.start_daemon()
    assert house.run("add", "--kind", "broken", "x", env=path).returncode == 3
    assert house.run("add", "--kind", "shell", "true", env=path).returncode == 0


def test_start_without_a_terminal_works_by_itself(house: House, path: dict[str, str]) -> None:
    house.config.write_text(f'{house.config.read_text()}[agents]\nkind = "ours"\n')
    house.start_daemon(
        words=("up", "--config", str(house.config)), env={"NIGHTCREW_CONFIG": "/none.toml"}
    )  # its kinds lie beside the former
    house.ok("start", "--name", "b", "do it", env=path)
    house.wait_final()
    assert heard(house, "b") == "+<--><do it>"
    assert "no program our-agent" in house.run("start", "do it").stderr
    assert "no prompt" in house.run("start", env=path).stderr
    assert "take a command and no prompt" in house.run("start", "--kind", "shell", "x").stderr
    assert "did you mean ours" in house.run("start", "--kind", "our", "x").stderr


def test_start_at_a_terminal_goes_into_the_pane(house: House, path: dict[str, str], terminal: Callable[..., Terminal]) -> None:
    house.start_daemon()
    here = terminal()
    here.nightcrew("start", "--kind", "ours", "--", "-n do it", env=path)
    here.sees("ask me")
    here.type("hello")
    assert "; nightcrew " in here.sees("left with")
    wait_until(lambda: house.task("ours").final, "the agent to end")
    assert heard(house, "ours") == "+hello"
    assert house.task("ours").task_class == "interactive"
