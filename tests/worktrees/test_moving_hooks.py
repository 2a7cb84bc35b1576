"""A branch of the person's moves forward: no hook and no program that the repository configures runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.worktrees.moving_kit import Branch
from worktrees import landing
from worktrees.landing import Moved
from worktrees.merge import ByHand

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


@pytest.fixture
def branch(world: World) -> Branch:
    return Branch(world)


MOVING = ("post-merge", "reference-transaction", "post-index-change")
"""Hooks that `git merge --ff-only` runs."""
HOOKS = (
    "pre-merge-commit", "post-checkout", "pre-push", "pre-commit", "post-commit", "post-rewrite", "commit-msg", "prepare-commit-msg",
    "pre-auto-gc", "update", "pre-receive", "fsmonitor-watchman",
)  # fmt: skip
PROGRAMS = (
    "core.fsmonitor", "core.sshCommand", "filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.external", "gpg.program",
    "core.editor", "core.pager", "credential.helper", "diff.evil.textconv",
)  # fmt: skip


def plant(branch: Branch, *hooks: str) -> Path:
    proof = branch.world.tmp / "ran"
    script = f"#!/bin/sh\necho $0 >> {proof}\n"
    for name in hooks:
        hook = branch.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(0o755)
    evil = branch.world.tmp / "evil"
    evil.write_text(script + "cat\n")
    evil.chmod(0o755)
    for key in PROGRAMS:
        branch.world.sh(branch.root, "config", key, os.fspath(evil))
    proof.unlink(missing_ok=True)
    return proof


@pytest.mark.parametrize("hook", MOVING)
def test_a_hook_that_a_merge_would_run_leaves_it_to_the_person(branch: Branch, hook: str) -> None:
    proof = plant(branch, hook)
    before = branch.state()
    proof.unlink(missing_ok=True)
    done = branch.move()
    assert isinstance(done, ByHand) and hook in done.why
    assert not proof.exists() and branch.stands() == branch.old
    assert done.commands == (f"git -C {branch.root} merge --ff-only {branch.new}",)
    subprocess.run(["sh", "-c", done.commands[0]], check=True, stdout=subprocess.DEVNULL)
    assert hook in proof.read_text() and branch.state() != before
    branch.assert_moved(branch.move())


def test_no_other_hook_and_no_program_runs(world: World, branch: Branch) -> None:
    world.sh(branch.root, "update-ref", "refs/heads/side", branch.old)
    proof = plant(branch, *HOOKS)
    branch.move()
    assert branch.move("side") == Moved(branch.new, None)
    assert "commit-msg" in landing.left_out(branch.repo) and "post-checkout" not in landing.left_out(branch.repo)
    assert not proof.exists()
    for key in PROGRAMS:
        world.sh(branch.root, "config", "--unset", key)
    branch.assert_moved(branch.move())


def test_without_a_checkout_only_the_hook_of_refs_matters(world: World, branch: Branch) -> None:
    plant(branch, "post-merge")
    world.sh(branch.root, "update-ref", "refs/heads/side", branch.old)
    assert branch.move("side") == Moved(branch.new, None)
    plant(branch, "reference-transaction")
    world.sh(branch.root, "-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/side2", branch.old)
    done = branch.move("side2")
    assert isinstance(done, ByHand) and "update-ref" in done.commands[0]


@pytest.mark.parametrize("brought", [False, True])
def test_files_of_a_filter_leave_the_checkout_to_the_person(world: World, branch: Branch, brought: bool) -> None:
    """Whether the attributes were there or come along; a branch that nobody has checked out is moved."""
    if brought:
        top = world.tmp / "more"
        world.sh(branch.root, "worktree", "add", "-q", "--detach", os.fspath(top), branch.new)
        (top / ".gitattributes").write_text("*.txt filter=lfs\n")
        branch.new = world.commit(top, "big.txt")
    else:
        (branch.root / ".git" / "info" / "attributes").write_text("f0.txt filter=lfs\n")
    done = branch.move()
    assert isinstance(done, ByHand) and "filter=lfs" in done.why
    assert branch.stands() == branch.old
    world.sh(branch.root, "switch", "-q", "-c", "other")
    assert branch.move() == Moved(branch.new, None)
