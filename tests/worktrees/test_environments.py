"""R01, S05, S17, I05, I06, and a crash at any step."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import DiskFull, NotFound, Refused, Tampered, ToolFailed
from tests.worktrees.killing import died_at
from worktrees import removal
from worktrees.environments import Environment, create, environment_path, is_locked, open_env, release
from worktrees.git import Git
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


def test_a_worktree_on_its_own_branch_locked_and_clean(world: World) -> None:
    repo = world.repo()
    env = world.env(repo)
    assert env.path == world.root / "r1" / "fix.1"
    assert world.sh(env.path, "status", "--porcelain") == ""
    assert world.sh(env.path, "rev-parse", "--abbrev-ref", "HEAD") == "nightcrew/r1/fix/work"
    assert (env.path / "f1.txt").read_text() == "1\n" * 5
    assert "locked nightcrew: r1/fix:1 works here" in world.sh(repo.root, "worktree", "list", "--porcelain")
    release(env)
    assert not is_locked(env)
    with open_env(env) as seen:
        assert seen == env


def test_again_is_the_same_worktree_with_the_agents_work_in_it(world: World) -> None:
    repo = world.repo()
    env = world.env(repo)
    (env.path / "new.txt").write_text("work")
    assert world.env(repo) == env
    release(env)
    assert world.env(repo) == env
    assert (env.path / "new.txt").read_text() == "work"


@pytest.mark.parametrize("count", [20, 50])
def test_parallel_creates_from_a_remote_branch_all_succeed(world: World, count: int) -> None:
    origin = world.make("origin", files=5)
    world.sh(world.tmp, "clone", "-q", str(origin), "clone")
    repo = discover(world.git, world.tmp / "clone")
    base = world.sh(repo.root, "rev-parse", "origin/main")
    before = (repo.common_dir / "config").read_bytes()
    doors = [world.git, Git(world.tmp / "state")]  # as two processes of ours would have
    repos = [discover(door, repo.root) for door in doors]

    def one(number: int) -> Environment:
        return create(repos[number % 2], f"r1/t{number}", 1, base, world.root)

    with ThreadPoolExecutor(count) as pool:
        made = list(pool.map(one, range(count)))
    assert len({env.admin_dir for env in made}) == count
    assert all((env.path / "f4.txt").exists() for env in made)
    assert len(world.sh(repo.root, "for-each-ref", "refs/heads/nightcrew").splitlines()) == count
    assert (repo.common_dir / "config").read_bytes() == before
    assert world.sh(repo.root, "fsck") == ""


def test_names_that_differ_by_one_character_do_not_collide(world: World) -> None:
    repo = world.repo()
    tasks = ["r1/a-b", "r1/a_b", "r1/agent-1", "r1/agent-10", "r1-a/b", "r1/fix"]
    made = [world.env(repo, task) for task in tasks] + [world.env(repo, "r1/fix", 11)]
    assert len({env.path for env in made}) == len({env.admin_dir for env in made}) == len(made)


# --- a crash, or a full disk, at any step ------------------------------------------------------------------------------


def _stage_branch(world: World, repo: Repository, path: Path, admin: Path) -> None:
    world.sh(repo.root, "update-ref", "refs/heads/nightcrew/r1/fix/work", repo.head)


def _stage_locked(world: World, repo: Repository, path: Path, admin: Path) -> None:
    _stage_branch(world, repo, path, admin)
    admin.mkdir(parents=True)
    (admin / "locked").write_text("nightcrew is making r1/fix:1")


def _stage_directory(world: World, repo: Repository, path: Path, admin: Path) -> None:
    _stage_locked(world, repo, path, admin)
    path.mkdir(parents=True)


def _stage_gitdir(world: World, repo: Repository, path: Path, admin: Path) -> None:
    _stage_directory(world, repo, path, admin)
    (admin / "gitdir").write_text(f"{path}/.git\n")


def _stage_link(world: World, repo: Repository, path: Path, admin: Path) -> None:
    _stage_gitdir(world, repo, path, admin)
    (path / ".git").write_text(f"gitdir: {admin}\n")


def _stage_half_populated(world: World, repo: Repository, path: Path, admin: Path) -> None:
    _stage_link(world, repo, path, admin)
    (admin / "commondir").write_text("../..\n")
    (admin / "HEAD").write_text("ref: refs/heads/nightcrew/r1/fix/work\n")
    (admin / "index.lock").write_text("")
    (path / "f0.txt").write_text("ha")


STAGES = [_stage_branch, _stage_locked, _stage_directory, _stage_gitdir, _stage_link, _stage_half_populated]


@pytest.mark.parametrize("stage", STAGES)
def test_a_half_made_worktree_is_made_anew(world: World, stage: object) -> None:
    repo = world.repo()
    path, admin = environment_path(world.root, "r1/fix", 1), repo.common_dir / "worktrees" / "fix.1"
    assert callable(stage)
    stage(world, repo, path, admin)
    env = world.env(repo)
    assert world.sh(env.path, "status", "--porcelain") == ""
    assert (env.path / "f0.txt").read_text() == "0\n" * 5
    assert world.sh(repo.root, "worktree", "list", "--porcelain").count("worktree ") == 2


@pytest.mark.parametrize("stride", [14, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("confined", [False, True])
def test_a_kill_between_any_two_steps_leaves_nothing_that_create_cannot_mend(world: World, confined: bool, stride: int, seed: int) -> None:
    world.confined = confined
    repo = world.repo()
    number, ended = -(seed % stride), False
    while not ended:
        number += stride
        assert number < 400, "it never came to its end"
        ended = died_at(number, lambda: world.env(repo))
        env = world.env(repo)
        assert world.sh(env.path, "status", "--porcelain") == ""
        release(env)
        assert removal.sweep(env, lambda _path: ())
        left = sorted(str(path) for path in (repo.common_dir / "worktrees").glob("**/*"))
        assert not left, f"killed at step {number}"
    assert number > 20, "the kills did not reach the steps"


def test_kill_at_many_moments_leaves_nothing_that_create_cannot_mend(world: World) -> None:
    """Real kills: strace ends git's whole process tree at its Nth file that is created or renamed."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    repo = world.repo()
    seen = set()
    for number in range(1, 12):
        shutil.rmtree(world.root, ignore_errors=True)
        world.sh(repo.root, "worktree", "prune")
        shutil.rmtree(repo.common_dir / "worktrees", ignore_errors=True)
        world.sh(repo.root, "update-ref", "-d", "refs/heads/nightcrew/r1/fix/work")
        path = environment_path(world.root, "r1/fix", 1)
        path.parent.mkdir(parents=True)
        world.sh(repo.root, "update-ref", "refs/heads/nightcrew/r1/fix/work", repo.head)
        add = ["git", "worktree", "add", "--no-checkout", "--lock", "--reason", "nightcrew is making r1/fix:1"]
        cut = f"mkdir,rename,unlink:signal=KILL:when={number}"
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={cut}", *add, str(path), "nightcrew/r1/fix/work"]
        subprocess.run(strace, cwd=repo.root, capture_output=True, check=False)
        seen.add(tuple(sorted(file.name for file in (repo.common_dir / "worktrees").glob("*/*"))))
        assert world.sh(world.env(repo).path, "status", "--porcelain") == ""
    assert len(seen) > 2, "the kills all hit the same place"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("where", ["worktree", "repository"])
