"""`fork`: environments of a snapshot for a person, and named ones that are opened again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.support import GIT_IDENTITY, House, git, make_repository, wait_until

COMMIT = " ".join(f"{name}='{text}'" for name, text in GIT_IDENTITY.items()) + " git commit -q"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house with a ready snapshot `deps`: it holds `dep/made`, which git ignores."""
    root = tmp_path_factory.mktemp("shop")
    made = House(root, make_repository(root / "repo", {".gitignore": "dep/\n", "README": "hello\n"}))
    try:
        made.start_daemon()
        made.ok("snapshot", "create", "deps", "--setup", "mkdir dep; echo yes > dep/made")
        yield made
    finally:
        made.reap()


def shape(house: House, *words: str) -> Any:
    return json.loads(house.ok(*words))


def ended(house: House, name: str) -> Any:
    """The newest task of that name, once it has ended."""
    wait_until(lambda: house.task(name).final, f"{name} to end")
    return shape(house, "status", "--json", house.task(name).id)["tasks"][0]


def files(house: House, task: Any) -> list[str]:
    return git(house.repo, "ls-tree", "--name-only", task["result"]["tip"]).splitlines()


def test_several_environments_of_one_snapshot(shop: House) -> None:
    answer = shape(shop, "fork", "deps", "-n", "3", "--json", "--", "cp dep/made .")
    assert (answer["schema"], answer["snapshot"], answer["environment"]) == (1, "deps", None)
    assert answer["tasks"] == [f"{answer['run']}/deps-{number}" for number in (1, 2, 3)]
    tasks = [ended(shop, name) for name in ("deps-1", "deps-2", "deps-3")]
    assert [(task["state"], task["class"], task["tier"]) for task in tasks] == [("done", "interactive", 0)] * 3
    assert len({task["worktree"] for task in tasks}) == 3
    assert all(task["snapshot"].partition("/")[2].startswith("deps@") and task["backend"] for task in tasks)
    assert all("made" in files(shop, task) for task in tasks), "each began with the files of the snapshot"


def test_the_shell_of_the_person(shop: House, tmp_path: Path) -> None:
    shell = tmp_path / "my shell; exit 3"
    shell.write_text('#!/bin/sh\ntest -t 0 && echo "$#" > typed\n')
    shell.chmod(0o755)
    done = shop.run("fork", "deps", env={"SHELL": str(shell)})
    assert done.returncode == 0 and done.stdout == f"{shop.task('deps').id}\n"
    assert f"nightcrew attach {shop.task('deps').id}" in done.stderr
    task = ended(shop, "deps")
    assert (task["state"], task["title"]) == ("done", "shell in deps")
    assert git(shop.repo, "show", f"{task['result']['tip']}:typed") == "0", "it has the pane's terminal, and no word that nobody typed"


def test_one_word_is_a_line_for_the_shell_and_several_are_run_as_they_are(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "words", "--", "echo 1 > one; echo 2 > two")
    assert {"one", "two"} <= set(files(shop, ended(shop, "words")))
    shop.ok("fork", "--reopen", "words", "--", "cp", "dep/made", "a; b")
    assert {"one", "two", "a; b"} <= set(files(shop, ended(shop, "words")))


def test_an_environment_is_opened_again_where_it_ended(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "review", "--sandbox", "0", "--", f"echo 1 > one; git add one; {COMMIT} -m one; echo 2 > left")
    first = ended(shop, "review")
    assert first["environment"] == "review"
    shop.ok("fork", "--reopen", "review", "--", "test -e dep/made && test -e one && test -e left && echo 3 > three")
    second = ended(shop, "review")
    assert second["state"] == "done" and second["id"] != first["id"] and second["worktree"] != first["worktree"]
    assert second["snapshot"] == first["snapshot"]
    assert {"one", "left", "three"} <= set(files(shop, second))
    assert "three" in shop.ok("diff", second["id"]) and "one" not in shop.ok("diff", "--stat", second["id"])
    assert "  name      review: nightcrew fork --reopen review" in shop.ok("status", second["id"])


def test_also_after_everything_of_it_was_cleaned_away(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "gone", "--", "echo 1 > one")
    first = ended(shop, "gone")
    shop.ok("clean", "--yes", "--discard", first["id"])
    assert not Path(first["worktree"]).exists() and git(shop.repo, "branch", "--list", first["branch"]) == ""
    shop.ok("fork", "--reopen", "gone", "--", "test -e one")
    assert ended(shop, "gone")["state"] == "done"


