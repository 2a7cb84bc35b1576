"""Whatever an agent leaves, every non-ignored file and every commit is reachable from a ref afterwards (S18, S19, X08)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.support import git, wait_until
from worktrees import pack_import
from worktrees.collect_work import publish, secure, set_apart, snapshot
from worktrees.commit_work import Secured
from worktrees.environments import Environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worktrees.conftest import World

pytestmark = pytest.mark.in_turns


@pytest.fixture
def world(both: World) -> World:
    return both


@pytest.fixture
def env(world: World) -> Environment:
    return world.env(world.repo())


def save(env: Environment, *, always: bool = False) -> Secured:
    return secure(env, "leftover work", {"Nightcrew-Task": "r1/fix"}, always=always)


def test_nothing_changed_costs_no_process_and_makes_nothing(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    save(env)  # reads the configuration once
    started = []
    run = env.repo.git._start

    def counted(*args: object, **kwargs: object) -> object:
        started.append(args[1])
        return run(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(env.repo.git, "_start", counted)
    assert save(env) == Secured(env.base, 0, 0, 0, 0, None)
    assert not started, "what a helper starts in its sandbox is not counted here"


def test_leftover_work_lands_on_the_work_branch_and_the_worktree_is_clean(world: World, env: Environment) -> None:
    (env.path / "f0.txt").write_text("changed\n")
    (env.path / "f1.txt").unlink()
    (env.path / "new dir").mkdir()
    (env.path / "new dir" / "-näw.txt").write_text("new\n")
    (env.path / "staged.txt").write_text("staged\n")
    world.sh(env.path, "add", "staged.txt")
    (env.path / ".gitignore").write_text("*.log\n")
    (env.path / "x.log").write_text("noise")
    done = save(env)
    assert (done.commits, done.files, done.plus, done.minus, done.rescue) == (1, 5, 4, 10, done.tip)
    files = world.blobs(env.repo, env.branch)
    assert set(files) == {"f0.txt", "f2.txt", "new dir/-näw.txt", "staged.txt", ".gitignore"}
    assert files["f0.txt"] == "changed"
    assert world.sh(env.path, "status", "--porcelain") == ""
    assert world.sh(env.path, "log", "-1", "--format=%an <%ae>%n%B").rstrip() == (
        "nightcrew <nightcrew@localhost>\nleftover work\n\nNightcrew-Task: r1/fix"
    )
    assert save(env) == done


def test_the_agents_own_commits_are_counted(world: World, env: Environment) -> None:
    world.commit(env.path, "a.txt", "1\n2\n")
    tip = world.commit(env.path, "b.txt", "3\n")
    assert save(env) == Secured(tip, 2, 2, 3, 0, tip)
    assert save(env, always=True).rescue == tip


def test_names_that_are_not_utf8(world: World, env: Environment) -> None:
    name = os.fsencode(env.path) + b"/caf\xe9 \x01\n.txt"
    with open(name, "wb") as file:
        file.write(b"x")
    save(env)
    listed = subprocess.run(["git", "ls-tree", "-rz", "--name-only", env.branch], cwd=env.repo.root, capture_output=True, check=True)
    assert b"caf\xe9 \x01\n.txt" in listed.stdout.split(b"\0")
    assert world.sh(env.path, "status", "--porcelain") == ""


def test_index_lock_left_behind_does_not_matter(world: World, env: Environment) -> None:
    world.own(env, env.admin_dir / "index.lock").write_text("")
    (env.path / "new.txt").write_text("x")
    save(env)
    assert "new.txt" in world.blobs(env.repo, env.branch)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_git_was_told_not_to_see(world: World, env: Environment, flag: str) -> None:
    world.sh(env.path, "update-index", flag, "f0.txt")
    (env.path / "f0.txt").write_text("secretly changed")
    save(env)
    assert world.blobs(env.repo, env.branch)["f0.txt"] == "secretly changed"


def test_detached_head_goes_to_the_rescue_ref(world: World, env: Environment) -> None:
    world.sh(env.path, "switch", "-q", "--detach")
    commit = world.commit(env.path, "a.txt")
    done = save(env)
    assert (done.tip, done.commits, done.rescue) == (env.base, 0, commit)
    (env.path / "left.txt").write_text("x")
    done = save(env)
    assert done.rescue is not None
    assert world.blobs(env.repo, done.rescue).keys() >= {"a.txt", "left.txt"}
    assert any("HEAD was not on" in note for note in done.notes)
    assert save(env).rescue == done.rescue


def test_another_branch_is_not_moved(world: World, env: Environment) -> None:
    world.sh(env.path, "switch", "-q", "-c", "theirs")
    commit = world.commit(env.path, "a.txt")
    (env.path / "left.txt").write_text("x")
    done = save(env)
    assert world.sh(env.path, "rev-parse", "theirs") == commit
    assert world.sh(env.repo.root, "for-each-ref", "refs/heads/theirs") == "" or env.private is None
    assert done.rescue is not None and world.sh(env.repo.root, "rev-parse", f"{done.rescue}^") == commit
    assert "left.txt" in world.blobs(env.repo, done.rescue)


def test_commits_that_only_the_reflog_remembers(world: World, env: Environment) -> None:
    lost = [world.commit(env.path, "one.txt")]
    world.sh(env.path, "reset", "-q", "--hard", env.base)
    world.commit(env.path, "two.txt")
    lost.append(world.sh(env.path, "rev-parse", "HEAD"))
    world.sh(env.path, "commit", "-q", "--amend", "-m", "amended")
    tip = world.sh(env.path, "rev-parse", "HEAD")
    (env.path / "left.txt").write_text("x")
    done = save(env)
    assert done.commits == 2
    assert done.tip != tip
    world.sh(env.repo.root, "reflog", "expire", "--expire=now", "--all")
    world.sh(env.path, "reflog", "expire", "--expire=now", "--all")
    world.sh(env.repo.root, "gc", "-q", "--prune=now")
    for oid in (*lost, tip):
        assert world.reachable(env.repo, oid)
    assert world.sh(env.repo.root, "fsck") == ""
    assert save(env) == done


def test_in_the_middle_of_a_conflicting_merge(world: World, env: Environment) -> None:
    world.commit(env.path, "f0.txt", "ours\n")
    world.sh(env.path, "branch", "side", env.base)
    world.sh(env.path, "switch", "-q", "side")
    world.commit(env.path, "f0.txt", "theirs\n")
    world.sh(env.path, "switch", "-q", env.branch)
    world.sh(env.path, "merge", "side", ok=False)
    assert world.own(env, env.admin_dir / "MERGE_HEAD").exists()
    save(env)
    assert "<<<<<<<" in world.blobs(env.repo, env.branch)["f0.txt"]
    assert world.sh(env.path, "status", "--porcelain") == ""


def test_in_the_middle_of_a_rebase(world: World, env: Environment) -> None:
    first = world.commit(env.path, "f0.txt", "ours\n")
    second = world.commit(env.path, "f1.txt", "more\n")
    moved = world.commit(env.repo.root, "f1.txt", "base moved\n")
    world.sh(env.path, "rebase", "-q", moved, ok=False)
    (env.path / "left.txt").write_text("x")
    picked = world.sh(env.path, "rev-parse", "HEAD")
    done = save(env)
    assert done.tip == second
    assert done.rescue is not None
    assert "left.txt" in world.blobs(env.repo, done.rescue)
    assert all(world.reachable(env.repo, oid) for oid in (first, second, picked))


def test_unborn_head_and_a_deleted_branch(world: World, env: Environment) -> None:
    commit = world.commit(env.path, "a.txt")
    world.sh(env.path, "checkout", "-q", "--orphan", "fresh")
    world.sh(env.repo.root, "update-ref", "-d", f"refs/heads/{env.branch}")
    done = save(env)
    assert done.rescue is not None
    assert world.reachable(env.repo, commit)
    assert "a.txt" in world.blobs(env.repo, done.rescue)


@pytest.mark.parametrize("damage", ["HEAD", "index", "commondir", "gone"])
def test_unusable_administration_still_saves_the_files(world: World, env: Environment, damage: str) -> None:
    if world.confined and damage == "commondir":
        pytest.skip("read-only in a sandbox: test_private_repository proves it")
    commit = world.commit(env.path, "a.txt")
    (env.path / "left.txt").write_text("x")
    (env.path / "f1.txt").unlink()
    if damage == "gone":
        world.run(env.path, "rm", "-rf", str(env.admin_dir), ok=not world.confined)
    else:
        world.own(env, env.admin_dir / damage).write_text("garbage\n")
    done = save(env)
    assert done.tip == commit
    assert done.rescue is not None
    assert world.blobs(env.repo, done.rescue).keys() == {"a.txt", "left.txt", "f0.txt", "f2.txt"}
    assert done.notes


def test_links_are_stored_as_links(world: World, env: Environment) -> None:
    secret = world.tmp / "secret"
    secret.mkdir()
    (secret / "key").write_text("SECRET")
    (secret / ".git").mkdir()
    world.commit(env.path, "dir/inner.txt")
    shutil.rmtree(env.path / "dir")
    (env.path / "dir").symlink_to(secret)
    (env.path / "f0.txt").unlink()
    (env.path / "f0.txt").symlink_to(secret / "key")
    (env.path / "dangling").symlink_to("/nowhere")
    done = save(env)
    files = world.blobs(env.repo, done.tip)
    assert files.keys() == {"dir", "f0.txt", "dangling", "f1.txt", "f2.txt"}
    assert (files["dir"], files["f0.txt"], files["dangling"]) == (str(secret), str(secret / "key"), "/nowhere")
    assert "SECRET" not in world.sh(env.repo.root, "log", "-p", "--all")
    assert world.sh(env.path, "status", "--porcelain") == ""


def test_a_gitlink_behind_a_link_is_not_followed(world: World, env: Environment) -> None:
    outside = world.make("outside")
    (outside / "SECRET").write_text("x")
    world.sh(env.path, "update-index", "--add", "--cacheinfo", f"160000,{env.base},a/b")
    (env.path / "a").symlink_to(world.tmp)
    world.sh(env.path, "update-index", "--add", "--cacheinfo", f"160000,{env.base},a/outside")
    done = save(env, always=True)
    assert done.rescue is not None
    assert not any("SECRET" in name for rev in (done.tip, done.rescue) for name in world.blobs(env.repo, rev))


def test_files_turned_directories_and_back(world: World, env: Environment) -> None:
    world.commit(env.path, "d/x.txt")
    shutil.rmtree(env.path / "d")
    (env.path / "d").write_text("now a file")
    (env.path / "f0.txt").unlink()
    (env.path / "f0.txt").mkdir()
    (env.path / "f0.txt" / "inside").write_text("now a directory")
    files = world.blobs(env.repo, save(env).tip)
    assert files["d"] == "now a file"
    assert files["f0.txt/inside"] == "now a directory"


@pytest.mark.parametrize("committed", [False, True])
def test_nested_repositories_keep_their_files_on_the_rescue_ref(world: World, env: Environment, committed: bool) -> None:
    world.sh(env.path, "init", "-q", "sub")
    world.commit(env.path / "sub", "kept.txt")
    (env.path / "sub" / ".gitignore").write_text("junk\n")
    (env.path / "sub" / "junk").write_text("x")
    world.sh(env.path / "sub", "init", "-q", "deeper")
    world.commit(env.path / "sub" / "deeper", "deep.txt")
    if committed:  # git stores only a link to it: destroyed with the worktree, its files would be gone
        world.sh(env.path, "add", "-A")
        world.sh(env.path, "commit", "-q", "-m", "a repository in a repository")
    (env.path / "plain.txt").write_text("x")
    done = save(env)
    assert done.rescue is not None
    assert world.blobs(env.repo, done.rescue).keys() >= {"sub/kept.txt", "sub/.gitignore", "sub/deeper/deep.txt", "plain.txt", "f0.txt"}
    assert "sub/junk" not in world.blobs(env.repo, done.rescue)
    assert "plain.txt" in world.sh(env.repo.root, "ls-tree", "--name-only", done.tip)
    assert [note.split(" ")[0] for note in done.notes] == ["sub", "sub/deeper"]
    assert save(env).rescue == done.rescue


def test_the_agent_replaced_the_worktrees_own_git_directory(world: World, env: Environment) -> None:
    if world.confined:
        pytest.skip("read-only in a sandbox: test_private_repository proves it")
    (env.path / ".git").unlink()
    world.sh(env.path, "init", "-q")
    world.commit(env.path, "a.txt")
    done = save(env)
    assert "a.txt" in world.blobs(env.repo, done.tip)
    assert any("repository of its own" in note for note in done.notes)


def test_file_that_git_cannot_convert_is_stored_as_it_is_and_noted(world: World, env: Environment) -> None:
    (env.path / ".gitattributes").write_text("bad.txt text working-tree-encoding=UTF-16\n")
    (env.path / "bad.txt").write_bytes(b"odd")  # no byte order mark: git refuses it
    for number in range(9):
        (env.path / f"good{number}.txt").write_text("x")
    done = save(env)
    assert done.files == 11
    assert git(env.repo.root, "cat-file", "blob", f"{done.tip}:bad.txt") == "odd"
    assert any(note.startswith("bad.txt is stored byte for byte") for note in done.notes)


def test_file_that_git_cannot_convert_and_that_is_too_large_is_noted_and_the_rest_is_kept(world: World, env: Environment) -> None:
    (env.path / ".gitattributes").write_text("*.odd text working-tree-encoding=UTF-16\n")
    (env.path / "large.odd").write_bytes(b"x" * (pack_import.RAW_MAX + 1))  # no byte order mark: git refuses it
    (env.path / "small.odd").write_bytes(b"x")
    (env.path / "good.txt").write_text("x")
    done = save(env)
    assert {"good.txt", "small.odd"} <= set(world.blobs(env.repo, done.tip))
    assert "large.odd" not in world.blobs(env.repo, done.tip)
    assert [note.partition(":")[0] for note in done.notes if ".odd" in note] == [
        "large.odd could not be stored",
        "small.odd is stored byte for byte",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files_are_noted(world: World, env: Environment) -> None:
    (env.path / "closed.txt").write_text("x")
    (env.path / "closed.txt").chmod(0)
    (env.path / "open.txt").write_text("x")
    done = save(env)
    assert "open.txt" in world.blobs(env.repo, done.tip)
    assert any(note.startswith("closed.txt could not be stored") for note in done.notes)


def test_pipes_and_sockets_do_not_hang_it(world: World, env: Environment) -> None:
    os.mkfifo(env.path / "pipe")
    (env.path / "f0.txt").unlink()
    os.mkfifo(env.path / "f0.txt")
    (env.path / "new.txt").write_text("x")
    assert "new.txt" in world.blobs(env.repo, save(env).tip)


def test_a_removed_directory_still_gives_its_commits(world: World, env: Environment) -> None:
    world.sh(env.path, "switch", "-q", "--detach")
    commit = world.commit(env.path, "a.txt")
    shutil.rmtree(env.path)
    save(env)
    assert world.reachable(env.repo, commit)


def test_what_a_killed_rescue_left_goes_with_the_next_one(world: World, env: Environment) -> None:
    if env.private is not None:
        pytest.skip("its repository of its own goes as a whole")
    left = env.admin_dir / "nightcrew.killed"
    left.mkdir()
    (left / "index").touch()
    secure(env, "m", {})
    assert list(env.admin_dir.glob("nightcrew.*")) == []


def test_a_snapshot_changes_nothing_but_the_rescue_ref(world: World, env: Environment) -> None:
    (env.path / "left.txt").write_text("x")
    world.sh(env.path, "add", "-A")
    (env.path / "left.txt").write_text("y")
    before = world.sh(env.path, "status", "--porcelain=v2", "--branch")
    done = snapshot(env, "as it was")
    assert world.sh(env.path, "status", "--porcelain=v2", "--branch") == before
    assert done.tip == env.base
    assert done.rescue is not None
    assert world.blobs(env.repo, done.rescue)["left.txt"] == "y"
    assert snapshot(env, "as it was").rescue == done.rescue


def test_an_older_rescue_is_never_dropped(world: World, env: Environment, tmp_path: Path) -> None:
    seen = []
    for number in range(3):
        (env.path / "left.txt").write_text(str(number))
        seen.append(snapshot(env, "again").rescue)
    assert all(oid and world.reachable(env.repo, oid) for oid in seen)


def test_a_change_of_the_same_size_and_time_in_the_second_in_which_git_looked_is_kept(world: World, env: Environment) -> None:
    file = env.path / "f0.txt"
    text = file.read_text()
    begun, ended = 0, 1
    while begun != ended:
        begun = int(time.time())
        file.write_text(text)
        world.sh(env.path, "add", "f0.txt")
        seen = file.stat()
        file.write_text(text.replace("0", "9"))
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        ended = int(time.time())
    wait_until(lambda: int(time.time()) > ended, "the next second")
    done = save(env)
    assert text != text.replace("0", "9") and world.sh(env.repo.root, "show", f"{done.tip}:f0.txt") == text.replace("0", "9").strip()


def test_what_a_gate_leaves_is_set_apart_from_what_was_secured(world: World, env: Environment) -> None:
    world.commit(env.path, ".gitignore", "*.log\n")
    (env.path / "f0.txt").write_text("agent\n")
    before = save(env, always=True)
    assert set_apart(env, "gate", {}, before) == (), "nothing was changed"

    (env.path / "f0.txt").write_text("gate\n")
    (env.path / "f1.txt").unlink()
    (env.path / "f2.txt").unlink()
    (env.path / "f2.txt").mkdir()
    (env.path / "f2.txt" / "in").symlink_to("/etc/passwd")
    (env.path / "x.log").write_text("ignored\n")
    (note,) = set_apart(env, "gate", {}, before)
    assert note.startswith("its gate changed 4 files (f0.txt, f1.txt, f2.txt and f2.txt/in): ") and env.tips_ref in note
    assert set_apart(env, "gate", {}, before) == (), "it may be repeated"
    assert world.blobs(env.repo, env.tips_ref) == {".gitignore": "*.log", "f0.txt": "gate", "f2.txt/in": "/etc/passwd"}
    assert (env.path / "f0.txt").read_text() == "agent\n" and (env.path / "f1.txt").exists() and (env.path / "f2.txt").is_file()
    assert (env.path / "x.log").exists() and world.sh(env.path, "status", "--porcelain") == ""
    assert {world.sh(env.repo.root, "rev-parse", ref) for ref in (env.branch_ref, env.rescue_ref)} == {before.tip}


def test_commits_of_a_gate_are_set_apart_wherever_it_left_them(world: World, env: Environment) -> None:
    before = save(env, always=True)
    first = world.commit(env.path, "gate.txt", "gate\n")
    world.sh(env.path, "checkout", "-q", "--detach")
    second = world.commit(env.path, "other.txt", "gate\n")
    world.sh(env.path, "checkout", "-q", before.tip)
    third = world.commit(env.path, "third.txt", "gate\n")
    if world.confined:
        assert publish(env) == before.tip, "commits of a gate do not arrive on the branch while it runs"
    (note,) = set_apart(env, "gate", {}, before)
    assert "its gate changed 1 file (third.txt)" in note
    assert {world.sh(env.repo.root, "rev-parse", ref) for ref in (env.branch_ref, env.rescue_ref)} == {before.tip}
    kept = world.sh(env.repo.root, "rev-list", env.tips_ref).split()
    assert {first, third} <= set(kept)
    snapshot(env, "before it is removed")
    assert second in world.sh(env.repo.root, "rev-list", env.tips_ref).split(), "what only a log remembers is kept before a removal"
