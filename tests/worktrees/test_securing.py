"""The helper in its sandbox, from outside: how it starts and ends, and what a power cut may have left for it."""

from __future__ import annotations

import os
import select
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from supervisor.host import procfs
from supervisor.kernel.errors import HostError, Refused, ToolFailed
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from tests.support import wait_until
from tests.worktrees.conftest import World
from worktrees import collect_work, repository
from worktrees.collect_work import Why
from worktrees.environments import Environment
from worktrees.git import Git
from worktrees.private_repository import beside


@pytest.fixture
def confined(world: World) -> World:
    """A world whose agents have a repository of their own."""
    world.confined = True
    if not executors.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    return world


@pytest.fixture
def env(confined: World) -> Environment:
    made = confined.env(confined.repo())
    (made.path / "left").write_text("left\n")
    return made


def helpers() -> list[int]:
    """What is left of all that this process started for securing."""
    return [child.pid for child in procfs.descendants(os.getpid()) if b"securing_helper" in procfs.slurp(f"/proc/{child.pid}/cmdline")]


def test_an_object_that_a_power_cut_left_empty_is_written_again(confined: World, env: Environment) -> None:
    oid = confined.sh(env.path, "hash-object", "left")
    own = confined.own(env, env.repo.common_dir / "objects" / oid[:2])
    own.mkdir(exist_ok=True)
    (own / oid[2:]).touch(mode=0o444)
    done = collect_work.secure(env, "leftover work")
    assert confined.blobs(env.repo, done.tip)["left"] == "left"


def test_without_namespaces_of_our_own_bubblewrap_starts_it(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    known = executors.known()
    if not known.works[Executor.BUBBLEWRAP]:
        pytest.skip(f"no bubblewrap: {known.why_not}")
    only = executors.Support({**known.works, Executor.NAMESPACES: frozenset()}, known.why_not, known.terminal)
    monkeypatch.setattr(executors, "known", lambda: only)
    assert collect_work.secure(env, "leftover work").files == 1


def test_where_no_sandbox_works_any_more_nothing_is_touched(confined: World, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    none = executors.Support(dict.fromkeys(Executor, frozenset()), {}, terminal=True)
    monkeypatch.setattr(executors, "known", lambda: none)
    with pytest.raises(HostError, match=r"cannot be built any more.*kept: its worktree"):
        collect_work.secure(env, "leftover work")
    assert confined.sh(env.repo.root, "rev-parse", env.branch) == env.base


def test_many_at_once(confined: World) -> None:
    repo = confined.repo()
    made = [confined.env(repo, f"r1/t{number}") for number in range(8)]
    for one in made:
        (one.path / "left").write_text(f"{one.task}\n")
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda one: collect_work.secure(one, "leftover work"), made))
    assert [confined.blobs(repo, each.tip)["left"] for each in done] == [one.task for one in made]


def test_a_warm_process_that_somebody_ended_is_replaced(confined: World, env: Environment) -> None:
    collect_work.secure(env, "leftover work")
    process = collect_work._forks._process
    assert process is not None
    process.kill()
    process.wait()
    (env.path / "more").write_text("more\n")
    assert collect_work.secure(env, "leftover work").files == 2


def test_one_that_stands_still_is_replaced(confined: World, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_work, "_ANSWER_S", 2.0)
    collect_work._forks._forget()
    collect_work.secure(env, "leftover work")
    process = collect_work._forks._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    (env.path / "more").write_text("more\n")
    assert collect_work.secure(env, "leftover work").files == 2


