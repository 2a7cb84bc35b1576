"""`kill` and `retry`."""

from __future__ import annotations

import json

from tests.support import House, git, plan_of, shell_task, wait_until

FOREVER = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"


def running(house: House, *names: str) -> None:
    wait_until(lambda: all(house.task(name).attempt_state == "running" for name in names), f"{names} to run")


def test_kill_ends_what_runs_and_what_waits(house: House) -> None:
    house.start_daemon()
    plan = [shell_task("first", FOREVER), shell_task("after", "true", after=["first"]), shell_task("other", FOREVER)]
    house.ok("run", "-d", house.plan(plan_of(plan)))
    running(house, "first", "other")
    first = house.task("first").id
    assert house.ok("kill", "first") == f"{first}\n"
    assert [house.state(name) for name in ("first", "after", "other")] == ["cancelled", "skipped", "running"]
    again = house.run("kill", "first")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", f"nightcrew: {first} had ended already: cancelled\n")
    shape = json.loads(house.ok("kill", "--all", "--json"))
    assert shape == {"schema": 1, "ended": [house.task("other").id], "ended_before": []}
    wait_until(lambda: not house.tagged(), "no process of theirs to live")


def test_kill_of_a_run_ends_all_of_it_and_nothing_else(house: House) -> None:
    house.start_daemon()
    house.ok("add", "--id", "outside", FOREVER)
    house.ok("run", "-d", house.plan(plan_of([shell_task("a", FOREVER), shell_task("b", FOREVER), shell_task("c", "true", after=["b"])])))
    run = house.task("a").run
    assert sorted(house.ok("kill", run).split()) == [f"{run}/a", f"{run}/b", f"{run}/c"]
    assert [house.state(name) for name in ("a", "b", "c", "outside")] == ["cancelled", "cancelled", "cancelled", "running"]


def test_names_that_look_alike_are_different_tasks(house: House) -> None:
    """Slugs of `a.b`, `a_b` and `a-b` differ, and one name that begins another never means it."""
    house.start_daemon()
    names = ["a.b", "a_b", "a-b", "A.B", "agent-1", "agent-10", "agent-1.0"]
    house.ok("run", "-d", house.plan(plan_of([shell_task(name, FOREVER) for name in names])))
    assert len({view.id for view in house.tasks()}) == len(names)
    house.config.read_text()
    for gone in (["a.b"], ["a.b", "agent-1"]):
        house.ok("kill", gone[-1])
        states = {view.name: view.state for view in house.tasks()}
        assert {name for name in names if states[name] == "cancelled"} == set(gone)
    house.ok("kill", "--all")


def test_kill_without_names_or_with_all_and_names_is_refused(crew: House) -> None:
    for words in ([], ["--all", "good"]):
        done = crew.run("kill", *words)
        assert done.returncode == 2 and "give names, or --all" in done.stderr


def test_what_a_killed_agent_left_is_kept(house: House) -> None:
    house.start_daemon()
    house.ok("add", "--id", "work", f"echo half > half; {FOREVER}")
    wait_until(lambda: house.task("work").worktree and house.run("logs", "work").returncode == 0, "it to start")
    wait_until(lambda: "pid" in git_files(house), "it to have written")
    house.ok("kill", "work")
    task = house.task("work").id
    assert "half" in git(house.repo, "ls-tree", "--name-only", f"refs/nightcrew/rescue/{task}/1").split()


def git_files(house: House) -> list[str]:
    from pathlib import Path

    return [path.name for path in Path(house.task("work").worktree or "/nonexistent").glob("*")]


def test_retry_runs_it_again_and_revives_what_was_skipped_because_of_it(house: House) -> None:
    house.start_daemon()
    flag = house.repo.parent / "flag"
    plan = [
        shell_task("first", f"test -e {flag}"),
        shell_task("second", "true", after=["first"]),
        shell_task("third", "true", after=["second"]),
        shell_task("bystander", "false"),
    ]
    house.run("run", house.plan(plan_of(plan)))
    assert [view.state for view in house.tasks()] == ["failed", "skipped", "skipped", "failed"]
    refused = house.run("retry", "second")
    assert refused.returncode == 6 and f"next: nightcrew retry {house.task('first').id}" in refused.stderr
    flag.touch()
    run = house.task("first").run
    assert house.ok("retry", "first").split() == [f"{run}/first", f"{run}/second", f"{run}/third"]
    assert house.run("wait", run).returncode == 1, "the bystander stays failed"
    assert [(str(view.state), view.epoch) for view in house.tasks()] == [("done", 2), ("done", 1), ("done", 1), ("failed", 1)]


def test_retry_of_done_work_keeps_the_old_on_a_rescue_ref(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", 'echo "attempt $NIGHTCREW_EPOCH" > result')
    task = house.task("work").id
    old = git(house.repo, "rev-parse", f"nightcrew/{task}/work")
    assert json.loads(house.ok("retry", "work", "--json")) == {"schema": 1, "revived": [task]}
    house.ok("wait", "work")
    assert git(house.repo, "show", f"nightcrew/{task}/work:result") == "attempt 2"
    assert git(house.repo, "rev-parse", f"refs/nightcrew/rescue/{task}/1") == old
    assert git(house.repo, "show", f"{old}:result") == "attempt 1"
    assert house.ok("logs", "work", "--attempt", "1") == ""
    entries = json.loads(house.ok("status", "work", "--json"))["journal"]
    assert [entry["data"] for entry in entries if entry["event"] == "retry"] == [{"cause": "retry asked; was done"}]


def test_retry_of_what_runs_is_refused(crew: House) -> None:
    done = crew.run("retry", "agent")
    assert done.returncode == 6 and "it is running" in done.stderr
