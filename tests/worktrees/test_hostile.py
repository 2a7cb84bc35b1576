"""X05 for this room: wherever a command is configured, no public function runs it. Plain git does, which proves the traps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NightcrewError, Refused
from worktrees.collect_work import publish, secure, snapshot
from worktrees.environments import Environment, create, open_env, release
from worktrees.git import Git
from worktrees.landing import take
from worktrees.merge import ByHand, diff
from worktrees.private_repository import config_guard
from worktrees.removal import forget, inspect, remove
from worktrees.repository import Repository, discover, resolve

if TYPE_CHECKING:
    from .conftest import World

HOOKS = (
    "applypatch-msg", "commit-msg", "post-checkout", "post-commit", "post-index-change", "post-merge", "post-rewrite", "pre-auto-gc",
    "pre-commit", "pre-merge-commit", "prepare-commit-msg", "reference-transaction",
)  # fmt: skip

TRAPS = """
[core]
	fsmonitor = {touch}
	hooksPath = {hooks}
	pager = {touch}
	editor = {touch}
	sshCommand = {touch}
	askPass = {touch}
	gitProxy = {touch}
	alternateRefsCommand = {touch}
[filter "evil"]
	clean = {touch}
	smudge = {touch}
	required = true
[filter "a=b"]
	process = {touch}
[diff]
	external = {touch}
[diff "evil"]
	command = {touch}
	textconv = {touch}
[merge "evil"]
	driver = {touch}
[gpg]
	program = {touch}
[gpg "ssh"]
	program = {touch}
	defaultKeyCommand = {touch}
[commit]
	gpgSign = true
[log]
	showSignature = true
[credential]
	helper = !{touch}
[alias]
	status = !{touch}
	read-tree = !{touch}
[pager]
	diff = {touch}
	log = {touch}
[sequence]
	editor = {touch}
[uploadpack]
	packObjectsHook = {touch}
[submodule]
	recurse = true
[url "ext::{touch} "]
	insteadOf = https://
[remote "origin"]
	url = https://example.invalid/x
	promisor = true
	vcs = evil
	uploadpack = {touch}
[extensions]
	partialClone = origin
