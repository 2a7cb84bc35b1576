"""Use nightcrew as a person does: by its command line and its documentation alone.

The tests know nothing of the product's code. Each agent writes down the files and commits that it made; afterwards each of them must be
reachable from a ref of the repository, as docs/records.md and docs/safety.md promise.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm

# What an agent runs at its end: it lists each file (path, kind, digest) and the commits named on its command line.
BOOK = """
import hashlib, json, os, sys
files = []
for top, dirs, names in os.walk("."):
    dirs[:] = [name for name in dirs if name != ".git"]
    for name in names:
        path = os.path.join(top, name)
        if name == ".git":
            continue
        if os.path.islink(path):
            files.append([path[2:], "link", os.readlink(path)])
        else:
            data = open(path, "rb").read()
            text = data if b"\\0" in data else data.replace(b"\\r\\n", b"\\n")
            kind = "x" if os.stat(path).st_mode & 0o100 else "f"
            files.append([path[2:], kind, hashlib.sha256(text).hexdigest()])
with open(os.environ["NIGHTCREW_OUT"] + "/book.json", "w") as out:
    json.dump({"files": files, "commits": sys.argv[1:]}, out)
"""

COMMIT = "git -c user.name=Agent -c user.email=agent@example.org commit -q"
BOOKED = "python3 book.py"

WORKS = {
    "edit": f"echo '# edit' >> a.py; {COMMIT} -am edit; {BOOKED} $(git rev-parse HEAD)",
    "left": f"echo '# left' >> a.py; mkdir -p new/er; echo u > new/er/file; echo s > staged; git add staged; {BOOKED}",
    "spelled": f"echo lower > readme; {BOOKED}",
    "mode": f"chmod +x a.py; {BOOKED}",
    "ignored": f"mkdir dist; echo d > dist/wheel; echo m > my.mine; echo seen > seen; {BOOKED}",
    "inner": (
        f"git worktree add -q inner --detach; cd inner; echo i > i; git add i; {COMMIT} -m inner; "
        f"h=$(git rev-parse HEAD); echo loose > loose; cd ..; {BOOKED} $h"
    ),
    "detached": (
        f"git checkout -q --detach; echo d > d; git add d; {COMMIT} -m detached; h=$(git rev-parse HEAD); echo more > more; {BOOKED} $h"
    ),
    "amended": (
        f"echo 1 > am; git add am; {COMMIT} -m one; a=$(git rev-parse HEAD); echo 2 > am; {COMMIT} -a --amend -m two; "
        f"b=$(git rev-parse HEAD); git reset -q --hard HEAD~1; {BOOKED} $a $b"
    ),
    "links": f"rm link; echo 'now a file' > link; ln -s nowhere dangling; {BOOKED}",
    "hidden": f"git update-index --assume-unchanged a.py; echo '# hidden' >> a.py; {BOOKED}",
    "stash": (
        "echo st >> a.py; git -c user.name=A -c user.email=a@example.org stash -q; h=$(git rev-parse stash@{0}); "
        f"echo after > after; {BOOKED} $h"
    ),
    "failing": f"echo f > f; git add f; {COMMIT} -m f; h=$(git rev-parse HEAD); echo ff > ff; {BOOKED} $h; exit 3",
}
IGNORED = {"dist/wheel", "my.mine"}


class User:
    """A person with a home, a state directory and a repository of their own."""

    def __init__(self, place: Path, short: str) -> None:
        self.home = place / "home"
        self.repo = place / "repo"
        self.state = place / "state"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": short,
            "NIGHTCREW_HOME": str(self.state),
            "LC_ALL": "C.UTF-8",
        }
        self.home.mkdir()
        (self.home / "ignore").write_text("*.mine\n")
        (self.home / ".gitconfig").write_text(
            f"[user]\nname = Person\nemail = person@example.org\n[core]\nexcludesfile = {self.home}/ignore\n"
        )
        self.repo.mkdir()
        (self.repo / ".gitignore").write_text("dist/\n")
        (self.repo / "a.py").write_text("a = 1\n")
        (self.repo / "README").write_text("upper\n")
        (self.repo / "lines").write_text("".join(f"{n}\n" for n in range(1, 21)))
        (self.repo / "link").symlink_to("README")
        (self.repo / "book.py").write_text(BOOK)
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "base")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.repo, env=self.env, capture_output=True, check=True)
        return done.stdout.decode(errors="surrogateescape")

    def crew(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return warm.run(words, self.repo, self.env | more, 300)

    def run(self, plan: str) -> tuple[str, dict[str, dict[str, Any]]]:
        """Run a plan to its end; return the run's id and its tasks by name."""
        file = self.home / "plan.toml"
        file.write_text(plan)
        done = self.crew("run", "--json", str(file))
        assert done.returncode in (0, 1), done.stderr
        told = json.loads(done.stdout)
        return told["run"], {task["name"]: task for task in told["tasks"]}

    def reachable(self, run: str, task: str) -> set[tuple[str, str, str]]:
        """Return (file name, kind, digest) of each file in a commit of the task's refs."""
        refs = self.git(
            "for-each-ref", "--format=%(refname)", f"refs/heads/nightcrew/{run}/{task}", f"refs/nightcrew/rescue/{run}/{task}"
        ).split()
        found = set()
        for commit in self.git("rev-list", *refs).split():
            for entry in self.git("ls-tree", "-rz", commit).split("\0"):
                if not entry:
                    continue
                told, name = entry.split("\t", 1)
                mode, kind, oid = told.split()
                if kind == "blob":
                    data = subprocess.run(
                        ["git", "cat-file", "blob", oid], cwd=self.repo, env=self.env, capture_output=True, check=True
                    ).stdout
                    base = name.rsplit("/", 1)[-1]
                    if mode == "120000":
                        found.add((base, "link", data.decode()))
                    else:
                        text = data if b"\0" in data else data.replace(b"\r\n", b"\n")
                        found.add((base, "x" if mode == "100755" else "f", hashlib.sha256(text).hexdigest()))
        return found

    def missing(self, run: str, task: str) -> tuple[list[str], list[str]]:
        """Return the files and the commits that the task's agent made and that no ref reaches."""
        book = json.loads((self.state / "runs" / run / task / "1" / "out" / "book.json").read_text())
        there = self.reachable(run, task)
        commits = set(self.git("rev-list", "--all").split())
        files = [path for path, kind, digest in book["files"] if (path.rsplit("/", 1)[-1], kind, digest) not in there]
        return files, [commit for commit in book["commits"] if commit not in commits]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A new person; at the end their supervisor is stopped."""
    short = tempfile.mkdtemp(prefix="nu")
    person = User(tmp_path, short)
    yield person
    person.crew("kill", "--all")
    person.crew("down", "--now")
    shutil.rmtree(short, ignore_errors=True)


def test_nothing_that_an_agent_made_is_lost(user: User) -> None:
    """Work in a repository that was copied from elsewhere is kept, also after its worktrees are removed."""
    for setting in ("core.ignorecase=true", "core.fileMode=false", "core.symlinks=false", "core.autocrlf=true"):
        user.git("config", *setting.split("="))
    before = (user.repo / ".git" / "config").read_bytes()
    plan = ""
    for name, command in WORKS.items():
        plan += f"\n[[tasks]]\nid = '{name}'\ncommand = {json.dumps(command)}\n"
        plan += f"\n[[tasks]]\nid = '{name}-0'\nsandbox = 0\ncommand = {json.dumps(command)}\n"
    run, tasks = user.run(plan)
    assert {name for name, task in tasks.items() if task["state"] != "done"} == {"failing", "failing-0"}

    def check() -> None:
        for name in tasks:
            files, commits = user.missing(run, name)
            assert set(files) <= IGNORED, name
            assert not commits, name
            assert set(files) == (IGNORED if name.startswith("ignored") else set()), name

    check()
    assert user.crew("clean", "--yes").returncode == 0
    check()
    assert user.crew("clean", "--yes", "--ignored").returncode == 0
    check()
    assert user.crew("clean", "--yes", "--discard", run).returncode == 0
    assert not list((user.state / "worktrees").glob("*/*/*"))
    check()
    assert user.git("status", "--porcelain") == ""
    assert (user.repo / ".git" / "config").read_bytes() == before


def test_clean_keeps_ignored_files_until_it_is_told(user: User) -> None:
    """A worktree that holds only ignored files stays until `--ignored`."""
    run, _ = user.run('[[tasks]]\nid = "cache"\ncommand = "mkdir dist; echo d > dist/wheel; echo m > my.mine"\n')
    kept = user.crew("clean", "--yes")
    assert "ignored files" in kept.stdout
    assert list((user.state / "worktrees").glob("*/*/cache.1/dist/wheel"))
    assert user.crew("clean", "--yes", "--ignored").returncode == 0
    assert not list((user.state / "worktrees").glob("*/*/cache.1"))
    assert run


def test_a_change_of_the_person_is_no_conflict_between_results(user: User) -> None:
    """An older result conflicts with the branch that changed the same line, and not with a newer result."""
    _, tasks = user.run("[[tasks]]\nid = 'left'\ncommand = 'sed -i s/^5$/five/ lines'\n")
    left = tasks["left"]["id"]
    (user.repo / "lines").write_text((user.repo / "lines").read_text().replace("\n5\n", "\nFIVE\n"))
    user.git("commit", "-qam", "five")
    _, tasks = user.run("[[tasks]]\nid = 'other'\ncommand = 'echo o > other'\n")
    told = json.loads(user.crew("conflicts", "--json").stdout)
    assert [(pair["task"], pair["with"], pair["files"]) for pair in told["conflicts"]] == [(left, None, ["lines"])]
    head = user.git("rev-parse", "HEAD")
    assert user.crew("take", "left").returncode == 6
    assert user.git("rev-parse", "HEAD") == head
    assert user.crew("take", "other").returncode == 0
    assert (user.repo / "other").read_text() == "o\n"


def test_a_gate_changes_no_result_and_no_question_waits(user: User) -> None:
    """A gate's files are no part of the result; a program that asks its terminal fails; processes share a long name."""
    pool = "import multiprocessing as m\nif __name__ == '__main__':\n    print(m.Manager().list([1]), m.Pool(2).map(abs, [-1]))\n"
    (user.repo / "pool.py").write_text(pool)
    user.git("add", "-A")
    user.git("commit", "-qm", "pool")
    long = "abcdefghijklmnopqrstu"
    run, tasks = user.run(
        "[[tasks]]\nid = 'gated'\ncommand = 'echo w > w'\ngate = 'echo gate >> README'\n"
        "[[tasks]]\nid = 'asks'\ntimeout = '60s'\ncommand = 'read x < /dev/tty'\n"
        "[[tasks]]\nid = 'asks-0'\ntimeout = '60s'\nsandbox = 0\ncommand = 'read x < /dev/tty'\n"
        f"[[tasks]]\nid = '{long}'\ncommand = ['python3', 'pool.py']\n"
        f"[[tasks]]\nid = '{long[:-1]}0'\nsandbox = 0\ncommand = ['python3', 'pool.py']\n"
    )
    assert {name: task["state"] for name, task in tasks.items()} == {
        "gated": "done",
        "asks": "failed",
        "asks-0": "failed",
        long: "done",
        long[:-1] + "0": "done",
    }
    branch = f"nightcrew/{run}/gated/work"
    assert user.git("show", f"{branch}:README") == "upper\n"
    assert "gate" in user.git("show", f"refs/nightcrew/rescue/{run}/gated/1-tips:README")


