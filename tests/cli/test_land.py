"""`nightcrew land` on real repositories: what lands, what is left out and why, and that nothing moves that should not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.client.crew import Lookout
from supervisor.host import files
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, plan_of, shell_task, wait_until

GATE = "sh gate.sh"


def write(name: str, text: str) -> str:
    """A command that commits a file."""
    return f"printf '%s\\n' '{text}' > {name} && git add -A && git commit -qm '{name}'"


def landed(house: House, *args: str, code: int = 0) -> dict[str, Any]:
    done = house.run("land", *args, "--json")
    assert done.returncode == code, (done.stdout, done.stderr, house.daemon_output())
    return dict(json.loads(done.stdout))


def states(shape: dict[str, Any]) -> dict[str, str]:
    return {entry["task"].partition("/")[2]: entry["state"] for entry in shape["entries"]}


def commit(house: House, files: dict[str, str]) -> None:
    for name, text in files.items():
        (house.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (house.repo / name).write_text(text)
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "base")


def test_five_that_end_together_land_one_on_another_and_what_conflicts_or_breaks_does_not(house: House) -> None:
    """Row R08 of the battery. The gate fails where `a` and `b` are both there: each of them alone passes."""
    commit(house, {"gate.sh": "echo looked; ! { test -f a && test -f b; }\n", "shared": "one\n"})
    house.start_daemon()
    work = {
        "a": write("a", "a"),
        "b": write("b", "b") + " && echo more >> b && git commit -qam b2",
        "c": write("shared", "two"),
        "d": write("shared", "three") + "; seq 9 > d; git add d; git commit -qm d",
        "e": "git mv README docs && git commit -qm moved",
    }
    after = shell_task("f", write("f", "f"), after=["b"])
    house.ok("run", house.plan(plan_of([*(shell_task(name, command, gate=GATE) for name, command in work.items()), after])))
    before, objects = git(house.repo, "rev-parse", "HEAD"), git(house.repo, "count-objects", "-v")
    tried = landed(house, "--ready", "--dry-run")
    would = {entry["task"].partition("/")[2]: entry["would"] for entry in tried["entries"]}
    assert would == {"a": "merge", "b": "merge", "c": "merge", "d": "conflict", "e": "merge", "f": "merge"}
    assert git(house.repo, "count-objects", "-v") == objects and len(house.tasks()) == 6, "a look changes nothing"
    shape = landed(house, "--ready", code=1)
    assert states(shape) == {"a": "landed", "c": "landed", "e": "landed", "b": "ejected", "d": "ejected", "f": "ejected"}, shape
    assert shape["state"] == "landed" and shape["tip"] == git(house.repo, "rev-parse", "main")
    by = {entry["task"].partition("/")[2]: entry for entry in shape["entries"]}
    assert by["d"]["files"] == ["shared"] and "it conflicts in shared" in by["d"]["reason"]
    assert by["f"]["reason"].startswith("it comes after ") and by["f"]["reason"].endswith("/b, which was left out")
    assert "sh gate.sh failed (exit code 1) on the merged tree" in by["b"]["reason"]
    assert "looked" in house.ok("logs", by["b"]["log"])
    assert (house.repo / "a").read_text() == "a\n" and (house.repo / "shared").read_text() == "two\n" and not (house.repo / "b").exists()
    assert git(house.repo, "status", "--porcelain") == "" and git(house.repo, "merge-base", before, "main") == before
    said = git(house.repo, "log", "-1", "--format=%(trailers:key=Nightcrew-Gate,valueonly)", "main")
    assert said == "passed"
    shown = {row.view.name: row for row in Lookout(house.home).crew(()).rows()}
    assert {name: row.letter for name, row in shown.items()} == {
        "a": "M", "c": "M", "e": "M", "b": "T", "d": "T", "f": "T", shape["train"]: shown[shape["train"]].letter,
    }, "of the gates of a train one row"  # fmt: skip
    assert shown["a"].says == "landed in main" and f"left out of {shape['train']}: it conflicts in shared" in shown["d"].says
    assert shown[shape["train"]].says.startswith("into main is landed")
    assert f"left out of {shape['train']}" in house.ok("status", "d") and "landed in main" in house.ok("status", "a")
    assert json.loads(house.ok("status", "c", "--json"))["results"][by["c"]["task"]]["state"] == "landed"
    house.ok("clean", "a", "--yes")
    assert "main has everything of" in house.run("take", "a").stderr + house.run("take", "a").stdout
    assert landed(house, "--ready", code=1)["state"] == "empty"
    wait_until(lambda: git(house.repo, "for-each-ref", "refs/nightcrew/train") == "", "its refs to go")


def test_into_another_branch_that_nobody_has_checked_out(house: House) -> None:
    git(house.repo, "branch", "other")
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task("a", write("a", "a"))])))
    tried = landed(house, "a", "--dry-run", "--into", "other")
    assert [entry["would"] for entry in tried["entries"]] == ["merge"] and git(house.repo, "for-each-ref", "refs/nightcrew/train") == ""
    shape = landed(house, "a", "--into", "other")
    assert states(shape) == {"a": "landed"} and git(house.repo, "show", "other:a") == "a"
    assert not Path(house.repo / "a").exists()


def test_nothing_moves_that_should_not_and_a_train_goes_on_where_it_was(house: House) -> None:
    go = house.home.root.parent / "go"
    gate = f"while ! test -e {go}; do sleep 0.05; done"
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task(name, write(name, name)) for name in ("a", "b")])))
    house.ok("land", "--ready", "-d", "--gate", gate)
    second = house.run("land", "a")
    assert second.returncode == 6 and "is under way into it" in second.stderr
    assert "into main is running" in house.ok("status")
    house.ok("land", "b", "--into", git_branch(house, "other"))  # beside it, into another branch
    house.ok("land", "--stop", "--into", "main")
    wait_until(lambda: all(view.final for view in house.tasks()), "its gates to end")
    assert "is stopped: a person stopped it" in house.ok("land", "--status", "--into", "main")
    commit(house, {"mine": "mine\n"})  # the branch moves under it
    (house.repo / "README").write_text("not committed\n")
    go.touch()
    dirty = house.run("land", "--resume", "--into", "main")
    tip = landed(house, "--status", "--into", "main")
    assert dirty.returncode == 8 and "uncommitted changes: README" in dirty.stderr and tip["restages"] == 1
    assert dirty.stdout.splitlines()[-1] == f"git -C {house.repo} merge --ff-only {tip['tip']}" == tip["by_hand"]
    assert (house.repo / "README").read_text() == "not committed\n" and not (house.repo / "a").exists()
    git(house.repo, "checkout", "README")
    hook = house.repo / ".git/hooks/post-merge"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    hooked = house.run("land", "--resume", "--into", "main")
    assert hooked.returncode == 8 and "post-merge" in hooked.stderr and not (house.repo / "a").exists()
    assert not (house.repo / "ran").exists(), "no hook ran"
    git(house.repo, *tip["by_hand"].split()[3:])  # a person may do it by hand: then it has landed
    assert (house.repo / "ran").exists()
    assert house.run("land", "--resume", "--into", "main").returncode == 0
    assert states(landed(house, "--status", "--into", "main")) == {"a": "landed", "b": "landed"}
    assert (house.repo / "mine").exists() and (house.repo / "b").read_text() == "b\n"


@pytest.mark.parametrize("times", [2, pytest.param(1000, marks=pytest.mark.soak)])
def test_what_is_removed_and_pruned_under_a_train_loses_nothing(house: House, times: int) -> None:
    """Worktrees of results are removed by hand, another one is the person's, and git collects its garbage, while gates run; afterwards
    what is dirty or has a process in it stays, and what landed goes."""
    go = house.home.root.parent / "go"
    house.start_daemon()
    names = ("gone", "dirty", "alive", "landed")
    house.ok("run", house.plan(plan_of([shell_task(name, write(name, name)) for name in names])))
    place = {name: Path(str(house.task(name).worktree)) for name in names}
    tips = {name: git(house.repo, "rev-parse", str(house.task(name).branch)) for name in names}
    mine = place["gone"].parent / "mine"
    git(house.repo, "worktree", "add", "-q", "--detach", str(mine))
    house.ok("land", *names, "-d", "--method", "squash", "--gate", f"while ! test -e {go}; do sleep 0.05; done")
    wait_until(lambda: any(view.name.startswith("gate") and view.state == "running" for view in house.tasks()), "a gate to run")
    shutil.rmtree(place["gone"])
    collect = f"for i in $(seq {times}); do git gc -q --prune=now; done"
    with subprocess.Popen(["sh", "-c", collect], cwd=house.repo, stderr=subprocess.DEVNULL) as collector:
        go.touch()
        followed = house.run("land", "--follow", "--into", "main")
        collector.kill()
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert states(landed(house, "--status", "--into", "main")) == dict.fromkeys(names, "landed")
    (place["dirty"] / "new").touch()
    with subprocess.Popen(["sleep", "100"], cwd=place["alive"]) as inside:
        assert house.run("clean", "--yes", *names).returncode == 6, "two of the named ones stay"
        inside.kill()
    assert {name: place[name].exists() for name in names} == {"gone": False, "dirty": True, "alive": True, "landed": False}
    assert (mine / ".git").exists(), "it is the person's"
    git(house.repo, "gc", "-q", "--prune=now")
    git(house.repo, "fsck", "--connectivity-only")
    kept = git(house.repo, "for-each-ref", "--format=%(objectname)").split()
    assert set(tips.values()) <= set(kept)


def git_branch(house: House, name: str) -> str:
    git(house.repo, "branch", name)
    return name


def test_a_gate_that_a_result_weakened_runs_as_it_was_before_too(house: House) -> None:
    commit(house, {"check.sh": "grep -q good code\n", "code": "good\n"})
    house.start_daemon()
    tasks = [
        shell_task("honest", write("check.sh", "grep -q good code && echo more"), gate="sh check.sh"),
        shell_task("cheat", "echo true > check.sh; echo bad > code; seq 5 > more; git add -A; git commit -qm cheat", gate="sh check.sh"),
    ]
    house.ok("run", house.plan(plan_of(tasks)))
    house.ok("review", "honest", "--reject")
    refused = house.run("land", "honest", "cheat")
    assert refused.returncode == 6 and "it was rejected" in refused.stderr
    shape = landed(house, "cheat", code=1)
    assert shape["state"] == "empty" and "as they were before it" in shape["entries"][0]["reason"]
    weakened, restored = ((one["restored"], one["state"]) for one in shape["ran"])
    assert weakened[1] in ("passed", "dropped") and restored == (True, "failed"), "both run at once, and one that failed is enough"
    assert states(landed(house, "honest", "--force")) == {"honest": "landed"}
    house.ok("review", "cheat", "--accept")
    conflicting = landed(house, "cheat", code=1)["entries"][0]
    assert conflicting["files"] == ["check.sh"], "what a person accepted is put on like any other"


def test_an_agent_mends_its_result_once(house: House) -> None:
    commit(house, {"shared": "one\n"})
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        house.config.write_text(house.config.read_text() + upstream(house.home, sim.url))
        mend = "git checkout -q HEAD~1 -- shared && git commit -qm mended"
        sim.faults(tool="bash", tool_input={"command": mend}, contains="and was left out", times=1)
        sim.faults(text="mended", contains="and was left out")
        work = write("shared", "agent") + " && seq 3 > own && git add own && git commit -qm own --amend"
        sim.faults(tool="bash", tool_input={"command": work}, contains="Do it.", times=1)
        sim.faults(text="done", contains="Do it.")
        house.start_daemon()
        agent = '[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "Do it."\n'
        house.ok("run", house.plan(plan_of([shell_task("quick", write("shared", "quick"))]) + agent))
        shape = landed(house, "--ready")
    found = states(shape)
    assert found == {"quick": "landed", "agent": "ejected", "agent-more": "landed"}, shape
    assert (house.repo / "shared").read_text() == "quick\n" and (house.repo / "own").exists()
    assert "comes in its place" in shape["entries"][1]["reason"]
    assert landed(house, "--ready")["train"] is None, "what came in mended is not offered again"


def test_generated_files_are_made_anew_on_the_merged_tree(house: House) -> None:
    rules = (
        '[[generated]]\npaths = ["lock"]\ncommand = "cat parts/* > lock"\n[land]\ngate = "cat parts/* | cmp - lock"\nmethod = "squash"\n'
    )
    commit(house, {"nightcrew.toml": rules, "parts/0": "0\n", "lock": "0\n"})
    house.start_daemon()
    tasks = [
        shell_task(name, f"echo {name} > parts/{name} && cat parts/* > lock && git add -A && git commit -qm x") for name in ("a", "b", "c")
    ]
    house.ok("run", house.plan(plan_of(tasks)))
    shape = landed(house, "--ready")
    assert states(shape) == {"a": "landed", "b": "landed", "c": "landed"}
    assert (house.repo / "lock").read_text() == "0\na\nb\nc\n"
    assert len(git(house.repo, "log", "--format=%s", f"{shape['base']}..main").splitlines()) == 3


def test_of_candidates_the_one_that_was_chosen_lands(house: House) -> None:
    house.start_daemon()
    house.run("run", "-d", house.plan(plan_of([shell_task("try", write("t", "$NIGHTCREW_TASK"), best_of=2)])))
    wait_until(lambda: sum(view.state == "done" for view in house.tasks()) == 2, "both candidates to end")
    assert landed(house, "--ready")["train"] is None
    undecided = house.run("land", "try")
    assert undecided.returncode == 6 and "none was chosen" in undecided.stderr
    house.ok("choose", "try", "try-2")
    assert [entry["task"].partition("/")[2] for entry in landed(house, "--ready", "--dry-run")["entries"]] == ["try-2"]
    assert states(landed(house, "try")) == {"try-2": "landed"}
