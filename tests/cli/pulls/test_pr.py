"""`nightcrew pr`: what leaves the machine, where to, and only when."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.pulls.conftest import WORK, Person
from tests.support import git, plan_of, shell_task, wait_until


def tip(person: Person, name: str = "mul") -> str:
    return git(person.house.repo, "rev-parse", str(person.house.task(name).branch))


def test_nothing_is_pushed_before_the_person_agreed_and_then_exactly_one_branch_is(person: Person) -> None:
    house, bare = person.house, person.server.make(person.house.repo, "owner/first")
    git(house.repo, "tag", "a-tag")
    git(house.repo, "remote", "add", "first", person.server.url("owner/first"))
    branch, before = "nightcrew/mul", git(bare, "for-each-ref")
    try:
        done = person.pr("mul", "--remote", "first")
        assert done.returncode == 8 and "--yes" in done.stderr and git(bare, "for-each-ref") == before
        assert "the message of a commit would close #7" in done.stderr
        said = person.ok("mul", "--yes", "--remote", "first")
        assert (said["pushed"], said["commit"], said["branch"], said["remote"]) == (
            True,
            tip(person),
            branch,
            person.server.url("owner/first"),
        )
        assert set(git(bare, "for-each-ref").splitlines()) == {*before.splitlines(), f"{tip(person)} commit\trefs/heads/{branch}"}
        assert not person.ok("mul", "--remote", "first")["pushed"]
        git(house.repo, "remote", "set-url", "first", person.server.url("owner/second"))
        assert person.pr("mul", "--remote", "first").returncode == 8, "another URL asks again"
    finally:
        git(house.repo, "remote", "remove", "first")


def test_a_dry_run_and_what_is_refused_push_nothing(person: Person) -> None:
    before = git(person.bare, "for-each-ref")
    done = person.pr("mul", "--dry-run", "--branch", "dry")
    assert done.returncode == 0 and "Nightcrew-Task" in done.stderr
    for words, code, why in [
        (("idle",), 6, "no commit that its base lacks"),
        (("bad",), 6, "it is failed"),
        (("mul", "--branch", "main", "--yes"), 6, "that is the branch that it is to be merged into"),
        (("mul", "--branch", "a..b"), 6, "not the name of a branch"),
        (("mul", "--branch", "-f"), 6, "not the name of a branch"),
        (("mul", "--branch", "refs/heads/x"), 6, "not the name of a branch"),
        (("mul", "--remote", "gone"), 4, "there are origin"),
        (("mul", "--branch", "x", "--with", "gh", "--remote", "gone"), 4, "no remote"),
        (("gone",), 4, ""),
    ]:
        done = person.pr(*words)
        assert done.returncode == code and why in done.stderr, (words, done.stderr)
    assert git(person.bare, "for-each-ref") == before
    person.house.ok("review", "mul", "--reject", "-m", "too slow")
    try:
        assert "it was rejected: too slow" in person.pr("mul").stderr
        assert person.ok("mul", "--yes", "--force", "--branch", "forced")["pushed"]
    finally:
        person.house.ok("review", "mul", "--undo")
    assert person.ok("bad", "--yes", "--force", "--branch", "bad")["pushed"]


def test_a_candidate_that_nobody_chose_stays(person: Person) -> None:
    house = person.house
    house.ok("run", "-d", house.plan(plan_of([shell_task("pick", WORK, best_of=2)]), "pick.toml"))
    try:
        wait_until(lambda: house.state("pick-1") == "done", "a candidate to end")
        done = person.pr("pick-1", "--yes")
        assert done.returncode == 6 and "nobody has chosen" in done.stderr
        assert person.ok("pick-1", "--yes", "--force", "--branch", "pick")["pushed"]
    finally:
        house.ok("kill", "pick")


@pytest.mark.parametrize("branch", ["ünïcode/ö", "a'b$(touch${IFS}x);&|", "x" * 200])
def test_odd_names_of_branches(person: Person, branch: str) -> None:
    assert person.ok("mul", "--yes", "--branch", branch)["branch"] == branch
    assert person.there(branch) == tip(person)


def test_a_name_that_git_would_complete_is_pushed_nowhere(person: Person) -> None:
    other = git(person.bare, "rev-parse", "main")
    for ref in ("refs/heads/refs/heads/short", "refs/tags/refs/heads/tagged"):
        git(person.bare, "update-ref", ref, other)
        done = person.pr("mul", "--yes", "--branch", ref.rpartition("/")[2])
        assert done.returncode == 6 and f"the remote has {ref}" in done.stderr and git(person.bare, "rev-parse", ref) == other


def test_what_others_pushed_is_never_overwritten(person: Person) -> None:
    other = git(person.bare, "rev-parse", "main")
    git(person.bare, "update-ref", "refs/heads/theirs", other)
    done = person.pr("mul", "--yes", "--branch", "theirs")
    assert done.returncode == 6 and "not what we pushed" in done.stderr and person.there("theirs") == other
    person.ok("mul", "--yes", "--branch", "moved")
    git(person.bare, "update-ref", "refs/heads/moved", other)
    done = person.pr("mul", "--branch", "moved")
    assert done.returncode == 6 and "somebody else pushed to it" in done.stderr and person.there("moved") == other
    git(person.bare, "update-ref", "refs/heads/moved", tip(person))
    branch, old = str(person.house.task("mul").branch), tip(person)
    newer = git(person.house.repo, "commit-tree", f"{old}^{{tree}}", "-p", f"{old}~1", "-m", "again, rewritten")
    git(person.house.repo, "update-ref", f"refs/heads/{branch}", newer)
    try:
        assert person.ok("mul", "--branch", "moved")["pushed"], "what we pushed ourselves may be replaced"
        assert person.there("moved") == newer
        done = person.pr("second", "--branch", "moved")
        assert done.returncode == 6 and "holds the work of" in done.stderr and person.there("moved") == newer
    finally:
        git(person.house.repo, "update-ref", f"refs/heads/{branch}", old)


def test_a_remote_that_declines_or_is_not_there_is_said_in_its_own_words(person: Person) -> None:
    hook = person.bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'branches need a ticket \033[2J' >&2\nexit 1\n")
    hook.chmod(0o755)
    try:
        done = person.pr("mul", "--yes", "--branch", "declined")
    finally:
        hook.unlink()
    assert done.returncode == 6 and "branches need a ticket \\x1b[2J" in done.stderr and "pre-receive hook declined" in done.stderr
    assert person.ok("mul", "--branch", "declined")["pushed"], "and then it is pushed"
    git(person.bare, "config", "receive.denyNonFastForwards", "true")
    missing = person.server.url("owner/missing")
    for name, url, why in [
        ("missing", missing, "not found"), ("nowhere", f"file://{person.root}/nowhere", "does not appear to be a git repository"),
        ("refuses", "http://127.0.0.1:9/x/y.git", "connect"), ("runs", "ext::sh -c 'touch canary' %S", "may run any command"),
    ]:  # fmt: skip
        git(person.house.repo, "remote", "add", name, url)
        done = person.pr("mul", "--yes", "--remote", name, "--branch", "x")
        git(person.house.repo, "remote", "remove", name)
        assert done.returncode in (1, 6) and why in done.stderr and "next: " in done.stderr, done.stderr
    done = person.pr("mul", "--yes", "--branch", "x", env={"GIT_CONFIG_GLOBAL": os.devnull})
    assert done.returncode == 1 and "credential helper" in done.stderr and not person.there("x")


def test_a_directory_and_a_password_in_the_url(person: Person) -> None:
    local = person.root / "local.git"
    shutil.copytree(person.bare, local)
    git(person.house.repo, "remote", "add", "local", str(local))
    with_password = person.server.url().replace("http://", "http://someone:canary-pa55word-of-the-person@")
    git(person.house.repo, "remote", "add", "written", with_password)
    try:
        assert person.ok("mul", "--yes", "--remote", "local", "--branch", "x")["remote"] == str(local)
        assert git(local, "rev-parse", "x") == tip(person)
        done = person.pr("mul", "--remote", "written", "--branch", "by-password", env={"GIT_CONFIG_GLOBAL": os.devnull})
        assert done.returncode == 0 and person.there("by-password") == tip(person)
        assert "canary" not in done.stdout + done.stderr
    finally:
        git(person.house.repo, "remote", "remove", "local")
        git(person.house.repo, "remote", "remove", "written")


def test_where_the_branch_of_the_checkout_goes_is_the_default(person: Person) -> None:
    house = person.house
    upstream = person.server.make(house.repo, "owner/upstream")
    git(house.repo, "remote", "add", "upstream", person.server.url("owner/upstream"))
    git(house.repo, "config", "branch.main.remote", "upstream")
    git(house.repo, "config", "branch.main.merge", "refs/heads/trunk")
    try:
        said = person.ok("mul", "--yes", "--branch", "tracked")
        assert said["base"] == "trunk" and git(upstream, "rev-parse", "tracked") == tip(person)
    finally:
        git(house.repo, "remote", "remove", "upstream")


def test_two_at_once_push_once(person: Person) -> None:
    with ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(lambda _: person.pr("mul", "--yes", "--branch", "both").returncode, range(3)))
    assert 0 in codes and set(codes) <= {0, 6} and person.there("both") == tip(person)


def test_no_credential_is_in_the_state_or_in_what_was_started(person: Person) -> None:
    person.install("gh")
    person.ok("mul", "--yes", "--branch", "leaks", "--with", "gh")
    canaries = (b"canary-pa55word", b"canary-gh-token", b"canary-glab-token")
    looked = 0
    for file in filter(Path.is_file, person.house.home.root.rglob("*")):
        data = file.read_bytes()
        looked += 1
        assert not any(canary in data for canary in canaries), file
    assert looked > 20 and not any(canary in person.log.read_bytes() for canary in canaries)