"""
ATTRIBUTES = "*.txt filter=evil diff=evil merge=evil\n*.bin filter=a=b\n"

Alive = Callable[[Path], Sequence[int]]


class Trap:
    """A canary that sings when any of the configured commands runs."""

    def __init__(self, tmp: Path) -> None:
        self.canary = tmp / "CANARY"
        self.touch = tmp / "touch.sh"
        self.touch.write_text(f"#!/bin/sh\ntouch {self.canary}\ncat\n")
        self.touch.chmod(0o755)
        self.hooks = tmp / "evil-hooks"
        self.hooks.mkdir()
        for name in HOOKS:
            shutil.copy(self.touch, self.hooks / name)
        self.text = TRAPS.format(touch=self.touch, hooks=self.hooks)
        self.file = tmp / "evil.config"
        self.file.write_text(self.text)
        self.late = tmp / "late.config"

    def sang(self) -> bool:
        return self.canary.exists()


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    made = Trap(tmp_path)
    for name in ("PAGER", "EDITOR", "VISUAL", "SSH_ASKPASS", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_ASKPASS"):
        monkeypatch.setenv(name, str(made.touch))
    return made


def _in_config(repo: Repository, trap: Trap, admin: Path) -> None:
    with (repo.common_dir / "config").open("a") as file:
        file.write(trap.text)


def _in_the_worktrees_own_config(repo: Repository, trap: Trap, admin: Path) -> None:
    with (repo.common_dir / "config").open("a") as file:
        file.write("[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (admin / "config.worktree").write_text(trap.text)


def _in_an_include_for_our_branches(repo: Repository, trap: Trap, admin: Path) -> None:
    with (repo.common_dir / "config").open("a") as file:
        file.write(f'[includeIf "onbranch:nightcrew/"]\n\tpath = {trap.file}\n')


def _in_an_include_that_comes_later(repo: Repository, trap: Trap, admin: Path) -> None:
    with (repo.common_dir / "config").open("a") as file:
        file.write(f"[include]\n\tpath = {trap.late}\n")


def _in_hooks(repo: Repository, trap: Trap, admin: Path) -> None:
    shutil.copytree(trap.hooks, repo.common_dir / "hooks", dirs_exist_ok=True)


def _at_home(repo: Repository, trap: Trap, admin: Path) -> None:
    with (Path.home() / ".gitconfig").open("a") as file:
        file.write(trap.text)


ROUTES = [_in_config, _in_the_worktrees_own_config, _in_an_include_for_our_branches, _in_an_include_that_comes_later, _in_hooks, _at_home]


def _work(world: World, path: Path, trap: Trap) -> None:
    """What an agent leaves: changed and new files, two repositories inside that are traps themselves, one of them a gitlink."""
    (path / "f0.txt").write_text("changed\n")
    (path / "new.txt").write_text("new\n")
    (path / "new.bin").write_bytes(b"\0new")
    for name in ("nested", "linked"):
        world.sh(path, "init", "-q", name)
        world.commit(path / name, ".gitattributes", "* filter=inner\n")
        world.commit(path / name, "inner.txt", "one\n")
        (path / name / "inner.txt").write_text("two\n")  # of the same size: git must look inside, through the filter
        with (path / name / ".git" / "config").open("a") as file:
            file.write(trap.text + f'[filter "inner"]\n\tclean = {trap.touch}\n')
        shutil.copytree(trap.hooks, path / name / ".git" / "hooks", dirs_exist_ok=True)
    oid = (path / "linked" / ".git" / "refs" / "heads" / "main").read_text().strip()
    world.sh(path, "update-index", "--add", "--cacheinfo", f"160000,{oid},linked")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__.strip("_"))
def test_no_public_function_runs_what_somebody_configured(
    world: World, trap: Trap, nobody_alive: Alive, route: Callable[[Repository, Trap, Path], None]
) -> None:
    path = world.make()
    world.commit(path, ".gitattributes", ATTRIBUTES)
    base = world.commit(path, "b.bin", "\0")
    repo = discover(world.git, path)
    ready = create(repo, "r1/ready", 1, base, world.root)
    _work(world, ready.path, trap)
    assert not trap.sang()
    route(repo, trap, ready.admin_dir)

    repo = discover(Git(world.tmp / "state"), path)
    resolve(repo, "main")
    config_guard(repo)
    shutil.copy(trap.file, trap.late)
    env = create(repo, "r1/fix", 1, base, world.root)
    (env.path / "f1.txt").write_text("ours\n")
    with open_env(ready):
        pass
    for one in (ready, env):
        snapshot(one, "as it was")
        done = secure(one, "left", {"Key": "value"}, always=True)
        diff(repo, base, done.tip)
        diff(repo, base, done.tip, stat=True)
        assert isinstance(take(repo, one.branch), ByHand)
        release(one)
        inspect(one, nobody_alive)
        with pytest.raises(Refused):
            remove(one, nobody_alive)
    create(repo, "r1/fix", 2, base, world.root)
    remove(ready, nobody_alive, discard=True)
    shutil.rmtree(env.path)
    forget(env)
    assert not trap.sang()


def test_a_merge_that_is_ours_to_make_runs_nothing_either(world: World, trap: Trap) -> None:
    """No filter on the changed files, no hook and no signing: `take` merges, past every other trap."""
    repo = world.repo()
    env = world.env(repo)
    world.commit(env.path, "theirs.txt")
    world.commit(repo.root, "mine.txt")
    text = trap.text.replace(f"hooksPath = {trap.hooks}", "").replace("gpgSign = true", "")
    with (repo.common_dir / "config").open("a") as file:
        file.write(text)
    take(discover(world.git, repo.root), env.branch)
    assert (repo.root / "theirs.txt").exists()
    assert not trap.sang()


def test_a_missing_object_is_not_fetched(world: World, trap: Trap) -> None:
    repo = world.repo()
    blob = world.sh(repo.root, "rev-parse", "HEAD:f1.txt")
    (repo.common_dir / "objects" / blob[:2] / blob[2:]).unlink()
    _in_config(repo, trap, repo.common_dir)
    with pytest.raises(NightcrewError):
        world.env(repo)
    assert not trap.sang()


@pytest.mark.parametrize("verb", ["status", "add", "diff", "commit", "log", "worktree", "nested"])
def test_the_traps_do_work_under_plain_git(world: World, trap: Trap, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.make()
    world.commit(path, ".gitattributes", ATTRIBUTES)
    if verb == "nested":
        _work(world, path, trap)
    else:
        with (path / ".git" / "config").open("a") as file:
            file.write(trap.text.replace("partialClone = origin", ""))
        (path / "f0.txt").write_text("changed\n")
    monkeypatch.delenv("GIT_EXTERNAL_DIFF", raising=False)
    argv = {
        "status": ["status"], "add": ["add", "-A"], "diff": ["diff"], "commit": ["commit", "-qam", "x"], "log": ["log", "-p", "--textconv"],
        "worktree": ["worktree", "add", os.fspath(world.tmp / "w")], "nested": ["add", "-A"],
    }  # fmt: skip
    world.sh(path, *argv[verb], ok=False)
    assert trap.sang()


def _in_its_own_config(world: World, env: Environment, trap: Trap) -> None:
    with world.own(env, env.repo.common_dir / "config").open("a") as file:
        file.write(trap.text)


def _in_its_own_worktree_config(world: World, env: Environment, trap: Trap) -> None:
    with world.own(env, env.repo.common_dir / "config").open("a") as file:
        file.write("[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true\n")
    world.own(env, env.admin_dir / "config.worktree").write_text(trap.text)


def _in_an_include(world: World, env: Environment, trap: Trap) -> None:
    with world.own(env, env.repo.common_dir / "config").open("a") as file:
        file.write(f'[includeIf "onbranch:nightcrew/"]\n\tpath = {trap.file}\n')


def _in_hooks_beside(world: World, env: Environment, trap: Trap) -> None:
    """Its `hooks` are the person's, read-only; the configuration can name others."""
    shutil.copytree(trap.hooks, env.path / "hooks")
    with world.own(env, env.repo.common_dir / "config").open("a") as file:
        file.write(f"[core]\n\thooksPath = {env.path / 'hooks'}\n")


