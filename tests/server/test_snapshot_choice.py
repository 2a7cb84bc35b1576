"""Which snapshot a task gets when there are several of a name, and which commands are run because it named one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.server.snapshot_kit import commit, create, rows, states, with_dependencies
from tests.support import House, plan_of, shell_task, wait_until

ASKED = "you have not agreed to the set-up of the snapshot deps"
NEXT = "next: nightcrew snapshot create deps"


@pytest.fixture
def house(house: House) -> House:
    with_dependencies(house).start_daemon()
    return house


def table(house: House, setup: str) -> None:
    """`[snapshot.deps]` of the repository, as a pull would bring it."""
    commit(house, "nightcrew.toml", f"[snapshot.deps]\nsetup = [{json.dumps(setup)}]\n")


def fork(house: House, *words: str) -> None:
    """An environment called `review`, opened and ended."""
    house.ok("fork", *words)
    wait_until(lambda: house.task("review").final, "its end")
    assert house.state("review") == "done"


def test_a_task_starts_from_the_one_that_was_looked_at_when_it_was_handed_over(house: House, tmp_path: Path) -> None:
    table(house, "mkdir -p .venv && cp uv.lock .venv/lock")
    wait = shell_task("wait", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    after = shell_task("one", "cat uv.lock .venv/lock", snapshot="deps", after=["wait"])
    house.ok("snapshot", "create", "deps")
    house.ok("run", "-d", house.plan(plan_of([wait, after])))
    commit(house, "uv.lock", "version 2\n")
    house.ok("snapshot", "create", "deps")
    house.ok("add", "-f", "--id", "two", "--snapshot", "deps", "cat uv.lock .venv/lock")
    assert states(house) == ["ready", "stale"] and not house.task("one").final
    (tmp_path / "go").touch()
    house.wait_final()
    assert house.ok("logs", "two") == "version 2\n" * 2
    assert house.ok("logs", "one") == "version 1\n" * 2
    assert [row.uses for row in rows(house)] == [1, 1]


def test_a_name_that_three_open_at_once_is_open_once(house: House) -> None:
    create(house)
    with ThreadPoolExecutor(3) as people:
        done = list(people.map(lambda _: house.run("fork", "deps", "--as", "review", "--", "sleep", "600"), range(3)))
    assert sorted(each.returncode for each in done) == [0, 6, 6]
    assert all(f"next: nightcrew attach {house.task('review').id}" in each.stderr for each in done if each.returncode)
    assert len(house.tasks()) == 1


def test_commands_that_a_pull_brings_are_not_run_before_a_person_agrees(house: House, tmp_path: Path) -> None:
    create(house)
    table(house, f"touch {tmp_path}/ran; mkdir -p .venv")
    done = house.run("add", "-f", "--id", "one", "--snapshot", "deps", "true")
    assert done.returncode == 8 and ASKED in done.stderr and f"touch {tmp_path}/ran" in done.stderr and NEXT in done.stderr
    assert not (tmp_path / "ran").exists() and house.tasks() == [] and states(house) == ["ready"]
    house.ok("snapshot", "create", "deps")
    assert (tmp_path / "ran").exists(), "asked for by its name"
    house.ok("add", "-f", "--id", "one", "--snapshot", "deps", "true")


def test_the_same_commands_are_asked_for_anew_with_other_files(house: House, tmp_path: Path) -> None:
    """A changed script makes another set-up: `sh prepare` is a different one once `prepare` and a lock file have changed."""
    commit(house, "prepare", "mkdir -p .venv\n")
    table(house, "sh prepare")
    house.ok("snapshot", "create", "deps")
    house.ok("add", "-f", "--id", "one", "--snapshot", "deps", "true")
    commit(house, "prepare", f"touch {tmp_path}/ran; mkdir -p .venv\n")
    house.ok("add", "-f", "--id", "two", "--snapshot", "deps", "true")  # as it is: nothing of the set-up runs
    commit(house, "uv.lock", "version 2\n")
    done = house.run("add", "-f", "--id", "three", "--snapshot", "deps", "true")
    assert done.returncode == 8 and ASKED in done.stderr
    assert not (tmp_path / "ran").exists() and states(house) == ["ready"]


def test_on_a_terminal_the_person_is_asked(house: House, tmp_path: Path) -> None:
    table(house, f"touch {tmp_path}/ran; mkdir -p .venv")
    terminal = Terminal(tmp_path / "t", house)
    try:
        for answer, left in (("n", 130), ("y", 0)):
            terminal.nightcrew("add", "-f", "--id", f"said-{answer}", "--snapshot", "deps", "true")
            assert "ran; mkdir" in " ".join(terminal.sees("Run it?").split())
            terminal.type(answer)
            terminal.sees(f"left with {left}")
            assert (tmp_path / "ran").exists() == (answer == "y")
    finally:
        terminal.hang_up()
    assert [task.name for task in house.tasks()] == ["said-y"]


def test_an_environment_is_opened_again_with_what_it_had(house: House, tmp_path: Path) -> None:
    table(house, "mkdir -p .venv; echo one > .venv/module")
    house.ok("snapshot", "create", "deps")
    fork(house, "deps", "--as", "review", "--", "true")
    table(house, f"touch {tmp_path}/ran; mkdir -p .venv")
    fork(house, "--reopen", "review", "--", "grep -qx one .venv/module")
    assert not (tmp_path / "ran").exists() and states(house) == ["ready"]
    house.ok("snapshot", "create", "deps")
    fork(house, "--reopen", "review", "--", "grep -qx one .venv/module")
    assert states(house) == ["ready", "stale"], "the stale one is whole, and its own"


def test_where_that_is_gone_it_is_made_again_once_a_person_agrees(house: House, tmp_path: Path) -> None:
    table(house, "mkdir -p .venv; echo one > .venv/module")
    house.ok("snapshot", "create", "deps")
    fork(house, "deps", "--as", "review", "--", "true")
    house.ok("clean", "--yes", "--discard", house.task("review").id)
    table(house, f"touch {tmp_path}/ran; mkdir -p .venv")
    house.ok("snapshot", "rm", "deps")
    done = house.run("fork", "--reopen", "review", "--", "true")
    assert done.returncode == 8 and ASKED in done.stderr and NEXT in done.stderr
    assert not (tmp_path / "ran").exists() and len(house.tasks()) == 1
    house.ok("snapshot", "create", "deps")
    fork(house, "--reopen", "review", "--", "true")


def test_a_name_that_is_open_is_not_opened_by_a_retry(house: House) -> None:
    create(house)
    fork(house, "deps", "--as", "review", "--", "true")
    first = house.task("review").id
    house.ok("fork", "--reopen", "review", "--", "sleep", "600")
    refused = house.run("retry", first)
    assert refused.returncode == 6 and "review" in refused.stderr and f"nightcrew attach {house.task('review').id}" in refused.stderr


def test_two_that_had_one_name_are_not_both_run_again(house: House) -> None:
    create(house)
    fork(house, "deps", "--as", "review", "--", "true")
    first = house.task("review").id
    fork(house, "--reopen", "review", "--", "true")
    second = house.task("review").id
    refused = house.run("retry", second, first)
    assert refused.returncode == 6 and f"next: nightcrew retry {second}" in refused.stderr, refused.stderr
    assert {str(task.state) for task in house.tasks()} == {"done"}
    house.ok("retry", second)