def test_a_helper_that_does_not_answer_is_ended_with_all_its_sandbox(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    collect_work.look_at_work(env)
    before = set(helpers())
    monkeypatch.setattr(collect_work, "SECURE_S", 0.0)
    monkeypatch.setattr(select, "select", lambda *_: ([], [], []))
    with pytest.raises(ToolFailed, match="did not answer in time"):
        collect_work.secure(env, "leftover work")
    monkeypatch.undo()
    wait_until(lambda: set(helpers()) <= before, "its processes to end")
    assert collect_work.secure(env, "leftover work").files == 1
    assert sorted(path.name for path in beside(env.path).iterdir()) == ["git", "packed-refs.sha256"]


@pytest.mark.parametrize("name", ["refs/heads/nightcrew/r1/fix/work.lock", "packed-refs.lock", "config.lock", "worktrees/fix.1/index.lock"])
def test_a_lock_that_a_killed_git_left_is_nobodys(confined: World, env: Environment, name: str) -> None:
    confined.own(env, env.repo.common_dir / name).touch()
    done = collect_work.secure(env, "leftover work")
    assert done.commits == 1 and confined.sh(env.repo.root, "rev-parse", env.branch) == done.tip
    assert confined.sh(env.path, "status", "--short") == ""


def test_a_helper_that_stands_still_is_ended_after_seconds(confined: World, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that opened a pipe where nobody looked for one."""
    write = collect_work._write

    def stopped(helper: collect_work.Helper, body: bytes) -> None:
        wait_until(lambda: len(procfs.descendants(helper.pid)) > 1, "init and the helper, which the kernel ends with it")
        for child in procfs.descendants(helper.pid):
            os.kill(child.pid, signal.SIGSTOP)
        write(helper, body)

    with monkeypatch.context() as once:
        once.setattr(collect_work, "_write", stopped)
        with pytest.raises(ToolFailed, match="did nothing for 4s"):
            collect_work.secure(env, "leftover work")
    assert collect_work.secure(env, "leftover work").files == 1


def test_a_helper_that_stands_still_before_its_pack_ends_is_ended_after_seconds(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    (env.path / "large.bin").write_bytes(os.urandom(2**20))
    take = collect_work._take

    def packs(helper: collect_work.Helper) -> bool:
        return any(b"pack-objects" in procfs.slurp(f"/proc/{child.pid}/cmdline") for child in procfs.descendants(helper.pid))

    def stopped(env: Environment, helper: collect_work.Helper, *rest: Any) -> None:
        # Until its exec the helper waits for it in a state that looks like waiting for a disk: stopped then, both would wait for good.
        wait_until(lambda: packs(helper), "git to write into the pipe, which holds less than that")
        for child in procfs.descendants(helper.pid):
            os.kill(child.pid, signal.SIGSTOP)
        take(env, helper, *rest)

    with monkeypatch.context() as once:
        once.setattr(collect_work, "_take", stopped)
        with pytest.raises(ToolFailed, match="did nothing for 4s"):
            collect_work.secure(env, "leftover work")
    assert collect_work.secure(env, "leftover work").files == 2


def test_when_a_leftover_file_is_refused_the_commits_come_out(confined: World, env: Environment) -> None:
    tip = confined.commit(env.path, "good.txt")
    (env.path / ".gitmodules").write_text('[submodule "a"]\n\tpath = a\n\turl = ./a\n\tupdate = !evil\n')
    with pytest.raises(Refused, match=r"gitmodules.*kept: its commits are on nightcrew/r1/fix/work"):
        collect_work.secure(env, "leftover work")
    assert confined.sh(env.repo.root, "rev-parse", env.branch) == tip
    confined.env(env.repo, epoch=2)  # a retry starts


def test_a_name_that_git_refuses_is_said_and_the_rest_is_kept(confined: World, env: Environment) -> None:
    (env.path / "git~1").write_text("x")
    (env.path / "dir").mkdir()
    (env.path / "dir" / ".GIT").write_text("x")
    confined.sh(env.path, "config", "core.protectNTFS", "false")
    done = collect_work.secure(env, "leftover work")
    assert set(confined.blobs(env.repo, done.tip)) >= {"left"} and "git~1" not in confined.blobs(env.repo, done.tip)
    assert sorted(done.refused) == ["dir/.GIT", "git~1"] and done.notes == ()


@pytest.mark.parametrize("ref", ["refs/heads/nightcrew/r1/fix/work", "refs/nightcrew/rescue/r1/fix/1"])
def test_a_lock_of_a_killed_git_of_ours_is_removed(confined: World, env: Environment, monkeypatch: pytest.MonkeyPatch, ref: str) -> None:
    monkeypatch.setattr(repository, "STALE_S", 0.2)
    lock = env.repo.common_dir / f"{ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    done = collect_work.secure(env, "leftover work")
    assert confined.sh(env.repo.root, "rev-parse", ref) == done.tip and not lock.exists()


def test_a_lock_of_the_persons_own_git_is_respected(confined: World, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "STALE_S", 0.2)
    lock = env.repo.common_dir / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(ToolFailed, match="lock"):
        repository.move(env.repo, "refs/heads/main", env.base, env.base, "test")
    assert lock.exists()


def test_a_sparse_file_is_named_and_keeps_nothing_else(confined: World, env: Environment) -> None:
    with (env.path / "big").open("wb") as file:
        file.truncate(1100 * 2**20)
    done = collect_work.secure(env, "leftover work")
    assert (done.files, *[note.split(",")[0] for note in done.notes]) == (1, "big is sparse")


@pytest.mark.soak
def test_a_real_file_of_more_than_a_gib_is_kept(confined: World, env: Environment) -> None:
    """Blocks of its own, so it is not sparse: 20 s of git's work."""
    with (env.path / "big").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1100 * 2**20)
    done = collect_work.secure(env, "leftover work")
    assert (done.files, done.notes) == (2, ())
    assert confined.sh(env.repo.root, "cat-file", "-s", f"{done.tip}:big") == str(1100 * 2**20)


def test_a_retry_starts_after_an_attempt_that_could_not_be_secured(confined: World, env: Environment) -> None:
    """Its commit had arrived while it worked; what it left cannot be taken."""
    tip = confined.commit(env.path, "good.txt")
    collect_work.publish(env)
    second = confined.env(env.repo, epoch=2)
    assert confined.sh(env.repo.root, "rev-parse", second.branch) == env.base
    assert tip == confined.sh(env.repo.root, "rev-parse", env.tips_ref)


@pytest.mark.parametrize("where", ["core.excludesfile", "a link", "the default place", "XDG_CONFIG_HOME"])
def test_persons_own_ignored_files_are_not_committed(both: World, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    home, ignore = both.tmp / "home", ".DS_Store\n.env\nbuild/\n"
    place = home / {"the default place": ".config/git/ignore", "XDG_CONFIG_HOME": "xdg/git/ignore"}.get(where, "my ignore")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(ignore)
    if where == "XDG_CONFIG_HOME":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    if where in ("core.excludesfile", "a link"):
        both.sh(both.tmp, "config", "--global", "core.excludesfile", "~/my ignore")
    if where == "a link":
        place.rename(home / "dotfiles")
        place.symlink_to("dotfiles")
    both.git = Git(both.tmp / "state")
    env = both.env(both.repo())
    (env.path / "build").mkdir()
    for name in (".DS_Store", ".env", "build/out", "kept"):
        (env.path / name).write_text("x\n")
    done = collect_work.secure(env, "leftover work")
    assert set(both.names(env.repo, done.tip)) - set(both.names(env.repo, env.base)) == {"kept"}
    seen = collect_work.look_at_work(env)
    assert [(reason.why, sorted(reason.paths)) for reason in seen.reasons] == [(Why.IGNORED, [".DS_Store", ".env", "build/"])]
