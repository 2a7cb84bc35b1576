"""`pause` and `resume`, as a person types them."""

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
    first = house.run("pause", run)
    assert (first.returncode, first.stdout) == (0, f"{a}\n{run}/b\n")
    assert first.stderr == f"nightcrew: {run}/done was not paused: it is done\n"
    again = house.run("pause", "a")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", f"nightcrew: {a} was paused already\n")
    words = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert "plain,a" in house.run(env={**words, "COMP_WORDS": "nightcrew resume "}).stdout.split()
    assert imported(house, env={**words, "COMP_WORDS": "nightcrew resume "}) & HEAVY == set()
    shape = json.loads(house.ok("resume", run, "--json"))
    assert shape == {"schema": 1, "resumed": [a, f"{run}/b"], "waiting_for_slot": [], "not_paused": [f"{run}/done"]}
    assert "plain,a" not in house.run(env={**words, "COMP_WORDS": "nightcrew resume "}).stdout.split()
    assert house.run("resume", "a").stderr == f"nightcrew: {a} was not paused\n"
    shape = json.loads(house.ok("pause", "a", "--json"))
    assert shape == {"schema": 1, "paused": [a], "paused_before": [], "not_paused": {}, "moving": []}


def test_what_does_not_run_is_refused_by_name(crew: House) -> None:
    good = crew.task("good").id
    done = crew.run("pause", "good")
    assert (done.returncode, done.stderr) == (
        6, f"nightcrew: cannot pause {good}: it is done; kept: it as it is; next: nightcrew status\n"
    )  # fmt: skip
    assert crew.run("pause", "nobody").returncode == 4
    for verb in ("pause", "resume"):
        assert crew.run(verb).returncode == 2
