"""`nightcrew night report`, over a night that a supervisor ran: written by itself, by hand, with the supervisor and the repository gone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from supervisor.store import sqlite
from tests.support import House, git, make_repository, plan_of, shell_task, wait_until

COMMIT = "git add -A && git -c user.name=a -c user.email=a@b commit -qm x"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Two that conflict with each other, one that is fine, one whose gate says no, and one behind it."""
    root = tmp_path_factory.mktemp("night")
    made = House(root, make_repository(root / "repo", {"README": "hello\n", "other": "other\n"}))
    try:
        made.start_daemon()
        tasks = [
            shell_task("left", "echo left > README", title="Change the README"),
            shell_task("right", "echo right > README"),
            shell_task("fine", "echo fine > other", gate="true"),
            shell_task("bad", "echo half > half", gate="echo 'assert 3 == 4'; exit 2"),
            shell_task("behind", "true", after=["bad"]),
        ]
        made.run("night", "run", made.plan(plan_of(tasks)), "--until", "8h", "--cost-max", "5")
        yield made
    finally:
        made.reap()


def run_of(house: House) -> str:
    return house.task("left").run


def report(house: House, *words: str, **options: Any) -> dict[str, Any]:
    shape: dict[str, Any] = json.loads(house.ok("night", "report", "--format", "json", *words, **options))
    return shape


def test_the_supervisor_writes_it_when_the_night_ends(night: House) -> None:
    directory = night.home.root / "runs" / run_of(night)
    wait_until(lambda: (directory / "night.html").exists(), "the report to be written")
    assert "The night succeeded in part:" in (directory / "night.html").read_text()
    shape = json.loads((directory / "night.json").read_text())
    assert shape["verdict"]["sentence"] == "3 of 5 tasks are done, 1 failed and 1 never started."
    assert (directory / "night.html").stat().st_mode & 0o777 == 0o600


def test_what_is_ready_and_what_conflicts(night: House) -> None:
    shape = report(night)
    assert shape["run"]["night"] and shape["run"]["cost_max"] == 5.0 and shape["repository"]["on"] == "main"
    ready = {one["name"]: one for one in shape["ready"]}
    assert [(one["name"], one["files"]) for one in ready["left"]["conflicts_with"]] == [("right", ["README"])]
    assert [(one["name"], one["files"]) for one in ready["right"]["conflicts_with"]] == [("left", ["README"])]
    assert not ready["fine"]["conflicts_with"] and ready["fine"]["gate"] == "passed" and ready["left"]["gate"] == ""
    assert [ready["fine"][name] for name in ("files", "plus", "minus", "commits")] == [1, 1, 1, 1]
    assert ready["fine"]["command"] == f"nightcrew take {run_of(night)}/fine"


def test_what_did_not_end_well_and_what_never_began(night: House) -> None:
    shape = report(night)
    (bad,) = shape["unwell"]
    assert (bad["name"], bad["reason"], bad["printed"]) == ("bad", "gate: exit code 2", "assert 3 == 4")
    assert "+half" in bad["diff"]["text"]
    assert bad["commands"][0] == f"nightcrew logs --stream gate {run_of(night)}/bad"
    (group,) = shape["unstarted"]
    assert group["state"] == "skipped" and [one["name"] for one in group["tasks"]] == ["behind"]


def test_each_form_and_where_it_goes(night: House, tmp_path: Path) -> None:
    essence = night.ok("night", "report", "--no-open")
    assert essence.startswith("! The night succeeded in part: 3 of 5 tasks are done")
    assert essence.endswith(f"report: {night.home.root}/runs/{run_of(night)}/night.html\n")
    assert night.ok("night", "report", run_of(night), "--format", "md").startswith("# ")
    for name, begin in (("a.md", "# "), ("page", "<!doctype html>")):
        night.ok("night", "report", "--out", str(tmp_path / name), "--no-open")
        assert (tmp_path / name).read_text().lstrip().startswith(begin)
    refused = night.run("night", "report", "--format", "md", "--open")
    assert refused.returncode == 2 and "--format md is none" in refused.stderr
    assert night.run("night", "report", "no-such").returncode == 4