def test_a_full_disk_leaves_nothing_and_the_retry_succeeds(world: World, where: str) -> None:
    small = world.tmp / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        path = world.make("small/repo" if where == "repository" else "repo")
        world.commit(path, "big.bin", os.urandom(200_000).hex())
        repo = discover(world.git, path)
        root = small / "work" if where == "worktree" else world.root
        filler = small / "filler"
        with filler.open("wb") as out:
            room = os.statvfs(small)
            out.write(b"x" * (room.f_bavail * room.f_frsize - (300_000 if where == "worktree" else 4096)))
        with pytest.raises(DiskFull) as caught:
            create(repo, "r1/fix", 1, repo.head, root)
        assert caught.value.why
        assert world.sh(path, "for-each-ref", "refs/heads/nightcrew") == ""
        assert not list((repo.common_dir / "worktrees").glob("*"))
        assert not list(root.rglob("*"))
        filler.unlink()
        env = create(repo, "r1/fix", 1, repo.head, root)
        assert world.sh(env.path, "status", "--porcelain") == ""
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_failure_while_populating_leaves_nothing(world: World) -> None:
    repo = world.repo()
    blob = world.sh(repo.root, "rev-parse", "HEAD:f1.txt")
    object_file = repo.common_dir / "objects" / blob[:2] / blob[2:]
    object_file.rename(object_file.with_suffix(".away"))
    with pytest.raises(ToolFailed):
        world.env(repo)
    assert world.leftovers(repo) == []
    object_file.with_suffix(".away").rename(object_file)
    assert world.env(repo).path.is_dir()