OWN_ROUTES = [_in_its_own_config, _in_its_own_worktree_config, _in_an_include, _in_hooks_beside]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", OWN_ROUTES, ids=lambda route: route.__name__.strip("_"))
def test_nothing_that_a_confined_agent_configured_runs_where_its_work_is_looked_at(
    confined: World, nobody_alive: Alive, route: Callable[[World, Environment, Trap], None]
) -> None:
    """There, in its sandbox, it could still choose what is handed over. Its own git runs it, which proves the traps."""
    world = confined
    path = world.make()
    base = world.commit(path, ".gitattributes", ATTRIBUTES)
    trap = Trap(world.tmp)
    env = world.env(discover(world.git, path), base=base)
    trap.canary = env.path / "CANARY"  # the only place where anything in the sandbox can write
    for script in (trap.touch, *trap.hooks.iterdir()):
        script.write_text(f"#!/bin/sh\ntouch {trap.canary}\ncat\n")
    route(world, env, trap)
    (env.path / "f0.txt").write_text("changed\n")
    world.sh(env.path, "commit", "-qam", "by the agent itself", ok=False)
    assert trap.sang(), "the trap must work, or it proves nothing"
    trap.canary.unlink()
    (env.path / "f0.txt").write_text("changed again\n")
    publish(env)
    inspect(env, nobody_alive)
    assert not trap.sang()
    snapshot(env, "as it was")
    done = secure(env, "left", always=True)
    assert done.tip != base and not trap.sang()
    release(env)
    with pytest.raises(Refused):
        remove(env, nobody_alive)
    assert not trap.sang()
