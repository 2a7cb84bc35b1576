"""Templates: whole or not there, never changed below an environment, nothing from outside the checkout (X05, X08)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import HostError, NotFound, Refused
from tests.worktrees.workshop import contents, install
from worktrees.repository import Repository, discover
from worktrees.templates import Template, build, clear, load, read, remove_template

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


@pytest.fixture
def repo(world: World) -> Repository:
    path = world.make()
    world.commit(path, ".gitignore", ".venv/\nnode_modules/\n*.local\n")
    return discover(world.git, path)


def make(world: World, repo: Repository, *copy: str) -> Template:
    return build(repo, repo.head, world.tmp / "template", install, copy)


def nothing_left(world: World, repo: Repository) -> bool:
    return not (world.tmp / "template").exists() and world.sh(repo.root, "worktree", "list").count("\n") == 0


def test_it_is_the_commit_and_what_set_up_made_and_the_repository_forgets_it(world: World, repo: Repository) -> None:
    def prepare(tree: Path) -> None:
        assert world.sh(tree, "describe", "--always") == repo.head[:7], "tools that ask git for a version must work"
        install(tree)

    made = build(repo, repo.head, world.tmp / "template", prepare)
    assert made.extras == (".venv/", "node_modules/")
    assert made == load(made.place) == read(made.place)
    assert (made.files / "f1.txt").read_text() == "1\n" * 5
    assert not (made.files / ".git").exists()
    assert world.sh(repo.root, "worktree", "list").count("\n") == 0
    assert not list((repo.common_dir / "worktrees").glob("*"))
    remove_template(made)
    assert not made.place.exists()
    with pytest.raises(NotFound):
        load(made.place)


def test_a_failed_set_up_leaves_nothing(world: World, repo: Repository) -> None:
    def fail(tree: Path) -> None:
        install(tree)
        (tree / ".venv").chmod(0o500)
        raise HostError("set-up failed")

    with pytest.raises(HostError, match="set-up failed"):
        build(repo, repo.head, world.tmp / "template", fail)
    assert nothing_left(world, repo)
    make(world, repo)


def test_a_build_that_was_killed_is_made_anew_or_cleared(world: World, repo: Repository) -> None:
    _killed_while_building(world, repo)
    with pytest.raises(NotFound, match="no template"):
        load(world.tmp / "template")
    made = make(world, repo)
    assert made == load(made.place)
    clear(repo, made.place)
    assert made == load(made.place), "a whole one stays"
    remove_template(made)
    _killed_while_building(world, repo)
    assert not nothing_left(world, repo)
    clear(repo, made.place)
    clear(repo, made.place)
    assert nothing_left(world, repo)


def _killed_while_building(world: World, repo: Repository) -> None:
    pid = os.fork()
    if pid == 0:

        def die(tree: Path) -> None:
            install(tree)
            os.kill(os.getpid(), 9)

        try:
            build(repo, repo.head, world.tmp / "template", die)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9


@pytest.mark.parametrize("damage", ["file", "new", "gone", "mode", "index", "record"])
def test_a_changed_template_is_not_loaded(world: World, repo: Repository, damage: str) -> None:
    made = make(world, repo)
    match damage:
        case "file":
            (made.files / "f1.txt").write_text("other\n")
        case "new":
            (made.files / ".venv" / "new").touch()
        case "gone":
            shutil.rmtree(made.files / "node_modules")
        case "mode":
            (made.files / "f1.txt").chmod(0o755)
        case "index":
            made.index.write_bytes(b"DIRC")
        case _:
            (made.place / "template.json").write_text("{")
    with pytest.raises(HostError, match="damaged"):
        load(made.place)


def test_there_is_one_template_at_a_place(world: World, repo: Repository) -> None:
    made = make(world, repo)
    before = contents(made.place)
    with pytest.raises(Refused, match="already"):
        make(world, repo)
    assert contents(made.place) == before


def test_what_set_up_changed_in_the_commits_files_is_put_back_and_said(world: World, repo: Repository) -> None:
    def prepare(tree: Path) -> None:
        (tree / "f1.txt").write_text("set-up was here\n")
        (tree / "f2.txt").unlink()
        (tree / "build" / "deep").mkdir(parents=True)
        (tree / "build" / "deep" / "out.o").write_text("x")

    made = build(repo, repo.head, world.tmp / "template", prepare)
    assert (made.files / "f1.txt").read_text() == "1\n" * 5 and (made.files / "f2.txt").exists()
    assert len(made.notes) == 2 and "f1.txt and f2.txt" in made.notes[0] and "build/" in made.notes[1]
    assert (made.files / "build" / "deep" / "out.o").exists()


def test_a_link_in_place_of_a_gitignore_is_not_written_through(world: World, repo: Repository) -> None:
    theirs = world.tmp / "theirs"
    theirs.write_text("theirs\n")

    def prepare(tree: Path) -> None:
        for name in ("made", ".venv"):
            (tree / name).mkdir()
            (tree / name / "file").touch()
            (tree / name / ".gitignore").symlink_to(theirs)

    made = build(repo, repo.head, world.tmp / "template", prepare)
    assert theirs.read_text() == "theirs\n"
    assert (made.files / "made" / ".gitignore").read_text() == "*\n" and made.extras == (".venv/", "made/.gitignore", "made/file")


def test_new_files_that_agents_would_commit_are_refused(world: World, repo: Repository) -> None:
    with pytest.raises(Refused, match="does not ignore generated"):
        build(repo, repo.head, world.tmp / "template", lambda tree: (tree / "generated.txt").touch())
    assert nothing_left(world, repo)

    def commit(tree: Path) -> None:
        world.commit(tree, "more.txt")

    with pytest.raises(Refused, match="made a commit"):
        build(repo, repo.head, world.tmp / "template", commit)
    assert nothing_left(world, repo)


# --- copies from the person's checkout -----------------------------------------------------------------------------------


def test_ignored_files_of_the_checkout_are_copied_with_their_mode(world: World, repo: Repository) -> None:
    (repo.root / "sub").mkdir()
    (repo.root / "sub" / "env.local").write_text("KEY=1\n")
    (repo.root / "sub" / "env.local").chmod(0o600)
    made = make(world, repo, "sub/env.local", "absent.local")
    assert (made.files / "sub" / "env.local").read_text() == "KEY=1\n"
    assert (made.files / "sub" / "env.local").stat().st_mode & 0o777 == 0o600
    assert "sub/env.local" in made.extras or "sub/" in made.extras


@pytest.mark.parametrize("name", ["link.local", "folder.local/key", "../secret", "/etc/hostname", "f1.txt", ""])
def test_nothing_is_copied_from_outside_or_into_a_commit(world: World, repo: Repository, name: str) -> None:
    secret = world.tmp / "secret"
    secret.write_text("secret")
    (world.tmp / "ssh").mkdir()
    (world.tmp / "ssh" / "key").write_text("secret")
    (repo.root / "link.local").symlink_to(secret)
    (repo.root / "folder.local").symlink_to(world.tmp / "ssh")
    with pytest.raises(Refused, match="a file to copy must"):
        make(world, repo, name)
    assert nothing_left(world, repo)


def test_nothing_that_the_repository_configured_runs(world: World, repo: Repository) -> None:
    canary = world.tmp / "canary"
    trap = world.tmp / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    trap.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        shutil.copy(trap, repo.common_dir / "hooks" / hook)
    base = world.commit(repo.root, ".gitattributes", "*.txt filter=trap\n")
    for key in ("core.fsmonitor", "filter.trap.smudge", "filter.trap.clean", "filter.trap.process", "core.sshCommand"):
        world.sh(repo.root, "config", key, str(trap))
    canary.unlink(missing_ok=True)
    build(discover(world.git, repo.root), base, world.tmp / "template", install)
    assert not canary.exists()
    world.sh(repo.root, "status", ok=False)
    assert canary.exists(), "the trap itself does not work"


def test_set_up_changes_nothing_of_the_persons_repository(world: World, repo: Repository) -> None:
    """As husky and lefthook do from `npm ci`: one writes the configuration, the other the hooks."""
    world.sh(repo.root, "tag", "-a", "-m", "one", "v1")
    (repo.common_dir / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch hook-ran.local\n")
    (repo.common_dir / "hooks" / "post-checkout").chmod(0o755)
    (repo.common_dir / "worktrees").mkdir()
    before = contents(repo.common_dir)

    def prepare(tree: Path) -> None:
        assert world.sh(tree, "describe", "--always") == "v1" and world.sh(tree, "status", "--porcelain") == ""
        world.sh(tree, "config", "core.hooksPath", ".husky")
        world.sh(tree, "config", "--unset", "core.hooksPath")
        hooks = tree / world.sh(tree, "rev-parse", "--git-path", "hooks")
        world.sh(tree, "switch", "-q", "-c", "made")
        assert (tree / "hook-ran.local").exists(), "it sees the person's hooks"
        (hooks / "pre-commit").write_text("exit 1\n")
        (hooks / "post-checkout").unlink()
        world.sh(tree, "hash-object", "-w", "f0.txt")
        (tree / "stashed.local").write_text("x\n")
        world.sh(tree, "config", "user.name", "Set Up")
        install(tree)

    made = build(repo, repo.head, world.tmp / "template", prepare)
    assert contents(repo.common_dir) == before
    assert sorted(path.name for path in made.place.iterdir()) == ["files", "index", "template.json"]
    assert load(made.place) == made and not (made.files / ".git").exists()


@pytest.mark.parametrize("harm", ["rm .git", "rm .git && git init -q", "git commit -q --allow-empty -m one"])
def test_set_up_that_replaces_its_repository_or_commits_leaves_nothing(world: World, repo: Repository, harm: str) -> None:
    (repo.common_dir / "worktrees").mkdir()
    before = contents(repo.common_dir)

    def prepare(tree: Path) -> None:
        world.run(tree, "sh", "-c", harm)

    if "commit" in harm:
        with pytest.raises(Refused, match="set-up made a commit"):
            build(repo, repo.head, world.tmp / "template", prepare)
        assert nothing_left(world, repo)
    else:
        remove_template(build(repo, repo.head, world.tmp / "template", prepare))
    assert contents(repo.common_dir) == before
