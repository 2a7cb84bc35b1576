"""Repositories that were copied from another system: their settings say what that one's file system could do, and ours can do more."""

from __future__ import annotations

import os
import time

import pytest

from tests.support import wait_until
from tests.worktrees.conftest import World
from worktrees import collect_work
from worktrees.environments import Environment, release
from worktrees.removal import Keep, inspect, remove
from worktrees.repository import discover

SETTINGS = {
    "Mac": {"core.ignorecase": "true", "core.precomposeunicode": "true"},
    "Windows": {"core.ignorecase": "true", "core.filemode": "false", "core.symlinks": "false", "core.autocrlf": "true"},
    "old": {"core.filemode": "false", "core.symlinks": "false", "core.autocrlf": "input"},
}


@pytest.fixture(params=SETTINGS)
def env(both: World, request: pytest.FixtureRequest) -> Environment:
    path = both.make()
    (path / "README").write_text("read me\n")
    (path / "run.sh").write_text("#!/bin/sh\n")
    (path / "latest").symlink_to("f0.txt")
    both.commit(path, "Foo.txt", "foo\n")
    for key, value in SETTINGS[request.param].items():
        both.sh(path, "config", key, value)
    return both.env(discover(both.git, path))


def kept(world: World, env: Environment) -> dict[str, tuple[str, str]]:
    """Path -> mode and content (without its last line break) of each file that the rescue ref keeps after the worktree was removed."""
    release(env)
    verdict = inspect(env, lambda _: ())
    assert isinstance(verdict, Keep), "the worktree has work of its own"
    remove(env, lambda _: (), discard=True)
    listed = world.sh(env.repo.root, "ls-tree", "-r", "-z", env.rescue_ref).split("\0")
    modes = {line.partition("\t")[2]: line[:6] for line in listed if line}
    return {name: (modes[name], text) for name, text in world.blobs(env.repo, env.rescue_ref).items()}


def test_file_beside_another_spelling_is_kept(both: World, env: Environment) -> None:
    (env.path / "readme").write_text("another\n")
    files = kept(both, env)
    assert (files["README"], files["readme"]) == (("100644", "read me"), ("100644", "another"))


def test_renaming_to_another_spelling_deletes_nothing(both: World, env: Environment) -> None:
    (env.path / "Foo.txt").rename(env.path / "foo.txt")
    done = collect_work.secure(env, "leftover work")
    names = both.names(env.repo, done.tip)
    assert "foo.txt" in names and "Foo.txt" not in names


def test_agents_own_commit_of_a_renamed_file_deletes_nothing(both: World, env: Environment) -> None:
    both.run(env.path, "sh", "-c", "mv Foo.txt foo.txt && git add -A && git commit -q -m renamed")
    done = collect_work.secure(env, "leftover work")
    names = both.names(env.repo, done.tip)
    assert "foo.txt" in names and "Foo.txt" not in names


def test_both_forms_of_an_accent_are_kept(both: World, env: Environment) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    (env.path / composed).write_text("composed\n")
    (env.path / apart).write_text("apart\n")
    files = kept(both, env)
    assert (files[composed][1], files[apart][1]) == ("composed", "apart")


def test_changed_mode_is_kept(both: World, env: Environment) -> None:
    (env.path / "run.sh").chmod(0o755)
    (env.path / "new.sh").write_text("#!/bin/sh\n")
    (env.path / "new.sh").chmod(0o755)
    files = kept(both, env)
    assert (files["run.sh"][0], files["new.sh"][0], files["README"][0]) == ("100755", "100755", "100644")


def test_links_and_what_replaces_them_are_kept(both: World, env: Environment) -> None:
    assert (env.path / "latest").is_symlink()
    (env.path / "latest").unlink()
    (env.path / "latest").write_text("a file now\n")
    (env.path / "link").symlink_to("README")
    files = kept(both, env)
    assert (files["latest"], files["link"]) == (("100644", "a file now"), ("120000", "README"))


def test_what_nobody_changed_is_untouched(both: World, env: Environment) -> None:
    corrections = [word for pair in both.git.corrections(env.place).items() if env.private is None for word in ("-c", "=".join(pair))]
    (env.path / "latest").unlink()
    both.sh(env.path, *corrections, "checkout", "-q", "--", "latest")  # its git writes what ours wrote
    release(env)
    verdict = inspect(env, lambda _: ())
    assert not isinstance(verdict, Keep), str(verdict)


def test_line_ends_of_a_new_file_are_as_the_setting_says_and_binary_files_as_they_are(both: World, env: Environment) -> None:
    (env.path / "text.txt").write_bytes(b"one\r\ntwo\r\n")
    (env.path / "data.bin").write_bytes(b"\0one\r\ntwo\r\n")
    files = kept(both, env)
    converts = both.sh(env.repo.root, "config", "--default", "false", "--get", "core.autocrlf") != "false"
    assert files["data.bin"][1] == "\0one\r\ntwo\r"
    assert files["text.txt"][1] == ("one\ntwo" if converts else "one\r\ntwo\r")


@pytest.mark.parametrize("env", ["Mac"], indirect=True)
def test_persons_own_files_of_another_spelling_are_seen(both: World, env: Environment) -> None:
    (env.repo.root / "readme").write_text("the person's\n")
    seen = both.git.run(env.repo.checkout, "status", "--porcelain").text
    assert seen == "?? readme"


@pytest.mark.in_turns
@pytest.mark.parametrize("setting", ["core.trustctime=false", "core.checkStat=minimal"])
def test_file_of_the_same_size_and_time_is_seen(both: World, setting: str) -> None:
    path = both.make()
    both.sh(path, "config", *setting.split("="))
    env = both.env(discover(both.git, path))
    release(env)
    before = (env.path / "f0.txt").stat()
    wait_until(lambda: int(time.time()) > int(before.st_ctime), "the next second: git compares no more of a time")
    (env.path / "f0.txt").write_text("9\n" * 5)
    os.utime(env.path / "f0.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(env.admin_dir / "index", ns=(before.st_mtime_ns + 10**10,) * 2)  # git reads again what is as new as the index
    if env.private is not None:
        os.utime(env.private / "worktrees" / env.admin_dir.name / "index", ns=(before.st_mtime_ns + 10**10,) * 2)
    assert isinstance(inspect(env, lambda _: ()), Keep)
