"""`diff`, `take` and `clean`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from supervisor.features.retention import commands as clean_commands
from tests.cli.terminal import COMMAND
from tests.support import GIT_IDENTITY, House, git, make_repository, plan_of, shell_task, wait_until

IDENTITY = {name: text for name, text in GIT_IDENTITY.items() if not name.startswith("GIT_CONFIG")}


def test_diff_shows_the_branch_as_git_would(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "printf 'caf\\351\\n' > latin1; echo more >> README")
    raw = subprocess.run([*COMMAND, "diff", "work"], cwd=house.repo, env=house.env, capture_output=True, check=True)
    assert b"+caf\xe9\n" in raw.stdout and raw.stderr == b""
    task = house.task("work").id
    assert raw.stdout.decode("latin-1") == subprocess.run(
        ["git", "-C", str(house.repo), "diff", f"main...nightcrew/{task}/work"], capture_output=True, check=True
    ).stdout.decode("latin-1")
    assert "README | 1 +" in house.ok("diff", "work", "--stat")


def test_diff_of_what_runs_and_of_what_never_did(house: House) -> None:
    house.start_daemon()
    commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm x"
    plan = [shell_task("live", f"echo 1 > one && {commit} && sleep 600"), shell_task("later", "true", after=["live"])]
    house.ok("run", "-d", house.plan(plan_of(plan)))
    wait_until(lambda: house.state("live") == "running", "it to run")
    wait_until(lambda: "+1" in house.run("diff", "live").stdout, "its commit to be shown")
    never = house.run("diff", "later")
    assert never.returncode == 4 and "it is waiting and never started" in never.stderr


def test_take_merges_and_says_how(house: House) -> None:
    house.start_daemon()
    house.run("run", house.plan(plan_of([shell_task("a", "echo a > a"), shell_task("b", "echo b > b"), shell_task("none", "true")])))
    first = house.run("take", "a")
    assert (first.returncode, first.stdout) == (0, "") and "is in main (fast-forward" in first.stderr
    (merged,) = [one for one in json.loads(house.ok("audit", "show", "--json", "--task", "a"))["entries"] if one["kind"] == "merge"]
    assert (merged["who"], merged["task"], merged["data"]["into"]) == ("person", house.task("a").id, f"{house.repo} main")
    again = house.run("take", "a")
    assert again.returncode == 0 and "main has everything of" in again.stderr
    shape = json.loads(house.ok("take", "b", "--json", env=IDENTITY))
    assert shape["merged"] is True and shape["commit"] == git(house.repo, "rev-parse", "HEAD")
    assert git(house.repo, "log", "-1", "--format=%s") == f"Merge {house.task('b').id}: b"
    assert (house.repo / "a").exists() and (house.repo / "b").exists() and git(house.repo, "status", "--porcelain") == ""
    assert "main has everything of" in house.run("take", "none").stderr


def test_take_names_files_that_decide_what_runs_in_the_words_of_review(house: House) -> None:
    house.start_daemon()
    house.run("run", house.plan(plan_of([shell_task("a", "mkdir .vscode; echo '{}' > .vscode/tasks.json"), shell_task("b", "echo b > b")])))
    words = "adds a file that steers an agent, an editor or a hook"
    assert f".vscode/tasks.json: {words}" in house.ok("review", "a")
    said = f"it changes what runs here: .vscode/tasks.json {words}"
    assert said in house.run("take", "--print", "a").stderr
    assert said in json.loads(house.ok("take", "--json", "a"))["notes"]
    again = house.run("take", "a")
    assert again.returncode == 0 and "what runs" not in again.stderr, "nothing of it is new any more"
    assert "what runs" not in house.run("take", "b", env=IDENTITY).stderr


def test_take_refuses_with_nothing_changed(house: House) -> None:
    house.start_daemon()
    plan = [
        shell_task("good", "echo theirs > README"),
        shell_task("bad", "echo half > half; exit 1"),
        shell_task("never", "true", after=["bad"]),
    ]
    house.run("run", house.plan(plan_of([*plan, shell_task("live", "sleep 600")])), "-d")
    wait_until(lambda: house.state("never") == "skipped" and house.state("good") == "done", "the others to end")
    before = git(house.repo, "rev-parse", "HEAD")
    failed = house.run("take", "bad")
    assert failed.returncode == 6 and "it is failed: exit code 1" in failed.stderr
    assert house.ok("take", "--print", "bad") == f"git -C {house.repo} merge nightcrew/{house.task('bad').id}/work\n"
    assert house.run("take", "live").returncode == 6
    assert house.run("take", "never").returncode == 4
    other = make_repository(house.repo.parent / "other")
    elsewhere = house.run("take", "good", cwd=other)
    assert elsewhere.returncode == 6 and f"-C {house.repo}" in elsewhere.stderr
    (house.repo / "README").write_text("mine\n")
    dirty = house.run("take", "good")
    assert dirty.returncode == 6 and "uncommitted changes: README" in dirty.stderr
    git(house.repo, "commit", "-qam", "mine")
    conflict = house.run("take", "good", env=IDENTITY)
    assert conflict.returncode == 6 and "it would conflict in README" in conflict.stderr
    assert git(house.repo, "rev-parse", "HEAD^") == before
    assert (house.repo / "README").read_text() == "mine\n"


def test_clean_removes_only_what_is_safe_and_keeps_the_rest_reachable(house: House) -> None:
    house.start_daemon()
    plan = [
        shell_task("merged", "echo a > a"),
        shell_task("kept", "echo b > b"),
        shell_task("idle", "true"),
        shell_task("live", "sleep 600"),
    ]
    house.run("run", "-d", house.plan(plan_of(plan)))
    wait_until(lambda: sum(view.final for view in house.tasks()) == 3, "three to end")
    house.ok("take", "merged")
    look = house.ok("clean").splitlines()
    assert [line.split()[0] for line in look] == ["would", "would", "keep", "keep"]
    assert "its task has not ended" in look[-1]
    paths = {name: Path(house.task(name).worktree or "") for name in ("merged", "kept", "idle", "live")}
    assert all(path.is_dir() for path in paths.values()), "without --yes nothing happens"
    shape = json.loads(house.ok("clean", "--yes", "--json"))
    assert shape["schema"] == 1 and [item["path"] for item in shape["removable"]] == [str(paths["merged"]), str(paths["idle"])]
    assert [name for name, path in paths.items() if path.is_dir()] == ["kept", "live"]
    refused = house.run("clean", "--yes", "kept")
    assert refused.returncode == 6 and "commits not on any other branch" in refused.stderr and "--discard" in refused.stderr
    careless = house.run("clean", "--yes", "--discard")
    assert careless.returncode == 2 and paths["kept"].is_dir()
    house.ok("clean", "--yes", "--discard", "kept")
    assert not paths["kept"].exists()
    task = house.task("kept").id
    assert "+b" in house.ok("diff", "kept"), "what was discarded can still be seen"
    gone = house.run("take", "kept")
    assert gone.returncode == 6 and f"merge refs/nightcrew/rescue/{task}/1" in gone.stderr
    assert house.run("clean", "--yes", "live").returncode == 6
    house.ok("kill", "live")
    house.ok("clean", "--yes")
    assert "no worktrees" in house.run("clean").stderr
    assert "worktree" in git(house.repo, "worktree", "list", "--porcelain") and len(git(house.repo, "worktree", "list").splitlines()) == 1


def test_clean_says_how_what_only_ignored_files_keep_may_go(capsys: pytest.CaptureFixture[str]) -> None:
    kept = [{"why": "ignored files: a/__pycache__/"}, {"why": "ignored files: b/; commits not on any other branch: 1 of them on x"}]
    clean_commands._say_next({"removable": [], "kept": kept}, yes=False, ignored=False)
    assert capsys.readouterr().err == "nightcrew: 1 worktree is kept for its ignored files alone; next: nightcrew clean --yes --ignored\n"
    clean_commands._say_next({"removable": [], "kept": kept}, yes=True, ignored=True)
    assert capsys.readouterr().err == ""


def test_a_report_lists_as_to_take_what_the_checkout_lacks(house: House) -> None:
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task("a", "echo a > a"), shell_task("b", "echo b > b")])))
    house.ok("take", "a", env=IDENTITY)
    assert {task["name"]: task["to_take"] for task in json.loads(house.ok("report", "--json"))["tasks"]} == {"a": False, "b": True}


def test_take_names_the_ref_of_commits_that_are_not_on_the_branch(house: House) -> None:
    house.start_daemon()
    commit = "git -c user.name=a -c user.email=a@x commit -qm d"
    house.ok("add", "-f", "--id", "det", f"git checkout -q --detach && echo d > d && git add d && {commit}")
    det = house.task("det").id
    words = f"{det} left work that is on no branch (d): nightcrew restore {det} makes a branch of it"
    assert words in house.run("land", "--ready").stderr
    assert words in house.ok("review", "det") and words in json.loads(house.ok("review", "det", "--json"))["left_out"]
    assert words in house.run("diff", "det").stderr
    said = house.run("take", "det")
    assert said.returncode == 6 and "refs/nightcrew/rescue/" in said.stderr and "nightcrew restore" in said.stderr, said.stderr
    house.ok("restore", "det")
    git(house.repo, "merge", "-q", f"restored/{det}.1")
    assert "on no branch" not in house.run("land", "--ready").stderr + house.ok("review", "det")
