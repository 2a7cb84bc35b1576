"""`nightcrew top` in a real terminal: what a person sees, presses and comes back to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from supervisor.client.crew import PageReader
from supervisor.views.crew import Page
from tests.agents.protocols.scenarios import DATA
from tests.cli.terminal import Terminal
from tests.faults.checker import untouched
from tests.server.test_answering import DIALOG
from tests.support import House, git, plan_of, shell_task, wait_until

Open = Callable[..., Terminal]


def start(house: House, *words: str, name: str = "agent") -> None:
    house.ok("add", "--id", name, *words)
    wait_until(lambda: house.state(name) == "running" and house.task(name).attempt_state == "running", f"{name} to run")


@pytest.fixture
def top(house: House, terminal: Open) -> Iterator[Callable[..., Terminal]]:
    """Opens the screen, and leaves it."""
    opened: list[Terminal] = []

    def open_one(*words: str, columns: int = 110, rows: int = 30, env: Mapping[str, str] | None = None) -> Terminal:
        here = terminal(columns, rows)
        here.nightcrew(*(words or ("top",)), env=env)
        opened.append(here)
        return here

    yield open_one
    for here in opened:
        here.press("q")


def test_a_person_looks_attaches_comes_back_and_ends_an_agent(house: House, top: Open) -> None:
    house.start_daemon()
    start(house, "printf '\\033[31mwhat the agent says\\033[0m\\n\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007'; sleep 600")
    here = top()
    for text in ("WORKING 1", "W works agent", "1 screen", "what the agent says"):
        here.sees(text)
    assert here.title() != "owned" and here.clipboard() == "", "what an agent prints steers no terminal of a person"
    wait_until(lambda: "\x1b[31mwhat the agent says" in here.screen(styles=True), "the pane to have its colours")
    here.press("Enter")
    here.sees("leaves: it goes on")
    here.press("C-b", "d")
    here.sees("WORKING 1")
    here.press("k")
    here.sees("y yes")
    here.press("y")
    here.sees("ENDED 1")
    wait_until(lambda: house.task("agent").final, "it to end")
    here.press("q")
    here.sees("left with 0")


def test_it_goes_on_without_a_supervisor_and_sees_the_next_one(house: House, top: Open) -> None:
    daemon = house.start_daemon()
    start(house, "i=0; while :; do i=$((i+1)); echo step $i; sleep 0.2; done")
    here = top()
    here.sees("step ")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    here.sees("! no supervisor: agents that live go on")
    before = here.screen()
    wait_until(lambda: here.screen() != before and "step " in here.screen(), "the pane to go on")
    house.start_daemon()
    wait_until(lambda: "no supervisor" not in here.screen(), "the screen to see the new one")
    here.sees("WORKING 1")


def test_a_result_is_looked_at_and_taken(house: House, top: Open) -> None:
    house.start_daemon()
    house.ok("add", "--id", "work", "echo 'def more(): pass' > more.py")
    house.wait_final()
    here = top()
    here.sees("TO TAKE 1")
    here.press("2")
    here.sees("A more.py  +1 -0")
    assert "def more" in here.sees("+ def more")
    here.press("t")
    here.sees("Merge")
    here.press("y")
    wait_until(lambda: (house.repo / "more.py").exists(), "the merge")
    here.sees("ENDED 1")
    assert git(house.repo, "status", "--porcelain") == ""


def test_alone_it_is_the_screen_once_there_is_a_crew_and_its_palette_runs_any_verb(house: House, top: Open, terminal: Open) -> None:
    here = terminal()
    here.nightcrew()
    assert "Print what makes a shell complete" in here.sees("left with 2")
    house.start_daemon()
    start(house, "sleep 600")
    here = terminal()
    here.nightcrew()
    here.sees("WORKING 1")
    here.press(":")
    here.sees("Show what every agent does.")
    here.press("c", "a", "p", "a", "c", "i", "t", "y")
    here.sees("Show how many agents")
    here.press("Enter")
    wait_until(lambda: here.screen().rstrip().endswith("\ncapacity"), "the line below to have the verb")
    here.press("Enter")
    here.sees("[Enter goes back to nightcrew top]")
    assert "slots" in here.screen()
    here.press("Enter")
    here.sees("WORKING 1")
    here.press("q")
    here.sees("left with 0")
    assert house.run().returncode == 2, "without a terminal it is the help"


def test_it_needs_a_terminal_and_says_what_does_not(house: House) -> None:
    done = house.run("top")
    assert done.returncode == 2 and "top needs a terminal" in done.stderr and "next: nightcrew status" in done.stderr


def test_looking_changes_nothing(house: House, top: Open) -> None:
    house.start_daemon()
    before = untouched(house.repo)
    start(house, "echo said; sleep 600")
    here = top(columns=80, rows=24)
    for key, text in (
        ("1", "said"),
        ("2", "0 files +0 -0"),
        ("3", "said"),
        ("4", "no stream of JSON"),
        ("5", "attempt 1"),
        ("6", "worktree"),
    ):
        here.press(key)
        here.sees(text)
    assert untouched(house.repo) == before


def test_a_prompt_comes_from_the_editor_and_a_refusal_is_said(house: House, top: Open, tmp_path: Path) -> None:
    """A new task of a kind that is not there, and more words for a task that reads none."""
    house.start_daemon()
    house.ok("add", "--id", "plain", "true")
    house.wait_final()
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "do it" > "$1"\necho edited >> "$0.log"\n')
    editor.chmod(0o755)
    here = top("top", env={"EDITOR": str(editor), "VISUAL": ""})
    here.sees("D done plain")
    here.press("f")
    here.sees("runs a command, and reads no prompt")
    here.press("n")
    here.sees("A new task")
    here.press("C-u")
    here.type("codex")
    here.press("Enter", "Enter")
    here.sees("no program codex")
    assert (tmp_path / "editor.log").read_text() == "edited\n" * 2
    assert [view.name for view in house.tasks()] == ["plain"]
    here.sees("ENDED 1")


def test_a_line_is_sent_and_a_question_answered(house: House, top: Open) -> None:
    with house.config.open("a") as more:
        more.write("[notify]\nhere = []\n")  # on a busy machine its line would come after what the answer did
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("asks", DIALOG, kind="terminal")])))
    here = top()
    here.sees("NEEDS ME 1")
    here.sees("1. Yes")
    here.press("a")
    here.sees("got 31")
    here.sees("allowed")
    house.ok("run", "-d", house.plan(plan_of([shell_task("reads", "read line; echo heard $line; sleep 600", kind="terminal")])))
    here.press("/")
    here.type("reads")
    here.sees("W works reads")
    here.press("s")
    here.type("hello you")
    here.sees("heard hello you")


@pytest.mark.parametrize("recorded", ["claude-2.1.329/tool", "codex-0.169.0/tool"])
def test_of_who_prints_json_for_programs_the_first_page_is_what_was_said(house: House, recorded: str) -> None:
    file = DATA / f"{recorded}.jsonl"
    house.start_daemon()
    house.ok("add", "-f", "--id", "alone", f"cat {file}")
    (view,) = house.tasks()
    pages = PageReader(house.home)
    shown, said = (pages.page(view, page, "") for page in (Page.SCREEN, Page.TALK))
    assert shown is not None and said is not None and list(shown.lines) == list(said.lines)
    assert not any(line.startswith("{") for line in shown.lines)
    assert pages.page(view, Page.SCREEN, shown.mark) is None, "nothing new"