def test_also_where_a_person_went_on_on_its_branch(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "mine", "--", "echo 1 > one")
    first = ended(shop, "mine")
    tree = git(shop.repo, "rev-parse", f"{first['branch']}^{{tree}}")
    later = git(shop.repo, "commit-tree", "-p", first["branch"], "-m", "later", tree)
    git(shop.repo, "update-ref", f"refs/heads/{first['branch']}", later)
    shop.ok("fork", "--reopen", "mine", "--", "true")
    assert shop.task("mine").base_oid == later
    # And where the branch lost what it held, the rescue ref still has it.
    second = ended(shop, "mine")
    git(shop.repo, "update-ref", f"refs/heads/{second['branch']}", git(shop.repo, "rev-parse", "main"))
    shop.ok("fork", "--reopen", "mine", "--", "test -e one")
    assert shop.task("mine").base_oid == later
    assert ended(shop, "mine")["state"] == "done"


def test_one_that_is_open_is_attached_to(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "busy", "--", "sleep 600")
    for words in (("--reopen", "busy"), ("deps", "--as", "busy")):
        done = shop.run("fork", *words)
        assert done.returncode == 6 and f"next: nightcrew attach {shop.task('busy').id}" in done.stderr
    shop.ok("kill", "busy")
    shop.ok("fork", "--reopen", "busy", "--", "true")
    assert ended(shop, "busy")["state"] == "done"


def test_a_name_may_start_anew(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "anew", "--", "echo 1 > one")
    first = ended(shop, "anew")
    done = shop.run("fork", "deps", "--as", "anew", "--", "test ! -e one")
    assert done.returncode == 0 and f"anew starts anew; what it held before stays with {first['id']}" in done.stderr
    assert ended(shop, "anew")["state"] == "done"


def test_what_it_was_made_with_stays(shop: House) -> None:
    (shop.repo / "nightcrew.toml").write_text("[defaults]\nretries = 5\n")
    shop.ok("fork", "deps", "--as", "kept", "--", "exit 3")
    (shop.repo / "nightcrew.toml").unlink()
    assert ended(shop, "kept")["epoch"] == 1, "a shell that ended with an error is not started again behind its person's back"
    shop.ok("fork", "--reopen", "kept", "--", "true")
    assert ended(shop, "kept")["class"] == "interactive"


def test_what_a_person_at_it_can_reach_stays_until_they_say_otherwise(shop: House) -> None:
    if Tier.OFFLINE not in executors.probe().tiers:
        pytest.skip("this host has no tier 2")

    def came_to(*words: str) -> tuple[str, int]:
        shop.ok("fork", *words)
        task = ended(shop, "online")
        return f"{task['state']} {task['reason']}", task["tier"]

    assert came_to("deps", "--as", "online", "--network", "pypi.org,*.pythonhosted.org", "--", 'test -n "$https_proxy"') == ("done done", 2)
    assert came_to("--reopen", "online", "--", 'test -n "$https_proxy"') == ("done done", 2)
    less = shop.run("fork", "--reopen", "online", "--sandbox", "1")
    assert less.returncode == 2 and 'network = ["pypi.org", ...] needs tier 2, and sandbox = 1 is below it' in less.stderr
    assert came_to("--reopen", "online", "--network", "no", "--", 'test -z "$https_proxy"') == ("done done", 2)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "which snapshot, or which environment?"),
        (("deps", "-n", "0"), 2, "-n"),
        (("deps", "-n", "2", "--as", "x"), 2, "one name cannot be given to 2 environments"),
        (("deps", "--as", "a b"), 2, "bad value --as: an id has 1 to 64"),
        (("deps", "--network", "http://x"), 2, "'http://x' is not the name of a host"),
        (("deps", "--network", "pypi.org", "--sandbox", "0"), 2, 'network = ["pypi.org"] needs tier 2'),
        (("deps", "--base", "nowhere"), 4, "no such commit nowhere"),
        (("--reopen", "review", "--base", "main"), 2, "--reopen goes with neither"),
        (("--reopen", "review", "-n", "2"), 2, "--reopen goes with neither"),
        (("--reopen", "nobody"), 4, "no environment is called nobody"),
        (("--reopen", "a\nb"), 4, "a\\nb"),
        (("nothing",), 4, "nobody said what is in the snapshot nothing"),
    ],
)
def test_mistakes(shop: House, words: tuple[str, ...], code: int, said: str) -> None:
    before = len(shop.tasks())
    done = shop.run("fork", *words)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and "; next: " in done.stderr
    assert len(shop.tasks()) == before


def test_names_are_completed(shop: House) -> None:
    shop.ok("fork", "deps", "--as", "tab", "--", "true")
    ended(shop, "tab")
    for typed, offered in ((("fork", "--reopen", "ta"), "tab"), (("fork", "de"), "deps")):
        env = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["nightcrew", *typed]), "COMP_CWORD": str(len(typed))}
        assert shop.run(env=env).stdout.splitlines() == [f"plain,{offered}"]