# --- the branch --------------------------------------------------------------------------------------------------------


def test_a_foreign_branch_of_that_name_is_kept(world: World) -> None:
    repo = world.repo()
    world.sh(repo.root, "switch", "-q", "-c", "nightcrew/r1/fix/work")
    tip = world.commit(repo.root, "mine.txt")
    with pytest.raises(Refused, match="checked out elsewhere") as caught:
        world.env(repo)
    assert str(repo.root) in caught.value.why
    world.sh(repo.root, "switch", "-q", "main")
    with pytest.raises(Refused, match="already holds other work"):
        world.env(repo)
    with pytest.raises(Refused, match="already holds other work"):
        world.env(repo, epoch=2)
    assert world.sh(repo.root, "rev-parse", "nightcrew/r1/fix/work") == tip


def test_a_branch_that_blocks_our_directory_is_named(world: World) -> None:
    repo = world.repo()
    world.sh(repo.root, "branch", "nightcrew")
    with pytest.raises(Refused, match="in the way") as caught:
        world.env(repo)
    assert caught.value.on == "nightcrew"


@pytest.mark.parametrize("secured", [True, False])
def test_a_retry_takes_the_branch_over_and_the_old_work_is_on_a_ref(world: World, secured: bool) -> None:
    """Also when the older attempt could not be secured."""
    repo = world.repo()
    first = world.env(repo)
    old = world.commit(first.path, "half.txt")
    if secured:
        world.sh(repo.root, "update-ref", first.rescue_ref, old)
    second = world.env(repo, epoch=2)
    assert world.sh(repo.root, "rev-parse", first.rescue_ref if secured else first.tips_ref) == old
    assert world.sh(second.path, "rev-parse", "HEAD") == repo.head
    assert not (second.path / "half.txt").exists()
    assert world.sh(first.path, "rev-parse", "HEAD") == old
    assert world.sh(first.path, "symbolic-ref", "-q", "HEAD", ok=False) == ""
    assert (first.path / "half.txt").exists()


def test_something_else_in_the_place_is_kept(world: World) -> None:
    repo = world.repo()
    path = environment_path(world.root, "r1/fix", 1)
    path.mkdir(parents=True)
    (path / "precious").write_text("x")
    with pytest.raises(Refused, match="something else"):
        world.env(repo)
    assert (path / "precious").exists()
    assert world.sh(repo.root, "for-each-ref", "refs/heads/nightcrew") == ""


def test_never_inside_the_repository(world: World) -> None:
    repo = world.repo()
    with pytest.raises(Refused, match="inside your repository"):
        create(repo, "r1/fix", 1, repo.head, repo.root / "work")


# --- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["link", "gitdir", "commondir", "symlink"])
def test_a_rewired_worktree_is_refused(world: World, which: str) -> None:
    env = world.env(world.repo())
    evil = world.make("evil") / ".git"
    if which == "link":
        (env.path / ".git").write_text(f"gitdir: {evil}\n")
    elif which == "symlink":
        (env.path / ".git").rename(env.path / "away")
        (env.path / ".git").symlink_to("away")
    else:
        (env.admin_dir / which).write_text(f"{evil}\n")
    with pytest.raises(Tampered), open_env(env):
        pass


def test_a_removed_directory_is_missing_and_a_moved_repository_can_be_repaired(world: World) -> None:
    repo = world.repo()
    gone, kept = world.env(repo, "r1/gone"), world.env(repo, "r1/kept")
    shutil.rmtree(gone.path)
    with pytest.raises(NotFound, match="missing"), open_env(gone):
        pass
    with open_env(kept):
        pass
    shutil.move(repo.root, world.tmp / "moved")
    with pytest.raises(NotFound, match="moved") as caught, open_env(kept):
        pass
    assert "repair" in caught.value.hint
    world.sh(world.tmp / "moved", "worktree", "repair", str(kept.path))
    again = discover(world.git, world.tmp / "moved")
    assert create(again, "r1/kept", 1, again.head, world.root).path == kept.path
