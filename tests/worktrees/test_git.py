"""The door itself: deadlines, missing and old tools, overrides, and objects that outlive a garbage collection."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.host import procfs
from supervisor.kernel.errors import TimedOut, ToolFailed, ToolHung, ToolMissing
from tests.support import wait_until
from worktrees import git
from worktrees.collect_work import secure
from worktrees.git import Git, last_words, parse_version

from .conftest import World


def _fake_git(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)


def test_a_missing_or_old_git_is_named_with_the_minimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ToolMissing, match=r"2\.38"):
        Git(tmp_path / "state")
    _fake_git(tmp_path / "old", 'echo "git version 2.30.2"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/bin:/usr/bin")
    with pytest.raises(ToolMissing, match=r"2\.30.*2\.38|2\.38.*2\.30"):
        Git(tmp_path / "state")


def test_a_git_that_hangs_is_ended_with_all_it_started(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = world.repo()
    pids = tmp_path / "pids"
    _fake_git(tmp_path / "slow", f"sleep 600 & echo $$ $! > {pids}; wait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slow'}:{os.environ['PATH']}")
    with pytest.raises(ToolFailed, match="no answer"):
        repo.git.run(repo.store, "status", deadline_s=0.5)
    for pid in map(int, pids.read_text().split()):
        assert not _runs(pid)


def test_a_git_that_reads_its_input_late_gets_all_of_it(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later than the first look at it, and more than a pipe holds: Python's own `communicate` writes no more after a time-out."""
    repo = world.repo()
    _fake_git(tmp_path / "late", "sleep 2; wc -c")
    monkeypatch.setenv("PATH", f"{tmp_path / 'late'}:{os.environ['PATH']}")
    repo.git.configured(repo.store)
    assert repo.git.run(repo.store, "status", stdin=b"x" * 2**21).text.strip() == str(2**21)


def test_a_git_that_waits_for_a_pipe_is_stopped_and_leaves_no_lock(world: World) -> None:
    """Long before its deadline; and what it had locked is free again."""
    repo = world.repo()
    world.sh(repo.root, "update-ref", "refs/heads/other", repo.head)
    world.sh(repo.root, "pack-refs", "--all")
    os.mkfifo(repo.common_dir / "refs" / "heads" / "other")
    with pytest.raises(ToolHung, match="it did nothing for"):
        repo.git.run(repo.store, "update-ref", "--stdin", stdin=b"update refs/heads/third HEAD\nupdate refs/heads/other HEAD\n")
    assert list(repo.common_dir.rglob("*.lock")) == []


@pytest.mark.parametrize("script", ["kill -STOP $$", "sleep 600 & echo $! > left; exit 0"], ids=["stopped", "dead"])
def test_a_git_that_is_stopped_or_leaves_a_child_with_its_pipes_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    repo = world.repo()
    monkeypatch.setattr(git, "STILL_LOOKS", 2)
    _fake_git(world.tmp / "still", f"cd {world.tmp}; {script}")
    monkeypatch.setenv("PATH", f"{world.tmp / 'still'}:{os.environ['PATH']}")
    with pytest.raises(ToolHung, match="it did nothing for"):
        repo.git.run(repo.store, "status", deadline_s=20.0)
    if (world.tmp / "left").exists():
        wait_until(lambda: not _runs(int((world.tmp / "left").read_text())), "its child to end")


