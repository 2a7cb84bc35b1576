"""Repositories of confined agents that are none, or too much: see `test_confined_attacks`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.worktrees.attack_kit import KEPT, Alive, Attempt, Plant, attempt
from tests.worktrees.test_hostile import ATTRIBUTES, TRAPS

__all__ = ["attempt"]
pytestmark = pytest.mark.timeout(200)


# Repositories that are none, or too much ----------------------------------------------------------------------------------------------


def many_refs(attempt: Attempt) -> None:
    """More than are looked at. Each to a commit of its own that is nowhere else would cost git an hour to make; so they name one."""
    lines = "".join(f"update refs/heads/x/{number} {attempt.done}\n" for number in range(1500))
    attempt.git("update-ref", "--stdin", stdin=lines.encode())
    packed = "".join(f"{attempt.done} refs/tags/t{number:06}\n" for number in range(20_000))
    (attempt.top / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{packed}")


def many_tips(attempt: Attempt) -> None:
    """3,000 commits that nothing else reaches, each on a tag."""
    tree = attempt.git("rev-parse", "HEAD^{tree}")
    lines = "".join(
        f'commit refs/tags/t{number}\ncommitter a <a@b> {number} +0000\ndata 1\nx\nfrom {attempt.env.base}\nM 040000 {tree} ""\n\n'
        for number in range(3000)
    )
    attempt.git("fast-import", "--quiet", "--force", stdin=lines.encode())


def alternates_elsewhere(attempt: Attempt) -> None:
    """The objects of its commit lie in another directory, which only its own `alternates` names."""
    shutil.copytree(attempt.top / "objects", attempt.tree / "elsewhere")
    (attempt.tree / "elsewhere" / "info" / "alternates").unlink()
    (attempt.top / "objects" / "info" / "alternates").write_text(f"../shared-objects\n{attempt.tree}/elsewhere\n")


def alternates_in_a_circle(attempt: Attempt) -> None:
    (attempt.top / "objects" / "info" / "alternates").write_text("../shared-objects\n../objects\n" * 5000)


def forged_commit_graph(attempt: Attempt) -> None:
    attempt.git("commit-graph", "write", "--reachable")
    garble(attempt.top / "objects" / "info" / "commit-graph")


def forged_pack_index(attempt: Attempt) -> None:
    attempt.git("repack", "-q", "-a", "-d")
    attempt.git("multi-pack-index", "write")
    for file in (attempt.top / "objects" / "pack").glob("*.idx"):
        garble(file)


def forged_multi_pack_index(attempt: Attempt) -> None:
    attempt.git("repack", "-q", "-a", "-d")
    attempt.git("multi-pack-index", "write")
    garble(attempt.top / "objects" / "pack" / "multi-pack-index")


def forged_bitmap(attempt: Attempt) -> None:
    attempt.git("repack", "-q", "-a", "-d", "-b")
    for file in (attempt.top / "objects" / "pack").glob("*.bitmap"):
        garble(file)


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data) - 20):
        data[at] ^= 0x55
    path.chmod(0o644)
    path.write_bytes(data)


def corrupt_objects(attempt: Attempt) -> None:
    """Every blob and tree of its own."""
    for oid in attempt.git("rev-list", "--objects", "--no-object-names", f"{attempt.env.base}..HEAD").split():
        if oid != attempt.done:
            garble(attempt.top / "objects" / oid[:2] / oid[2:])


def cut_history(attempt: Attempt) -> None:
    (attempt.top / "shallow").write_text(f"{attempt.done}\n")


def replaced_commit(attempt: Attempt) -> None:
    attempt.git("replace", attempt.done, attempt.env.base)


def another_commondir(attempt: Attempt) -> None:
    attempt.git("init", "-q", "--bare", str(attempt.tree / "evil"))
    (attempt.top / "commondir").write_text(f"{attempt.tree}/evil\n")


def moved_administration(attempt: Attempt) -> None:
    attempt.admin.rename(attempt.admin.with_name("moved"))
    attempt.admin.mkdir()
    (attempt.admin / "commondir").write_text(f"{attempt.repo.root}/.git\n")
    (attempt.admin / "HEAD").write_text("ref: refs/heads/main\n")


def no_administration(attempt: Attempt) -> None:
    shutil.rmtree(attempt.admin)


def its_repository_is_a_link(attempt: Attempt) -> None:
    for name in ("objects", "refs", "logs", "worktrees"):
        (attempt.top / name).rename(attempt.tree / name)
        (attempt.top / name).symlink_to(attempt.tree / name)


def objects_are_the_persons(attempt: Attempt) -> None:
    shutil.rmtree(attempt.top / "objects")
    (attempt.top / "objects").symlink_to("shared-objects")


def hidden_objects(attempt: Attempt) -> None:
    """Links in place of objects: to a file of the person's that is no object."""
    file = attempt.top / "objects" / attempt.done[:2] / attempt.done[2:]
    file.unlink()
    file.symlink_to("/etc/passwd")


