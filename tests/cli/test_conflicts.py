"""`nightcrew conflicts`: the matrix as a person sees it."""

from __future__ import annotations

import json

from tests.support import House, git, plan_of, shell_task, wait_until


def test_the_matrix_is_true_and_nothing_is_merged(house: House) -> None:
    house.start_daemon()
    tasks = [shell_task(name, f"echo {name} > same; echo {name} > own-{name}") for name in ("one", "two")]
    tasks += [shell_task("far", "echo far > far"), shell_task("idle", "true"), shell_task("bad", "echo bad > same; exit 1")]
    house.run("run", house.plan(plan_of(tasks)))
    (house.repo / "far").write_text("mine\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "mine")
    before = git(house.repo, "for-each-ref") + git(house.repo, "count-objects", "-v")
    one, two, far, idle = (house.task(name).id for name in ("one", "two", "far", "idle"))
    shape = json.loads(house.ok("conflicts", "--json"))
    assert {(row["task"], row["with"], *row["files"]) for row in shape["conflicts"]} == {(two, one, "same"), (far, None, "far")}
    assert shape["merged"] == [idle] and shape["base"]["branch"] == "main"
    assert (shape["unknown"], shape["not_compared"], shape["left_out"]) == ([], 0, 0)
    assert git(house.repo, "for-each-ref") + git(house.repo, "count-objects", "-v") == before
    house.ok("review", "two", "--accept", "-m", "fine")
    assert "conflicts with main in far" in house.ok("review", "far").splitlines()
    wait_until(lambda: f"  conflicts with {one} in same" in house.ok("status", "two").splitlines(), "the supervisor's last look")
    assert "\n  review    accepted " in house.ok("status", "two")
    said = json.loads(house.ok("status", "two", "--json"))
    assert said["conflicts"] == {two: "conflicts with one in same"} and said["reviews"][two]["verdict"] == "accepted"
    report = json.loads(house.ok("report", "--json"))
    found = report["conflicts"]
    assert {(row["task"], row["with"], *row["files"]) for row in found["conflicts"]} == {(two, one, "same"), (far, None, "far")}
    assert next(task["review"] for task in report["tasks"] if task["name"] == "two")["verdict"] == "accepted"
    page = (house.home.root / "runs" / report["run"]["id"] / "report.md").read_text()
    assert "**conflicts with main in far**" in page and "## Conflicts" in page
    said = house.run("conflicts", "one")
    assert said.stdout.split() == [two, one, "same"]
    assert "3 results and main: 2 conflicts; 1 has nothing that main lacks" in said.stderr


def test_where_nothing_was_run(house: House) -> None:
    assert house.run("conflicts").returncode == 4
