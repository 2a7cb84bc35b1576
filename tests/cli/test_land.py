"""`nightcrew land` on real repositories: what lands, what is left out and why, and that nothing moves that should not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import House, git, plan_of, shell_task

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


def test_what_passes_together_lands_and_what_conflicts_or_breaks_does_not(house: House) -> None:
    # The gate fails where `a` and `b` are both there: each of them alone passes.
    commit(house, {"gate.sh": "echo looked; ! { test -f a && test -f b; }\n", "shared": "one\n"})
    house.start_daemon()
    work = {
        "a": write("a", "a"),
        "b": write("b", "b") + " && echo more >> b && git commit -qam b2",
        "c": write("shared", "two"),
        "d": write("shared", "three") + "; seq 9 > d; git add d; git commit -qm d",
    }
    tasks = [shell_task(name, command, gate=GATE) for name, command in work.items()]
    house.ok("run", house.plan(plan_of(tasks)))
    before = git(house.repo, "rev-parse", "HEAD")
    shape = landed(house, "--ready", code=1)
    assert states(shape) == {"a": "landed", "c": "landed", "b": "ejected", "d": "ejected"}, shape
    assert shape["state"] == "landed" and shape["tip"] == git(house.repo, "rev-parse", "main")
    by = {entry["task"].partition("/")[2]: entry for entry in shape["entries"]}
    assert by["d"]["files"] == ["shared"] and "it conflicts in shared" in by["d"]["reason"]
    assert "sh gate.sh failed (exit code 1) on the merged tree" in by["b"]["reason"]
    assert "looked" in house.ok("logs", by["b"]["log"])
    assert (house.repo / "a").read_text() == "a\n" and (house.repo / "shared").read_text() == "two\n" and not (house.repo / "b").exists()
    assert git(house.repo, "status", "--porcelain") == "" and git(house.repo, "merge-base", before, "main") == before
    assert landed(house, "--ready", code=1)["state"] == "empty"


def test_into_another_branch_that_nobody_has_checked_out(house: House) -> None:
    git(house.repo, "branch", "other")
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task("a", write("a", "a"))])))
    tried = landed(house, "a", "--dry-run", "--into", "other")
    assert [entry["would"] for entry in tried["entries"]] == ["merge"] and git(house.repo, "for-each-ref", "refs/nightcrew/train") == ""
    shape = landed(house, "a", "--into", "other")
    assert states(shape) == {"a": "landed"} and git(house.repo, "show", "other:a") == "a"
    assert not Path(house.repo / "a").exists()
