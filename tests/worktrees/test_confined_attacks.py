"""What a confined agent can leave in its own repository and worktree against those who collect its work (battery X05, X08, X13).

Each thing is planted as the agent could have written it, and then the attempt lives on as any other: its commits are handed out, its work
is secured, both are looked at, the worktree is removed. No program of the agent's runs, no file of the person's changes, the next attempt's
work comes out, and the work is on refs or the reason says why it is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.core.errors import NightcrewError
from supervisor.host.foreign import remove_tree
from supervisor.host.sandbox import probing
from supervisor.host.sandbox.executors import Executor
from tests.worktrees.conftest import World, make_world
from tests.worktrees.test_hostile import ATTRIBUTES, TRAPS
from worktrees.environment import Environment
from worktrees.environments import release
from worktrees.merge import diff
from worktrees.removal import remove
from worktrees.rescue import Secured
from worktrees.securing import publish, secure

pytestmark = pytest.mark.timeout(200)

Alive = Callable[[Path], Sequence[int]]


class Attempt:
    """A person's repository, an attempt in it with a commit and a leftover file, and a canary that sings outside when anything runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.repo = world.repo()
        self.env = world.env(self.repo)
        assert self.env.private is not None
        self.top, self.tree = self.env.private, self.env.path
        self.admin = self.top / "worktrees" / self.env.admin_dir.name
        self.ref, self.branch = self.top / self.env.branch_ref, self.env.branch
        self.done = world.commit(self.tree, "done.txt")
        (self.tree / "left.txt").write_text("left\n")
        self.canary = world.tmp / "CANARY"
        self.program = self.tree / "program.sh"
        self.program.write_text(f"#!/bin/sh\ntouch {self.canary} {self.tree}/RAN\nexec cat\n")
        self.program.chmod(0o755)
        self.before = self.theirs()

    def git(self, *argv: str, stdin: bytes = b"") -> str:
        """The agent's git, in its sandbox."""
        done = subprocess.run([*self.world.sandbox(self.tree), "git", *argv], cwd=self.tree, input=stdin, capture_output=True, check=True)
        return os.fsdecode(done.stdout).strip()

    def theirs(self) -> dict[str, str]:
        """Each file of the person's that no attempt moves, and its content."""
        common, ours = self.repo.common_dir, ("objects/", "refs/nightcrew/", "refs/heads/nightcrew/", "logs/refs/")
        names = [path for path in common.rglob("*") if path.is_file() and not path.is_relative_to(self.env.admin_dir)]
        found = {str(path.relative_to(common)): path for path in names}
        kept = {name: path for name, path in found.items() if not name.startswith(ours)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}

    def secure(self, env: Environment) -> Secured:
        return secure(env, "leftover work", always=True)

    def kept(self) -> list[str]:
        """Which of the commit and the leftover file are on a ref of the person's repository."""
        refs = self.world.sh(
            self.repo.root, "for-each-ref", "--format=%(refname)", "refs/nightcrew/rescue/r1/fix", "refs/heads/nightcrew/r1/fix"
        ).split()
        names = {name for ref in refs for name in self.world.sh(self.repo.root, "ls-tree", "-r", "-z", "--name-only", ref).split("\0")}
        return sorted(names & {"done.txt", "left.txt"})

    def unharmed(self) -> None:
        assert not self.canary.exists(), "a program of the agent's ran outside"
        assert self.theirs() == self.before
        self.world.sh(self.repo.root, "fsck", "--strict", "--no-dangling")
        for argv in (["branch"], ["status"], ["worktree", "list"], ["log", "--oneline", "--all"]):
            subprocess.run(["git", *argv], cwd=self.repo.root, check=True, capture_output=True, timeout=20)

    def live_on(self, nobody_alive: Alive) -> Secured | NightcrewError:
        """What came of securing it. Everything else must do."""
        with contextlib.suppress(NightcrewError), timed("publish"):
            publish(self.env)
        done: Secured | NightcrewError
        try:
            with timed("secure"):
                done = self.secure(self.env)
        except NightcrewError as error:
            done = error
            print("reason:", error.line())
        else:
            print("notes:", *done.notes, sep="\n  ")
            diff(self.repo, self.env.base, done.tip)
            assert all(note.isprintable() for note in done.notes)
        self.unharmed()
        with contextlib.suppress(NightcrewError), timed("remove"):
            release(self.env)
            remove(self.env, nobody_alive, discard=True)
        print("kept:", self.kept())
        self.unharmed()
        other = self.world.env(self.repo, task="r1/next")
        (other.path / "left.txt").write_text("left\n")
        assert self.secure(other).files == 1
        return done


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        print(f"{what}: {time.monotonic() - began:.2f} s")


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    if not probing.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    world = make_world(tmp_path, monkeypatch)
    world.confined = True
    return Attempt(world)


