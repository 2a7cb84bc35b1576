"""`suspend` and `resume`, as a person types them."""

from __future__ import annotations

import json

from tests.cli.test_imports import HEAVY, imported
from tests.support import House, plan_of, shell_task, wait_until

FOREVER = "while :; do sleep 0.1; done"


def test_a_run_of_which_only_some_tasks_run(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("a", FOREVER), shell_task("done", "true"), shell_task("b", "true", after=["a"])])))
    wait_until(lambda: house.task("a").attempt_state == "running" and house.task("done").final, "one to run and one to be done")
    run, a = house.task("a").run, house.task("a").id
    first = house.run("suspend", run)
    assert (first.returncode, first.stdout) == (0, f"{a}\n")
    assert first.stderr.splitlines() == [
        f"nightcrew: {run}/done was not suspended: it is done",
        f"nightcrew: {run}/b was not suspended: it is waiting",
    ]
    again = house.run("suspend", "a")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", f"nightcrew: {a} was suspended already\n")
    words = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert "plain,a" in house.run(env={**words, "COMP_WORDS": "nightcrew resume "}).stdout.split()
    assert imported(house, env={**words, "COMP_WORDS": "nightcrew resume "}) & HEAVY == set()
    shape = json.loads(house.ok("resume", run, "--json"))
    assert shape == {"schema": 1, "resumed": [a], "not_suspended": [f"{run}/done", f"{run}/b"]}
    assert "plain,a" not in house.run(env={**words, "COMP_WORDS": "nightcrew resume "}).stdout.split()
    assert house.run("resume", "a").stderr == f"nightcrew: {a} was not suspended\n"
    shape = json.loads(house.ok("suspend", "a", "--json"))
    assert shape == {"schema": 1, "suspended": [a], "suspended_before": [], "not_running": {}, "moving": []}


def test_what_does_not_run_is_refused_by_name(crew: House) -> None:
    good = crew.task("good").id
    done = crew.run("suspend", "good")
    assert (done.returncode, done.stderr) == (
        6, f"nightcrew: cannot suspend {good}: it is done; kept: it as it is; next: nightcrew status\n"
    )  # fmt: skip
    assert crew.run("suspend", "nobody").returncode == 4
    for verb in ("suspend", "resume"):
        assert crew.run(verb).returncode == 2
