"""Tasks that have to do with one another: what one sees of those before it, beginning together, and a kind's own protocol."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.store import sqlite
from tests.support import House, plan_of, shell_task, wait_until


def output(house: House, name: str) -> object:
    return (house.task(name).result or {}).get("output")


def test_a_lead_runs_however_the_others_ended_and_sees_what_they_came_to(house: House) -> None:
    house.start_daemon()
    plan = plan_of(
        [
            shell_task("good", "echo '{\"found\": 3}'"),
            shell_task("bad", "exit 7", params={"SIDE": "left"}),
            shell_task("lead", 'cat "$NIGHTCREW_AFTER"; echo', after={"all": ["good", "bad"], "on": "finished"}),
            shell_task("strict", "true", after=["good", "bad"]),
        ]
    )
    assert house.run("run", house.plan(plan)).returncode == 1
    assert (house.state("lead"), house.state("strict")) == ("done", "skipped")
    told = output(house, "lead")
    assert isinstance(told, dict)
    seen = {task["name"]: (task["state"], task["reason"], task["params"], task["result"]["output"]) for task in told["tasks"]}
    assert seen == {"good": ("done", "done", {}, {"found": 3}), "bad": ("failed", "failed: exit code 7", {"SIDE": "left"}, None)}
    assert [task["result"]["exit"]["code"] for task in told["tasks"]] == [0, 7]


def test_a_group_begins_at_one_moment_and_a_restarted_supervisor_lets_it(house: House) -> None:
    """The supervisor dies when both are up and neither was let; the next one lets both."""
    plan = plan_of([shell_task(name, "echo $NIGHTCREW_TASK", together="pair") for name in ("one", "two")])
    daemon = house.start_daemon(die_at="begin.committed")
    house.ok("run", "-d", house.plan(plan))
    assert daemon.wait(60) != 0
    begun = [Path(house.home.attempt(house.task(name).id, 1) / "begin") for name in ("one", "two")]
    assert [path.exists() for path in begun] == [False, False]
    house.start_daemon()
    house.wait_final()
    assert [house.state("one"), house.state("two")] == ["done", "done"]
    assert [house.task("one").epoch, house.task("two").epoch] == [1, 1]
    results = [json.loads((house.home.attempt(house.task(name).id, 1) / "result.json").read_text()) for name in ("one", "two")]
    assert max(result["up"] for result in results) <= min(result["started"] for result in results)


def test_a_held_agent_can_be_killed_and_the_others_go_on(house: House) -> None:
    house.config.write_text("slots = 2\nsandbox = 0\n[limits]\ndisk_free_min = 0\n")
    house.start_daemon()
    house.ok("add", "--id", "busy", "sleep 60")
    plan = plan_of([shell_task(name, "true", together="pair") for name in ("one", "two")])
    house.ok("run", "-d", house.plan(plan))
    wait_until(lambda: house.task("one").attempt_state == "running", "the first of the pair is up")
    house.ok("kill", house.task("one").id)
    house.ok("kill", house.task("busy").id)
    house.wait_final()
    assert (house.state("one"), house.state("two")) == ("cancelled", "done")


def test_a_group_larger_than_the_slots_is_refused(house: House) -> None:
    house.config.write_text("slots = 2\nsandbox = 0\n[limits]\ndisk_free_min = 0\n")
    house.start_daemon()
    done = house.run("run", house.plan(plan_of([shell_task(f"t{number}", "true", together="all") for number in range(3)])))
    assert done.returncode == 6
    assert "cannot start all: 3 tasks are to begin together and there are 2 slots" in done.stderr
    assert house.tasks() == []


SPOKEN = {
    """print('{"schema": 1}')""": ("done", "done"),
    "pass": ("failed", "failed: printed nothing on stdout, where one line of JSON belongs"),
    "print('{}'); print('{}')": ("failed", "failed: printed 2 lines on stdout, where one line of JSON belongs"),
    "print('\\x1b[31mhello')": ("failed", "failed: printed a line that is no JSON object: \\x1b[31mhello"),
    "print('[1]')": ("failed", "failed: printed a line that is no JSON object: [1]"),
    "print('{}'); raise SystemExit(3)": ("failed", "failed: exit code 3"),
    "raise SystemExit('git was stopped:\\x1b no answer')": ("failed", "failed: exit code 1: git was stopped:\\x1b no answer"),
}


def test_a_kind_that_promises_one_line_is_held_to_it(house: House) -> None:
    """The analyst's module is shadowed by nothing in the repository; here the tasks' stored commands are replaced by ones that speak."""
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task(f"t{number}", "true") for number in range(len(SPOKEN))])))
    house.ok("down")
    for number, spoken in enumerate(SPOKEN):
        _as_analyst(house, house.task(f"t{number}").id, spoken)
    house.start_daemon()
    house.ok("retry", *(view.id for view in house.tasks()))
    house.wait_final()
    found = [house.task(f"t{number}") for number in range(len(SPOKEN))]
    assert dict(zip(SPOKEN, ((str(view.state), view.reason) for view in found), strict=True)) == SPOKEN


def _as_analyst(house: House, task: str, spoken: str) -> None:
    db = sqlite.connect(house.home.ledger, create=False)
    try:
        (text,) = db.execute("SELECT spec FROM task WHERE id = ?", (task,)).fetchone()
        shape = json.loads(text) | {"kind": "analyst", "argv": ["python3", "-c", spoken]}
        db.execute("UPDATE task SET spec = ? WHERE id = ?", (json.dumps(shape), task))
        db.commit()
    finally:
        db.close()