# Things that are no files, wherever git opens one ----------------------------------------------------------------------------------------

OBJECT = f"objects/ab/{'c' * 38}"
OWN = ["its ref", "its log"]


def place(attempt: Attempt, name: str) -> Path:
    if name in OWN:
        return attempt.ref if name == "its ref" else attempt.top / "logs" / attempt.env.branch_ref
    top, _, below = name.partition("/")
    return {"common": attempt.top, "admin": attempt.admin, "tree": attempt.tree}[top] / below


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        handle = os.open(path.parent, os.O_PATH)
        door.bind(f"/proc/self/fd/{handle}/{path.name}")
        os.close(handle)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def standard_input(path: Path) -> None:
    path.symlink_to("/proc/self/fd/0")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100 * 2**30)


def directory(path: Path) -> None:
    path.mkdir()


WHOLE = [
    "common/HEAD", "common/config", "common/packed-refs", "common/shallow", "common/commondir", "common/objects/info/alternates",
    f"common/{OBJECT}", "common/objects/pack/multi-pack-index", f"common/objects/pack/pack-{'a' * 40}.idx", "admin/HEAD", "admin/index",
    "tree/.gitignore", *OWN,
]  # fmt: skip
"""What git reads as a whole."""
FIRST = ["common/HEAD", "common/config", "common/packed-refs", "common/objects/info/alternates", "admin/index", "its ref"]
TOGETHER = [
    ["common/refs/heads/main", "common/refs/heads/new", "common/refs/stash", "common/refs/tags/new", "common/refs/notes/commits",
     "common/refs/remotes/origin/HEAD", f"common/refs/replace/{'d' * 40}", "common/logs/HEAD", "common/logs/refs/stash",
     "common/logs/refs/heads/new"],
    ["common/objects/info/packs", "common/objects/info/commit-graph", "common/objects/info/commit-graphs/commit-graph-chain",
     f"common/objects/pack/pack-{'a' * 40}.pack"],
    ["common/index", "common/gitdir", "common/FETCH_HEAD", "common/config.worktree"],
    ["common/modules/x/HEAD", "common/modules/x/config", "common/worktrees/other/HEAD", "common/worktrees/other/gitdir",
     "common/worktrees/other/commondir", "common/worktrees/other/logs/HEAD"],
    ["admin/config.worktree", "admin/FETCH_HEAD", "admin/info/sparse-checkout", "tree/deep/.gitattributes"],
]  # fmt: skip
"""None of these keeps git from opening another one of its group when it is put aside."""
ALONE = [
    "common/refs",
    "common/refs/heads",
    "common/objects/ab",
    "common/packed-refs.lock",
    "admin/index.lock",
    "admin/HEAD.lock",
    "tree/sub/.git",
]
CASES = [
    *((names, pipe) for names in TOGETHER),
    *(([name], pipe) for name in (*WHOLE, *ALONE)),
    *(([name], sparse) for name in WHOLE),
    *(([name], kind) for name in FIRST for kind in (bound_socket, endless, loop, standard_input, directory)),
]