def test_an_idle_terminal_is_taken_and_killed(user: User) -> None:
    """`take` merges what a person's terminal committed, `--with-changes` the rest, `kill` and `take` all of it."""
    done = user.crew(
        "add",
        "--json",
        "--id",
        "shell",
        "--kind",
        "terminal",
        "--",
        "sh",
        "-c",
        f'echo a > a.txt; git add a.txt; {COMMIT} -m a; echo b > b.txt; touch "$NIGHTCREW_OUT/ready"; exec sleep 600',
    )
    task = json.loads(done.stdout)["tasks"][0]
    ready = user.state / "runs" / task.split("/")[0] / "shell" / "1" / "out" / "ready"
    wait = subprocess.run(["timeout", "60", "sh", "-c", 'until [ -e "$1" ]; do sleep 0.1; done', "-", str(ready)], check=False)
    assert wait.returncode == 0
    taken = user.crew("take", "shell")
    assert taken.returncode == 0, taken.stderr
    assert "b.txt" in taken.stderr
    assert (user.repo / "a.txt").exists()
    assert not (user.repo / "b.txt").exists()
    assert user.crew("kill", "shell").returncode == 0
    taken = user.crew("take", "shell")
    assert taken.returncode == 0, taken.stderr
    assert (user.repo / "b.txt").read_text() == "b\n"


def test_a_map_gives_each_result_in_order(user: User) -> None:
    """Every item has its own result, in the order of the workload; a source without items starts nothing."""
    (user.home / "items").write_text("".join(f"{n}\n" for n in range(60)))
    out = user.home / "out.jsonl"
    done = user.crew("map", "--lines", str(user.home / "items"), "-n", "2", "--out", str(out), "--", "echo", "item {line}")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["result"] for row in rows] == [f"item {n}" for n in range(60)]
    assert user.crew("map", "--files", "none/**/*.zz", "--", "wc", "{file}").returncode == 4