def test_any_run_is_reported_and_compared(night: House) -> None:
    night.ok("run", night.plan(plan_of([shell_task("lone", "true")]), "lone.toml"))
    shape = report(night, night.task("lone").run, "--against", run_of(night))
    assert shape["verdict"]["word"] == "The run succeeded" and not shape["run"]["night"]
    assert shape["against"]["run"] == run_of(night) and shape["against"]["figures"]["states"]["failed"] == 1
    assert report(night)["run"]["id"] == run_of(night)  # the newest night, though a newer run is there


def test_what_is_taken_is_not_offered_again(night: House) -> None:
    git(night.repo, "branch", "-q", "back")
    night.ok("take", "fine")
    ready = {one["name"]: one for one in report(night)["ready"]}
    assert ready["fine"]["taken"] and not ready["left"]["taken"]
    git(night.repo, "reset", "-q", "--hard", "back")


def test_a_question_of_one_that_still_runs_comes_with_its_change(night: House) -> None:
    plan = plan_of([shell_task("asks", f"echo mine > mine && {COMMIT} && sleep 600")])
    night.ok("night", "run", "-d", night.plan(plan, "asks.toml"), "--until", "8h")
    wait_until(lambda: "+mine" in night.run("diff", "asks").stdout, "its commit")
    task = night.task("asks")
    with closing(sqlite3.connect(night.home.ledger)) as db, db:  # as the supervisor writes it of an agent that asks at night
        data = json.dumps({"question": "May I use the network?"})
        db.execute("INSERT INTO journal (at, task, epoch, event, data) VALUES (?, ?, 1, 'set aside', ?)", (task.created, task.id, data))
    shape = report(night, task.run)
    (need,) = shape["needs"]
    assert need["question"] == "May I use the network?" and "+mine" in need["diff"]["text"]
    assert need["commands"] == [f"nightcrew {verb} {task.id}" for verb in ("diff", "attach", "resume")]
    assert shape["verdict"]["sentence"] == "none of 1 task is done and 1 needs you; $0.00 so far."
    assert shape["against"]["run"] == run_of(night)
    assert "needs you: asks: May I use the network?" in night.ok("night", "report", task.run, "--no-open")
    night.ok("kill", "asks")


def test_without_a_supervisor_and_without_a_repository(tmp_path: Path, night: House) -> None:
    run = run_of(night)
    night.ok("down")
    assert report(night, run)["verdict"]["kind"] == "part"
    night.repo.rename(tmp_path / "away")
    try:
        shape = report(night, run, cwd=tmp_path)
        assert shape["figures"]["states"]["done"] == 3
        assert "what the branches hold:" in shape["trouble"][0] and str(night.repo) in shape["trouble"][0]
    finally:
        (tmp_path / "away").rename(night.repo)


def test_a_home_without_anything(tmp_path: Path, house: House) -> None:
    answer = house.run("night", "report", cwd=tmp_path)
    assert answer.returncode == 4 and "nothing was ever run here" in answer.stderr
    files.private_dir(house.home.root)
    sqlite.connect(house.home.ledger).close()
    answer = house.run("night", "report", cwd=tmp_path)
    assert answer.returncode == 4 and "no run yet" in answer.stderr


def test_commits_that_are_on_no_work_branch_are_named_with_their_ref(house: House) -> None:
    commits = f"echo x > new && {COMMIT}"
    tasks = [
        shell_task("side", f"git checkout -qb mine && {commits}"),
        shell_task("back", f"git checkout -qb hers && {commits} && git checkout -q -"),
        shell_task("amends", f"{commits} && git -c user.name=a -c user.email=a@b commit -q --amend -m y"),
        shell_task("plain", commits),
    ]
    house.start_daemon()
    house.ok("run", house.plan(plan_of(tasks)))
    run = house.task("side").run
    shape = report(house, run)
    found = {one["name"]: one for one in shape["elsewhere"]}
    assert set(found) == {"side", "back"} and {one["name"] for one in shape["ready"]} == {"amends", "plain"}
    for one in found.values():
        [ref], [command] = one["refs"], one["commands"]
        assert command == f"git log {ref}" and "new" in git(house.repo, "ls-tree", "-r", "--name-only", ref).split()
    assert found["side"]["commands"][0] in house.ok("night", "report", run, "--format", "md")