@pytest.mark.parametrize(("names", "kind"), CASES, ids=lambda each: each[0] if isinstance(each, list) else each.__name__)
def test_what_is_no_file(attempt: Attempt, nobody_alive: Alive, names: Sequence[str], kind: Callable[[Path], None]) -> None:
    """What a worktree's administration has besides, and links to pipes, are in `test_planted`."""
    for path in (place(attempt, name) for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        kind(path)
    attempt.live_on(nobody_alive)


# Repositories that are none, or too much ----------------------------------------------------------------------------------------------

Plant = Callable[[Attempt], None]
KEPT = ["done.txt", "left.txt"]


def many_refs(attempt: Attempt) -> None:
    """A ref a line, each to a commit of its own that is nowhere else would cost git an hour to make; so they name two."""
    lines = "".join(f"update refs/heads/x/{number} {attempt.done}\n" for number in range(5000))
    attempt.git("update-ref", "--stdin", stdin=lines.encode())
    packed = "".join(f"{attempt.done} refs/tags/t{number:06}\n" for number in range(100_000))
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


@pytest.mark.parametrize("plant", ANYHOW, ids=lambda plant: plant.__name__)
def test_a_repository_that_was_turned_against_us(attempt: Attempt, nobody_alive: Alive, plant: Plant) -> None:
    plant(attempt)
    attempt.live_on(nobody_alive)
    assert set(attempt.kept()) >= set(ANYHOW[plant])
    assert not (attempt.tree / "RAN").exists()


# What lies in the worktree ---------------------------------------------------------------------------------------------------------------


def sparse_file(attempt: Attempt) -> None:
    """Named so that it comes before all others."""
    sparse(attempt.tree / "a sparse file")


def ignored_sparse_file(attempt: Attempt) -> None:
    sparse(attempt.tree / "ignored.bin")
    (attempt.tree / ".gitignore").write_text("*.bin\n")


def loops_of_links(attempt: Attempt) -> None:
    for name in ("a", "b", "c"):
        (attempt.tree / name).symlink_to({"a": "b", "b": "a", "c": "."}[name])


def links_to_directories_of_the_person(attempt: Attempt) -> None:
    (attempt.tree / "root").symlink_to("/")
    (attempt.tree / "git").symlink_to(attempt.repo.common_dir)
    (attempt.tree / "fd").symlink_to("/proc/self/fd")


def odd_names(attempt: Attempt) -> None:
    for name in (b"line\nbreak", b"\x1b[31mred\x1b[0m", b"\xff\xfe", b"-rf", b":(top)", b"\xe2\x80\xaeevil", b"a" * 255, b" ", b'"', b"\\"):
        Path(os.fsdecode(os.fsencode(attempt.tree) + b"/" + name)).write_text("odd\n")


def odd_names_that_wait(attempt: Attempt) -> None:
    """They reach the notes."""
    for name in (b"line\nbreak", b"\x1b[31mred\x1b[0m", b"\xff\xfe", b"\xe2\x80\xaeevil"):
        top = os.fsencode(attempt.tree) + b"/" + name
        os.mkdir(top)
        os.mkfifo(top + b"/.gitignore")


def git_in_odd_spellings(attempt: Attempt) -> None:
    for name in (".GIT", "git~1", ".g\u200cit", ".git ", "sub/.Git"):
        (attempt.tree / name).mkdir(parents=True)
        (attempt.tree / name / "config").write_text(f"[core]\n\tfsmonitor = {attempt.program}\n")


def names_that_differ_in_case(attempt: Attempt) -> None:
    for name in ("readme", "README", "Dir/x", "dir/x", "dIR"):
        (attempt.tree / name).parent.mkdir(exist_ok=True)
        (attempt.tree / name).write_text(name)


def deep(attempt: Attempt, depth: int) -> None:
    here = os.open(attempt.tree, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("deep.txt", os.O_CREAT, dir_fd=here))
    os.close(here)


def five_thousand_deep(attempt: Attempt) -> None:
    deep(attempt, 5_000)


def a_hundred_thousand_deep(attempt: Attempt) -> None:
    deep(attempt, 100_000)


def deep_in_its_repository(attempt: Attempt) -> None:
    (attempt.top / "refs" / "heads" / "deep").mkdir()
    here = os.open(attempt.top / "refs" / "heads" / "deep", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def closed_directories(attempt: Attempt) -> None:
    for name in ("objects", "refs/heads", "logs"):
        (attempt.top / name).chmod(0)


def a_hostile_commit(attempt: Attempt) -> None:
    """A tree with `.git` in it, made byte by byte, on its branch."""
    blob = attempt.git("hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = evil\n")
    inner = attempt.git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    text = b"40000 .git\0" + bytes.fromhex(inner)
    tree = attempt.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=text)
    attempt.git("reset", "-q", "--soft", attempt.git("commit-tree", tree, "-p", "HEAD", "-m", "evil"))


TREES: dict[Plant, list[str]] = {
    **dict.fromkeys(
        [
            sparse_file, ignored_sparse_file, loops_of_links, links_to_directories_of_the_person, odd_names, odd_names_that_wait,
            names_that_differ_in_case, five_thousand_deep, a_hundred_thousand_deep, deep_in_its_repository,
        ],
        KEPT,
    ),
    git_in_odd_spellings: ["done.txt"], closed_directories: ["done.txt"],
    a_hostile_commit: [],
}  # fmt: skip


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=[pytest.mark.soak, pytest.mark.timeout(900)] if plant is a_hundred_thousand_deep else [])
        for plant in TREES
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_worktree_that_was_turned_against_us(attempt: Attempt, nobody_alive: Alive, plant: Plant) -> None:
    plant(attempt)
    try:
        attempt.live_on(nobody_alive)
    finally:
        for directory in (attempt.top / "objects", attempt.top / "refs" / "heads", attempt.top / "logs"):
            if directory.is_dir():
                directory.chmod(0o755)
        for top in (attempt.tree, attempt.top):
            if top.is_dir():
                remove_tree(top)  # too deep for what clears the test's own directory
    assert set(attempt.kept()) >= set(TREES[plant])
