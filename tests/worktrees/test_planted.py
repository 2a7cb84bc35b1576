"""What an agent can leave where only its own work should lie: links, pipes, refs that name other refs (T01).

Each thing is planted, and then the attempt lives on as any other: its work is secured, its task is tried again, both worktrees are removed.
Nothing of the person's may change, nothing may wait for a pipe that nobody writes to, and the next task of the repository runs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.worktrees.conftest import World
from worktrees.collect_work import secure
from worktrees.commit_work import Secured
from worktrees.environments import Environment, release
from worktrees.removal import remove

pytestmark = [pytest.mark.timeout(60), pytest.mark.in_turns]  # a git that waits for a pipe does so for ever

Alive = Callable[[Path], Sequence[int]]
SECRET = "a key of the person's\n"


class Home:
    """A person's repository with work on two branches, a file of theirs, and an attempt in which an agent made a commit."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.repo = world.repo()
        world.sh(self.repo.root, "branch", "other")
        world.commit(self.repo.root, "mine.txt")
        self.secret = world.tmp / "authorized_keys"
        self.secret.write_text(SECRET)
        self.env = world.env(self.repo)
        world.commit(self.env.path, "done.txt")
        self.before = self.theirs()

    @property
    def ref(self) -> Path:
        return self.world.own(self.env, self.repo.common_dir / self.env.branch_ref)

    @property
    def log(self) -> Path:
        return self.world.own(self.env, self.repo.common_dir / "logs" / self.env.branch_ref)

    def theirs(self) -> tuple[str, ...]:
        """All that no agent and no verb of ours may change here."""
        common = self.repo.common_dir
        refs = (common / "refs/heads" / name for name in ("main", "other"))
        return (
            self.secret.read_text(),
            *(file.read_text() for file in (*refs, common / "config", common / "HEAD", common / "logs/refs/heads/main")),
            *sorted(path.name for path in self.world.tmp.iterdir()),
        )

    def unharmed(self) -> bool:
        """Whether all is as it was, and the person's own git answers."""
        for argv in (["branch"], ["status"], ["worktree", "list"], ["log", "--oneline", "--all"]):
            subprocess.run(["git", *argv], cwd=self.repo.root, check=True, capture_output=True, timeout=20)
        return self.theirs() == self.before

    def secure(self, env: Environment) -> Secured:
        done = secure(env, "leftover work", always=True)
        assert not [note for note in done.notes if "was stopped" in note], "a git waited for nothing"
        return done

    def retry(self, epoch: int) -> Environment:
        return self.world.env(self.repo, self.env.task, epoch, self.env.base)


@pytest.fixture
def home(both: World) -> Home:
    return Home(both)