def unknown_format(attempt: Attempt) -> None:
    configure(attempt, "[core]\n\trepositoryformatversion = 99\n")


def unknown_extension(attempt: Attempt) -> None:
    configure(attempt, "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tevil = true\n")


def other_refs_format(attempt: Attempt) -> None:
    configure(attempt, "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n\tobjectFormat = sha256\n")


def no_configuration(attempt: Attempt) -> None:
    configure(attempt, "\0[[[\n")


def endless_include(attempt: Attempt) -> None:
    configure(attempt, "[include]\n\tpath = /dev/zero\n")


def include_of_a_pipe(attempt: Attempt) -> None:
    os.mkfifo(attempt.tree / "pipe")
    configure(attempt, f"[include]\n\tpath = {attempt.tree}/pipe\n")


def include_of_itself(attempt: Attempt) -> None:
    configure(attempt, "[include]\n\tpath = config\n")


def include_of_what_a_process_is(attempt: Attempt) -> None:
    configure(attempt, "[include]\n\tpath = /proc/self/environ\n[include]\n\tpath = /proc/self/fd/0\n")


def another_worktree(attempt: Attempt) -> None:
    configure(attempt, f"[core]\n\tworktree = {attempt.repo.root}\n\tbare = true\n")


def include_in_its_worktree(attempt: Attempt) -> None:
    configure(attempt, "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (attempt.admin / "config.worktree").write_text("[include]\n\tpath = /proc/self/fd/0\n")


def every_program(attempt: Attempt) -> None:
    hooks = attempt.tree / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-commit", "post-commit", "fsmonitor-watchman"):
        shutil.copy(attempt.program, hooks / name)
    configure(attempt, TRAPS.format(touch=attempt.program, hooks=hooks))
    (attempt.tree / ".gitattributes").write_text(ATTRIBUTES)


def every_program_in_its_worktree(attempt: Attempt) -> None:
    configure(attempt, "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (attempt.admin / "config.worktree").write_text(TRAPS.format(touch=attempt.program, hooks=attempt.tree))
    (attempt.tree / ".gitattributes").write_text(ATTRIBUTES)


def configure(attempt: Attempt, text: str) -> None:
    with (attempt.top / "config").open("a") as file:
        file.write(text)


def nested_repositories(attempt: Attempt) -> None:
    """One with every program configured, one whose `.git` leads to the person's repository, a submodule."""
    attempt.git("init", "-q", "inner")
    (attempt.tree / "inner" / "inner.txt").write_text("inner\n")
    with (attempt.tree / "inner" / ".git" / "config").open("a") as file:
        file.write(TRAPS.format(touch=attempt.program, hooks=attempt.tree))
    (attempt.tree / "inner" / ".gitattributes").write_text(ATTRIBUTES)
    (attempt.tree / "link").mkdir()
    (attempt.tree / "link" / ".git").write_text(f"gitdir: {attempt.repo.common_dir}\n")
    (attempt.tree / ".gitmodules").write_text(
        f'[submodule "inner"]\n\tpath = inner\n\turl = ext::{attempt.program}\n\tupdate = !{attempt.program}\n'
    )


ANYHOW: dict[Plant, list[str]] = {
    **dict.fromkeys(
        [
            many_refs, many_tips, alternates_elsewhere, alternates_in_a_circle, forged_commit_graph, forged_multi_pack_index, forged_bitmap,
            cut_history, replaced_commit, another_commondir, moved_administration, no_administration, unknown_format, unknown_extension,
            other_refs_format, no_configuration, endless_include, include_of_a_pipe, include_of_itself, include_of_what_a_process_is,
            include_in_its_worktree, another_worktree, every_program, every_program_in_its_worktree,
        ],
        KEPT,
    ),
    **{key: [] for key in (forged_pack_index, corrupt_objects, its_repository_is_a_link, objects_are_the_persons, hidden_objects)},
    nested_repositories: ["done.txt"],
}  # fmt: skip
"""What is planted, and what must be on refs afterwards all the same. Where that is nothing, the objects themselves are gone."""


@pytest.mark.one_in(6)
@pytest.mark.parametrize("plant", ANYHOW, ids=lambda plant: plant.__name__)
def test_a_repository_that_was_turned_against_us(attempt: Attempt, nobody_alive: Alive, plant: Plant) -> None:
    plant(attempt)
    attempt.live_on(nobody_alive)
    assert set(attempt.kept()) >= set(ANYHOW[plant])
    assert not (attempt.tree / "RAN").exists()
