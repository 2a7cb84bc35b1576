"""What a confined agent finds is an ordinary worktree of an ordinary repository, and whatever it does there comes out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.host import untrusted_fs
from supervisor.host.untrusted_fs import remove_tree
from tests.host.test_trees import dig
from tests.worktrees.kinds_of_repositories import PEOPLES, shallow, with_configured_worktrees
from worktrees import changes, commit_work, private_repository
from worktrees.collect_work import publish, secure
from worktrees.environments import Environment, release
from worktrees.removal import remove
from worktrees.repository import discover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.worktrees.conftest import World

    Alive = Callable[[Path], Sequence[int]]


@pytest.fixture
def world(confined: World) -> World:
    return confined


@pytest.fixture
def env(world: World) -> Environment:
    return world.env(world.repo())


def script(world: World, env: Environment, text: str, *more: str) -> list[str]:
    """What a shell of the agent's writes, word by word."""
    return world.run(env.path, "sh", "-euc", f"commit() {{ echo x >>$1; git add $1; git commit -qm $1; }}\n{text}", "sh", *more).split()


def live_on(world: World, env: Environment, alive: Alive, made: Sequence[str]) -> None:
    """Secure; `made` is on rescue refs then; once more; a retry; both go; nothing of it is lost."""
    done = secure(env, "leftover work", always=True)
    assert set(made) <= world.kept(env)
    assert secure(env, "leftover work", always=True) == done
    assert world.sh(env.repo.root, "status", "--porcelain") == ""
    release(env)
    second = world.env(env.repo, epoch=2)
    assert world.sh(second.path, "rev-parse", "HEAD") == env.base
    later = world.commit(second.path, "second.txt")
    assert secure(second, "leftover work", always=True).tip == later
    release(second)
    for each in (env, second):
        remove(each, alive, discard=True)
    world.sh(env.repo.root, "reflog", "expire", "--expire=now", "--all")
    world.sh(env.repo.root, "gc", "-q", "--prune=now")
    assert {*made, later} <= world.kept(env)
    assert world.sh(env.repo.root, "fsck", "--no-dangling") == ""
    assert list((env.repo.common_dir / "worktrees").glob("fix.*")) == [] and not env.path.exists()


# What an agent does