def test_who_waits_for_a_repository_is_told_who_holds_it(
    world: World, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], None]
) -> None:
    repo = world.repo()
    said: list[str] = []
    repo.git.say = said.append
    monkeypatch.setattr("worktrees.locks.LOCK_S", 0.2)
    gate, at_it = world.tmp / "gate", world.tmp / "at-it"
    os.mkfifo(gate)
    _fake_git(world.tmp / "slow", f"touch {at_it}; read line < {gate}")
    monkeypatch.setenv("PATH", f"{world.tmp / 'slow'}:{os.environ['PATH']}")

    def hold() -> None:
        with repo.git.lock(repo.common_dir):
            repo.git.run(repo.store, "status", accept=(0, 1))

    holder = threading.Thread(target=hold)
    holder.start()
    until(at_it.exists)
    with pytest.raises(TimedOut, match=r"git status on .* \(pid \d+\)"), repo.git.lock(repo.common_dir):
        pass
    assert "git status on" in said[0]
    gate.write_text("go\n")
    holder.join()
    with repo.git.lock(repo.common_dir):
        other = "import sys; from pathlib import Path; from worktrees import git, locks; locks.LOCK_S = 0.1\n"
        other += "with git.Git(Path(sys.argv[1])).lock(Path(sys.argv[2])): pass"
        monkeypatch.undo()
        argv = [sys.executable, "-c", other, str(repo.git.scratch()), str(repo.common_dir)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert f"by another nightcrew, pid {os.getpid()}" in done.stderr


def test_a_git_that_works_for_long_is_not_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be slow as long as it does something: here one that sleeps, and then goes on, again and again."""
    repo = world.repo()
    monkeypatch.setattr(git, "STILL_LOOKS", 4)
    _fake_git(world.tmp / "slow", "for n in 1 2 3 4 5 6; do sleep 0.7; done; echo done")
    monkeypatch.setenv("PATH", f"{world.tmp / 'slow'}:{os.environ['PATH']}")
    assert repo.git.run(repo.store, "status").text == "done"


def test_a_git_ends_with_the_process_that_started_it(world: World, until: Callable[[Callable[[], bool]], None]) -> None:
    repo = world.repo()
    os.mkfifo(repo.common_dir / "refs" / "heads" / "pipe")
    script = "import sys; from pathlib import Path; from worktrees.git import Git, Place; common = Path(sys.argv[2])\n"
    script += 'Git(Path(sys.argv[1])).run(Place(common, common), "for-each-ref")'
    starter = subprocess.Popen([sys.executable, "-c", script, world.tmp / "state", repo.common_dir], stderr=subprocess.DEVNULL)
    found: list[int] = []

    def waits() -> bool:
        found[:] = [seen.pid for seen in procfs.descendants(starter.pid) if b"for-each-ref" in procfs.slurp(f"/proc/{seen.pid}/cmdline")]
        return bool(found) and procfs.slurp(f"/proc/{found[0]}/cmdline").startswith(b"git\0")

    until(waits)
    starter.kill()
    starter.wait()
    until(lambda: not _runs(found[0]))


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_filter_with_any_name_is_disarmed(world: World) -> None:
    repo = world.repo()
    canary = world.tmp / "X"
    for name in ("evil", "a=b", "with space", "ünï"):
        world.sh(repo.root, "config", f"filter.{name}.clean", f"touch '{canary}'; cat")
        (repo.common_dir / "info" / "attributes").write_text(f'* "filter={name}"\n* filter=evil\n')
    (repo.root / "f0.txt").write_text("changed\n")
    repo.git.run(repo.checkout, "add", "-A")
    assert not canary.exists()
    world.sh(repo.root, "add", "--renormalize", ".")
    assert canary.exists(), "the trap itself does not work"


def test_overrides_name_every_key_that_git_would_run() -> None:
    names = ["filter.lfs.process", "merge.x.driver", "diff.x.textconv", "alias.status", "core.editor", "user.name"]
    assert git.overrides(names).keys() == {"filter.lfs.process", "merge.x.driver", "diff.x.textconv", "alias.status"}


def test_rescued_work_outlives_a_garbage_collection(world: World) -> None:
    env = world.env(world.repo())
    lost = world.commit(env.path, "lost.txt")
    world.sh(env.path, "reset", "-q", "--hard", "HEAD~1")
    (env.path / "left.txt").write_text("left\n")
    done = secure(env, "rescue", always=True)
    world.sh(env.repo.root, "reflog", "expire", "--expire=now", "--all")
    world.sh(env.repo.root, "gc", "-q", "--prune=now")
    assert world.reachable(env.repo, lost)
    assert world.blobs(env.repo, done.tip)["left.txt"] == "left"
    world.sh(env.repo.root, "fsck", "--strict")


def test_the_environment_of_the_process_loses_git_variables(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    Git(world.tmp / "state")
    assert "GIT_DIR" not in os.environ


def test_versions_and_last_words() -> None:
    assert parse_version("git version 2.39.5 (Apple Git-154)") >= (2, 39)
    assert last_words("hint: x\nfatal: no\nhint: y\n") == "fatal: no"
    assert (
        last_words("error: would be overwritten:\n\ta.txt\n\tb.txt\nPlease move\nAborting\n") == "error: would be overwritten: a.txt, b.txt"
    )
    assert last_words("") == ""