def link(home: Home, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(home.secret)


def dangling(home: Home, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(home.world.tmp / "made")


def hard(home: Home, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(home.secret)


def pipe(home: Home, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


KINDS = [link, dangling, hard, pipe]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_of_the_branch_is_nobody_elses_file(home: Home, nobody_alive: Alive, kind: Callable[[Home, Path], None]) -> None:
    kind(home, home.ref.with_name(".work.new"))
    live_on(home, nobody_alive)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deleted", [False, True], ids=["with its branch", "branch deleted"])
def test_nothing_is_appended_to_what_lies_in_place_of_the_log(
    home: Home, nobody_alive: Alive, kind: Callable[[Home, Path], None], deleted: bool
) -> None:
    if deleted:
        home.ref.unlink()
    kind(home, home.log)
    live_on(home, nobody_alive)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("other", ["main", "other"])
@pytest.mark.parametrize("as_link", [False, True], ids=["text", "link"])
def test_a_branch_that_names_another_one_moves_and_deletes_only_itself(home: Home, nobody_alive: Alive, other: str, as_link: bool) -> None:
    home.ref.unlink()
    if as_link:
        home.ref.symlink_to(f"refs/heads/{other}")
    else:
        home.ref.write_text(f"ref: refs/heads/{other}\n")
    live_on(home, nobody_alive)


def test_directories_that_are_closed_or_deep_or_oddly_named_hide_no_pipe(home: Home, nobody_alive: Alive) -> None:
    """As an ordinary user the agent can close its directories, to itself and to us."""
    for name in (b"closed", b"odd \xff\n\x1b[31m"):
        directory = os.fsencode(home.env.path) + b"/" + name
        os.mkdir(directory)
        os.mkfifo(directory + b"/.gitignore")
    (home.env.path / "closed" / "in.txt").write_text("in\n")
    (home.env.path / "closed").chmod(0o555)
    here = os.open(home.env.path, os.O_RDONLY)
    for _ in range(2100):  # deeper than any path can name
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.mkfifo(".gitignore", dir_fd=here)
    os.close(here)
    try:
        done = home.secure(home.env)
    finally:
        subprocess.run(["rm", "-rf", home.env.path / "d"], check=True)  # too deep for what clears the test's own directory
    assert done.rescue is not None and home.world.blobs(home.repo, done.rescue)["closed/in.txt"] == "in"
    assert all(note.isprintable() for note in done.notes), done.notes
    assert len([note for note in done.notes if "was a pipe" in note]) == 2, done.notes


def test_many_pipes_are_many_renames_and_few_words(home: Home, nobody_alive: Alive) -> None:
    for number in range(200):
        (home.env.path / f"d{number}").mkdir()
        os.mkfifo(home.env.path / f"d{number}" / ".gitignore")
    shard = home.world.own(home.env, home.repo.common_dir / "objects") / "ab"
    shard.mkdir(exist_ok=True)
    os.mkfifo(shard / ("c" * 38))
    done = home.secure(home.env)
    assert 20 < len(done.notes) < 30 and any("and 180 more" in note for note in done.notes), done.notes
    assert home.world.sh(home.repo.root, "fsck") == ""
    live_on(home, nobody_alive)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", ["HEAD", "link for HEAD", "branch", "beside"])
def test_a_neighbour_that_still_runs_costs_nobody_else(home: Home, nobody_alive: Alive, what: str) -> None:
    """git reads all refs to say what a commit is reachable from, and the HEAD of every worktree to say who has a branch checked out."""
    neighbour = home.world.env(home.repo, task="r1/neighbour")
    head, ref = (
        home.world.own(neighbour, home.repo.common_dir / name) for name in (f"worktrees/{neighbour.path.name}/HEAD", neighbour.branch_ref)
    )
    os.mkfifo(neighbour.path / "pipe")
    match what:
        case "link for HEAD":
            head.unlink()
            head.symlink_to(neighbour.path / "pipe")
        case _:
            pipe(home, {"HEAD": head, "branch": ref, "beside": ref.with_name("beside")}[what])
    assert home.secure(home.env).commits == 1
    release(home.env)
    again = home.retry(2)
    home.world.sh(again.path, "commit", "-q", "--allow-empty", "-m", "second")
    home.world.sh(again.path, "commit", "-q", "--amend", "--allow-empty", "-m", "third")
    assert home.secure(again).rescue is not None
    release(again)
    remove(again, nobody_alive, discard=True)
    assert home.secure(neighbour).rescue is not None
    assert home.unharmed() and neighbour.path.exists()


def test_a_copy_of_the_repository_by_hard_links_is_no_attack(home: Home) -> None:
    """`cp -al` gives every ref and every log a second name."""
    for file in (home.ref, home.log):
        (home.world.tmp / f"copy of {file.parent.parent.name}").mkdir(exist_ok=True)
        (home.world.tmp / f"copy of {file.parent.parent.name}" / f"{len(file.parts)}").hardlink_to(file)
    (home.env.path / "left.txt").write_text("left\n")
    done = home.secure(home.env)
    assert home.world.blobs(home.repo, home.env.branch)["left.txt"] == "left" and done.commits == 2


def live_on(home: Home, nobody_alive: Alive) -> None:
    """Secure, try again, secure, remove; then another task."""
    (home.env.path / "left.txt").write_text("left\n")
    done = home.secure(home.env)
    assert done.rescue is not None and home.world.blobs(home.repo, done.rescue)["left.txt"] == "left"
    assert home.unharmed()
    release(home.env)
    again = home.retry(2)
    (again.path / "more.txt").write_text("more\n")
    second = home.secure(again)
    assert home.world.blobs(home.repo, second.tip)["more.txt"] == "more"
    release(again)
    for env in (home.env, again):
        remove(env, nobody_alive, discard=True)
    assert home.unharmed()
    beside = (home.repo.common_dir / home.env.branch_ref).parent
    assert not beside.exists() or not list(beside.iterdir()), "nothing of it is left in the person's refs"
    other = home.world.env(home.repo, task="r1/next")
    assert (other.path / "f0.txt").exists() and home.unharmed()


OPENED = [
    ("tree", (".gitignore", "deep/down/.gitignore", ".gitattributes", "deep/.gitattributes", ".gitmodules", ".mailmap")),
    ("tree", ("inner/.git/HEAD",)),
    ("tree", ("inner/.git/refs/heads/main", "inner/.git/packed-refs", "inner/.git/commondir")),
    ("admin", ("index",)),
    ("admin", ("HEAD",)),
    ("admin", ("rebase-apply/head-name",)),
    ("admin", ("rebase-merge/head-name", "BISECT_LOG", "logs/HEAD", "ORIG_HEAD", "MERGE_MSG", "refs/bisect/bad")),
    ("admin", ("MERGE_HEAD", "CHERRY_PICK_HEAD", "sequencer/todo")),
    ("refs", ("work",)),
    ("refs", ("beside", "deep/beside")),
]
"""Where git would open a file, in every directory. Together are those of which none keeps git from opening another when it is put aside."""


@pytest.mark.one_in(11)
@pytest.mark.parametrize("as_link", [False, True], ids=["pipe", "link"])
@pytest.mark.parametrize(("place", "names"), OPENED, ids=lambda each: each if isinstance(each, str) else each[0])
def test_git_waits_for_no_pipe(home: Home, nobody_alive: Alive, place: str, names: Sequence[str], as_link: bool) -> None:
    (home.env.path / "deep" / "down").mkdir(parents=True)
    (home.env.path / "deep" / "down" / "kept.txt").write_text("kept\n")
    home.world.sh(home.env.path, "init", "-q", "inner")
    home.world.commit(home.env.path / "inner", "inner.txt")
    top = {"tree": home.env.path, "admin": home.world.own(home.env, home.env.admin_dir), "refs": home.ref.parent}[place]
    if as_link:
        os.mkfifo(home.env.path / "a pipe of mine")
    for path in (top / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        if as_link:
            path.unlink(missing_ok=True)
            path.symlink_to(home.env.path / "a pipe of mine")
        else:
            pipe(home, path)
    live_on(home, nobody_alive)