WORK = {
    "status": "git status --porcelain; git log -1 --format=%H >/dev/null; git diff --stat; git blame f0.txt >/dev/null",
    "several stashes": "echo a >f0.txt; git stash -q; echo b >f1.txt; git stash -q; git rev-parse stash@{0} stash@{1}",
    "a branch": "git switch -qc mine; commit b; git rev-parse HEAD; git switch -q -",
    "a tag": "git switch -q --detach; commit t; git tag -am said v9; git tag light HEAD; git rev-parse HEAD; git switch -q -",
    "an amended commit": "commit a; git rev-parse HEAD; git commit -q --amend -m better; git rev-parse HEAD",
    "a rebase": "commit a; commit b; git rev-parse HEAD; git switch -qc side HEAD~2; commit c; git rebase -q side work; git rev-parse HEAD",
    "gc": "commit a; git gc -q --prune=now; git rev-parse HEAD",
    "packed refs": (
        "git switch -qc mine; commit a; git pack-refs --all; git rev-parse HEAD; rm -rf $(git rev-parse --git-common-dir)/logs/*"
    ),
    "notes": "git notes add -m said; git rev-parse refs/notes/commits",
    "a worktree": "git worktree add -q --detach inner; (cd inner; commit w; git rev-parse HEAD)",
    "a worktree with a log": "git worktree add -q inner -b inner; (cd inner; commit w; git rev-parse HEAD; git reset -q --hard HEAD~1)",
    "an orphan": "git switch -q --orphan fresh; commit o; git rev-parse HEAD",
    "a submodule": 'git -c protocol.file.allow=always submodule --quiet add "$1" sub; git commit -qm sub; git rev-parse HEAD',
    "a merge of what was fetched": (
        'git remote add up "$1"; git fetch -q up; git merge -q --allow-unrelated-histories -m both up/main; git rev-parse HEAD'
    ),
    "a bisect": (
        "commit a; commit b; git bisect start HEAD HEAD~2 >/dev/null; git bisect run true >/dev/null; "
        "git bisect reset 2>/dev/null; git rev-parse HEAD"
    ),
    "configuration": "git config user.email agent@example.com; commit a; git log -1 --format=%H --author=agent@example.com",
    "configuration of its worktree": (
        "git config extensions.worktreeConfig true; git config --worktree user.email w@x; commit a; git log -1 --format=%H --author=w@x"
    ),
    "a sparse checkout": "git sparse-checkout set --no-cone /f0.txt /new; commit new; git rev-parse HEAD; test ! -e f1.txt",
    "a cherry-pick and a revert": (
        "commit a; git revert --no-edit HEAD >/dev/null; git cherry-pick HEAD~1 >/dev/null; git rev-parse HEAD HEAD~1"
    ),
    "fsck": "commit a; git fsck --no-dangling; git count-objects >/dev/null; git rev-parse HEAD",
    "repack": "commit a; git repack -qad; git prune; git rev-parse HEAD",
    "deleted its branch": "commit a; git rev-parse HEAD; git switch -q --detach; git branch -qD work",
    "renamed its branch": "commit a; git branch -m other; commit b; git rev-parse HEAD",
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", WORK)
def test_inside_it_is_an_ordinary_worktree_and_its_work_comes_out(world: World, env: Environment, nobody_alive: Alive, name: str) -> None:
    elsewhere = world.make("elsewhere")
    text = WORK[name].replace("side work", f"side {env.branch}").replace("-qD work", f"-qD {env.branch}")
    live_on(world, env, nobody_alive, script(world, env, text, str(elsewhere)))


def test_what_was_only_fetched_is_not_kept_as_its_work(world: World, env: Environment) -> None:
    elsewhere = world.make("elsewhere")
    world.commit(elsewhere, "theirs.txt")
    world.sh(elsewhere, "tag", "v1")
    world.sh(elsewhere, "tag", "-a", "-m", "said", "v2")
    theirs = world.sh(elsewhere, "rev-parse", "HEAD")
    script(world, env, 'git remote add up "$1"; git fetch -q --tags up', str(elsewhere))
    made = world.commit(env.path, "a.txt")
    done = secure(env, "leftover work", always=True)
    assert done.tip == done.rescue == made and theirs not in world.kept(env)


OUTSIDE = ("worktrees/fix.1/commondir", "worktrees/fix.1/gitdir", "hooks/new", "info/exclude", "shared-objects/x")
MEDDLES = """for path; do
echo x >"$path" || { test -e "$path" && rm -f "$path" && test ! -e "$path"; } || mv "$path" "$path.old" || ln -sf /tmp "$path" || continue
echo "$path"
done; true"""


def test_what_leads_outside_cannot_be_written_inside(world: World, env: Environment) -> None:
    paths = [str(path) for path in (env.path / ".git", *(env.repo.common_dir / what for what in OUTSIDE))]
    assert world.run(env.path, "sh", "-c", MEDDLES, "sh", *paths) == ""
    made = world.commit(env.path, "a.txt")
    assert secure(env, "leftover work").tip == made


def test_what_the_agent_sets_and_makes_stays_in_its_own_repository(world: World, env: Environment) -> None:
    common = env.repo.common_dir
    before = {path: path.read_bytes() for path in common.rglob("*") if path.is_file()}
    script(world, env, "git config a.b c; git branch mine; git tag t; commit x; git stash list; git gc -q; git notes add -m n")
    assert {path: path.read_bytes() for path in common.rglob("*") if path.is_file()} == before


# Refs as they were


def loose(world: World, root: Path) -> None:
    world.sh(root, "branch", "deep/er/one")
    world.sh(root, "tag", "-a", "-m", "said", "v1")


def packed(world: World, root: Path) -> None:
    loose(world, root)
    world.sh(root, "pack-refs", "--all")
    world.commit(root, "later.txt")
    world.sh(root, "branch", "-f", "deep/er/one")


def symbolic(world: World, root: Path) -> None:
    world.sh(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    world.sh(root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    world.sh(root, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    world.sh(root, "pack-refs", "--all")


def odd(world: World, root: Path) -> None:
    for name in (b"caf\xe9/x", "weiß/ü".encode(), b'"q"/$HOME', b"a.b/@/c%20d", b"x'y&z;w|", b"-", b"refs/heads/main"):
        subprocess.run(["git", "update-ref", b"refs/heads/" + name, "HEAD"], cwd=root, check=True)
    subprocess.run(["git", "pack-refs", "--all"], cwd=root, check=True)
    subprocess.run(["git", "update-ref", b"refs/tags/caf\xe9/y", "HEAD"], cwd=root, check=True)


def tag_of_a_tag(world: World, root: Path) -> None:
    world.sh(root, "tag", "-a", "-m", "one", "inner")
    world.sh(root, "tag", "-a", "-m", "two", "outer", "inner")
    world.sh(root, "tag", "-a", "-m", "a tree", "tree", "HEAD^{tree}")
    world.sh(root, "tag", "blob", "HEAD:f0.txt")
    world.sh(root, "pack-refs", "--all")


def detached(world: World, root: Path) -> None:
    world.sh(root, "switch", "-q", "--detach")


def many(count: int) -> Callable[[World, Path], None]:
    def write(world: World, root: Path) -> None:
        head = world.sh(root, "rev-parse", "HEAD")
        lines = sorted(f"{head} refs/tags/t{number}\n" for number in range(count))
        (root / ".git" / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))

    return write


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "make",
    [
        loose,
        packed,
        symbolic,
        odd,
        tag_of_a_tag,
        detached,
        pytest.param(many(2000), id="2,000"),
        pytest.param(many(100_000), id="100,000", marks=pytest.mark.soak),
    ],
)
def test_the_refs_are_those_of_the_start(world: World, nobody_alive: Alive, make: Callable[[World, Path], None]) -> None:
    repo = world.repo()
    world.commit(repo.root, "more.txt")
    make(world, repo.root)
    env = world.env(discover(world.git, repo.root))

    def refs(where: Path) -> set[str]:
        form = "%(objectname) %(refname) %(symref) %(*objectname) %(objecttype)"
        rows = world.sh(where, "for-each-ref", f"--format={form}").splitlines()
        return {row for row in rows if f" {env.branch_ref} " not in row}

    assert refs(env.path) == refs(repo.root)
    assert world.sh(env.path, "rev-parse", env.branch) == env.base
    assert "fatal" not in world.sh(env.path, "fsck", "--no-dangling") + world.sh(env.path, "describe", "--all")
    live_on(world, env, nobody_alive, [world.commit(env.path, "a.txt")])


# A person's repository of another kind


def work(world: World, env: Environment) -> list[str]:
    """Two commits, one of them published; a stash; a leftover file."""
    made = [world.commit(env.path, "a.txt")]
    assert publish(env) == made[0] == world.sh(env.repo.root, "rev-parse", env.branch)
    assert world.sh(env.repo.root, "-C", os.fspath(env.path), "rev-parse", "HEAD") == made[0]
    (env.path / "a.txt").write_text("stashed\n")
    world.sh(env.path, "stash", "-q")
    made += [world.sh(env.path, "rev-parse", "stash"), world.commit(env.path, "b.txt")]
    (env.path / "left.txt").write_text("left\n")
    return made


@pytest.mark.one_in(5)
@pytest.mark.parametrize("make", PEOPLES)
def test_repositories_of_every_kind(world: World, nobody_alive: Alive, make: Callable[[World, Path], Path]) -> None:
    repo = discover(world.git, make(world, world.tmp / "repo"))
    env = world.env(repo)
    ours = {"user.email": "", "nightcrew-test.value": "", "core.autocrlf": "", "core.sharedrepository": ""}
    for key in ours:
        if make is not with_configured_worktrees:  # what is of the person's own checkout is not of the agent's
            assert world.sh(env.path, "config", key, ok=False) == world.sh(repo.root, "config", key, ok=False)
    assert world.sh(env.path, "log", "--format=%H") == world.sh(repo.root, "log", "--format=%H")
    live_on(world, env, nobody_alive, work(world, env))


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    "name",
    [
        b"- new\nline co:lon caf\xe9 q\"uo'te back\\slash $HOME *?[a] x\t\x01 " + "ü ".encode(),
        b"with space",
        b"new\nline",
        b"co:lon",
        b"caf\xe9",
        b"q\"uo'te",
        b"back\\slash",
        b"$HOME",
        b"*?[a]",
        b"-dash",
        b" ",
        b"x\t\x01",
        "ü".encode(),
    ],
)
def test_paths_of_every_kind(world: World, nobody_alive: Alive, name: bytes) -> None:
    path = world.make(os.fsdecode(name) + "/repo")
    world.tmp = path.parent  # the worktrees lie there too
    env = world.env(discover(world.git, path))
    live_on(world, env, nobody_alive, work(world, env))


def test_a_shallow_repository_that_is_deepened_meanwhile(world: World, nobody_alive: Alive) -> None:
    repo = discover(world.git, shallow(world, world.tmp / "repo"))
    env = world.env(repo)
    made = work(world, env)
    world.sh(repo.root, "fetch", "-q", "--unshallow")
    live_on(world, env, nobody_alive, made)


def test_refs_that_lie_deep_are_not_looked_for_from_the_top_each(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    levels, steps = 1500, 0
    assert env.private is not None
    dig(env.private / "refs" / "heads", levels)
    beneath = untrusted_fs._beneath

    def counted(top: int, below: str, *, make: bool) -> int:
        nonlocal steps
        steps += len(below.split("/"))
        return beneath(top, below, make=make)

    monkeypatch.setattr(untrusted_fs, "_beneath", counted)
    try:
        commit_work.read(env.private, "")
        commit_work.unlock(env.private)
        changes.disarm_repository(replace(env, repo=replace(env.repo, common_dir=env.private)))
    finally:
        remove_tree(env.private / "refs")  # deeper than pytest can clear away
    assert steps < levels, "of each directory by its path there would be a million"


def test_the_persons_objects_are_named_by_a_whole_path() -> None:
    """GitPython's own object store, which aider reads with, takes a relative one for a path below the current directory."""
    assert private_repository.alternates(Path("/a b/.git")) == b"/a b/.git/shared-objects\n"
    assert private_repository.alternates(Path("/a\nb/.git")) == b"../shared-objects\n"
