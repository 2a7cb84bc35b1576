"""An agent in tier 0 can write the repository's configuration, its hooks and what it has beside them: of that nothing runs in a push,
and nothing sends it elsewhere. Plain git does run it, which proves the traps."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cli.pulls.conftest import Person
from tests.support import git

TRAPS = """
[core]
	sshCommand = {touch}
	askPass = {touch}
	gitProxy = {touch}
	fsmonitor = {touch}
	hooksPath = {hooks}
	alternateRefsCommand = {touch}
	pager = {touch}
[credential]
	helper = !{touch}
[credential "http://127.0.0.1"]
	helper = !{touch}
[http]
	proxy = http://127.0.0.1:9
[url "ext::{touch} "]
	pushInsteadOf = http://
[url "file://{elsewhere}/"]
	insteadOf = http://
[remote "origin"]
	receivepack = {touch}
	proxy = http://127.0.0.1:9
	push = +refs/*:refs/*
	mirror = true
[push]
	followTags = true
	gpgSign = true
	recurseSubmodules = on-demand
	pushOption = canary
[gpg]
	program = {touch}
[include]
	path = {included}
[alias]
	push = !{touch}
[protocol "ext"]
	allow = always
[submodule]
	recurse = true
"""


def test_nothing_of_the_repository_runs_and_nothing_goes_elsewhere(person: Person) -> None:
    house, root = person.house, person.root / "traps"
    root.mkdir()
    canary, hooks, included = root / "canary", root / "hooks", root / "included"
    touch = root / "touch"
    touch.write_text(f'#!/bin/sh\necho "$0 $*" >> {canary}\n')
    touch.chmod(0o755)
    hooks.mkdir()
    for place in (hooks, house.repo / ".git" / "hooks"):
        for hook in ("pre-push", "reference-transaction", "post-checkout"):
            (place / hook).unlink(missing_ok=True)
            (place / hook).symlink_to(touch)
    included.write_text(f"[core]\n\tsshCommand = {touch}\n")
    config = house.repo / ".git" / "config"
    kept = config.read_text()
    before = git(person.bare, "for-each-ref")
    traps = TRAPS.format(touch=touch, hooks=hooks, included=included, elsewhere=root / "elsewhere")
    config.write_text(kept + traps)
    try:
        plain = {**os.environ, **person.env, "GIT_TERMINAL_PROMPT": "0"}
        subprocess.run(["git", "-C", str(house.repo), "push", "origin"], env=plain, check=False, capture_output=True)
        assert canary.exists(), "the traps are armed"
        canary.unlink()
        config.write_text(f'{kept}{traps}[remote "origin"]\n\tvcs = evil\n')
        done = person.pr("mul", "--yes", "--branch", "hostile")
        assert done.returncode == 0, done.stderr
        assert "of no effect" in done.stderr and "core.sshcommand" in done.stderr and "pre-push" in done.stderr
    finally:
        config.write_text(kept)
        for hook in ("pre-push", "reference-transaction", "post-checkout"):
            (house.repo / ".git" / "hooks" / hook).unlink()
    assert not canary.exists(), canary.read_text()
    tip = git(house.repo, "rev-parse", str(house.task("mul").branch))
    assert set(git(person.bare, "for-each-ref").splitlines()) - set(before.splitlines()) == {f"{tip} commit\trefs/heads/hostile"}


def test_an_ssh_of_the_repository_is_not_run_and_the_persons_is(person: Person) -> None:
    house, root = person.house, person.root
    mine, theirs = root / "my-ssh", root / "their-ssh"
    for program in (mine, theirs):
        program.write_text(f'#!/bin/sh\ntouch {program}.ran\nshift $(($# - 1))\neval "exec $1"\n')
        program.chmod(0o755)
    git(house.repo, "remote", "add", "ssh", f"ssh://git@127.0.0.1{person.bare}")
    git(house.repo, "config", "core.sshCommand", str(theirs))
    included = root / "included-by-the-person"
    included.write_text(f"[core]\n\tsshCommand = {mine}\n")
    kept = person.config.read_text()
    person.config.write_text(f'{kept}[includeIf "gitdir:{house.repo}/"]\n\tpath = {included}\n')
    try:
        done = person.pr("mul", "--yes", "--remote", "ssh", "--branch", "by-ssh")
        assert done.returncode == 0, done.stderr
    finally:
        person.config.write_text(kept)
        git(house.repo, "remote", "remove", "ssh")
        git(house.repo, "config", "--unset", "core.sshCommand")
    assert person.there("by-ssh") and Path(f"{mine}.ran").exists() and not Path(f"{theirs}.ran").exists()
