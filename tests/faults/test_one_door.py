"""Nothing outside a sandbox opens, by its path, what a confined agent can write: a whole crew under strace and under an audit hook."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor, program
from supervisor.sandbox.executors import argv as argv_of
from supervisor.sandbox.policy import Policy, Tier
from tests.faults import audited, tracing
from tests.server import snapshot_kit
from tests.support import House, make_repository, shell_task, wait_until

AGENT = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
echo "$NIGHTCREW_EPOCH" >> work && git add work && git commit -qm work
mkdir -p deep/down "$NIGHTCREW_OUT/deep" && echo left | tee left deep/down/left "$NIGHTCREW_OUT/deep/left" > "$TMPDIR/left"
ln -sfn /etc way; ln -sfn "$PWD" deep/up; mkfifo "$NIGHTCREW_OUT/pipe" "$TMPDIR/pipe"; ln -s /etc/passwd "$NIGHTCREW_OUT/report"
echo said; echo complained >&2
"""
FIRST_FAILS = AGENT + 'test "$NIGHTCREW_EPOCH" = 2 || exit 3'
LIVES = AGENT + "touch ready; sleep 300"


ALLOWED = {
    (
        "git worktree",
        ".git",
    ): "`git worktree remove` of an emptied worktree: its link alone is left, and that is read-only in every sandbox",
}
"""A program, what it takes below the directory, and why it may. An entry that nothing needs any more fails the test."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call that is none of the door's."""

    who: str
    call: str
    root: str
    """Which directory of which agent, from the crew's top."""
    below: str

    def __str__(self) -> str:
        return f"{self.who}: {self.call} {self.root}: {self.below}"


class Crew:
    """One whole crew, and what was noted of it."""

    def __init__(self, house: House, traced: bool) -> None:
        self.house = house
        self.traced = traced
        self.top = house.home.root.parent
        self.attempts: list[tuple[str, int]] = []
        self._verbs = 0
        (self.top / "person").mkdir()
        self.env = {**house.env, "HOME": str(self.top / "person")}

    def run(self) -> None:
        house = self.house
        snapshot_kit.with_dependencies(house)
        daemon = subprocess.Popen(self.argv("supervisor", "up"), cwd=house.repo, env=self.env, start_new_session=True)
        try:
            wait_until(lambda: daemon.poll() is not None or house.ready(), "the supervisor to be ready")
            snapshot_kit.create(house, "deps", "--kind", "memory", "--preload", "colorsys")  # so that a zygote forks its runners
            tasks = [
                shell_task("fails", FIRST_FAILS, sandbox=1, retries=1, disk_max="1GiB"),
                shell_task("other", FIRST_FAILS, sandbox=2),
                shell_task("warm", FIRST_FAILS, sandbox=1, snapshot="deps"),
                shell_task("lives", LIVES, sandbox=1, disk_max="1GiB"),
            ]
            house.ok("run", "-d", house.plan("\n".join(tasks)), env=self.env)
            wait_until(lambda: list(house.home.worktrees.glob("*/*/lives.1/ready")), "the one that lives")
            wait_until(lambda: all(view.final for view in house.tasks() if view.name != "lives"), "the others to end")
            names = {name: house.task(name).id for name in ("fails", "other", "warm", "lives")}
            self.verb("logs", names["lives"])
            self.verb("retry", names["other"])
            self.verb("kill", names["lives"])
            house.wait_final()
            for words in (["status"], ["diff", names["fails"]], ["logs", names["warm"]], ["report", "--no-open"], ["doctor"]):
                self.verb(*words)
            self.attempts = [(view.id, epoch) for view in house.tasks() for epoch in range(1, view.epoch + 1)]
            self.roots = {attempt: roots_of(house, *attempt) for attempt in self.attempts}
            self.began = {attempt: began(house, *attempt) for attempt in self.attempts}
            self.verb("clean", "--yes", "--discard", *names.values())
        finally:
            house.reap()
            daemon.terminate()
            daemon.wait()

    def verb(self, *words: str) -> None:
        self._verbs += 1
        name = f"{self._verbs}-{words[0]}"
        done = subprocess.run(
            self.argv(name, *words), cwd=self.house.repo, env=self.env, timeout=120, check=False, capture_output=True, text=True
        )
        assert done.returncode in (0, 1), f"{words}: {done.stdout} {done.stderr}"

    def argv(self, name: str, *words: str) -> list[str]:
        strace = ["strace", *tracing.OPTIONS, "-o", self.top / f"{name}.trace"]
        own = [sys.executable, "-I", "-B", audited.__file__, self.top / f"{name}.notes", self.top, *words]
        return list(map(str, [*strace, *own] if self.traced else own))

    def place_of(self, path: str) -> tuple[tuple[str, int], str, str] | None:
        """The attempt whose agent can write `path`, below which of its directories, and what it is there."""
        for attempt, roots in self.roots.items():
            for root in roots:
                if path.startswith(f"{root}/"):
                    return attempt, os.path.relpath(root, self.top), path[len(root) + 1 :]
        return None


def roots_of(house: House, task: str, epoch: int) -> list[str]:
    """What the agent of an attempt could write, by the orders of its sandbox."""
    orders = (house.home.attempt(task, epoch) / "launch.spec").read_bytes().split(b"\0")
    words = [os.fsdecode(entry[5:]) for entry in orders if entry.startswith(b"wrap=")]
    for entry in orders:
        if entry.startswith(b"policy=") and entry != b"policy=":
            words = [os.fsdecode(word) for word in Path(os.fsdecode(entry[7:])).read_bytes().split(b"\0")]
    found = [words[at + 2] for at, word in enumerate(words) if word == "--rw"]
    found += [words[at + 1] for at, word in enumerate(words) if word == "--bind"]
    assert found, f"{task}:{epoch} ran in no sandbox"
    (worktree,) = (path for path in found if path.startswith(f"{house.home.worktrees}/") and "/." not in path)
    beside = Path(worktree).with_name(f".{Path(worktree).name}")
    return sorted({*found, f"{beside}/upper", f"{beside}/work"}, key=len, reverse=True)


def began(house: House, task: str, epoch: int) -> float:
    """When its runner began, so before its agent did; wall seconds."""
    return float(json.loads((house.home.attempt(task, epoch) / "started.json").read_text())["at"])


def may_trace(top: Path) -> bool:
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", *tracing.OPTIONS, "-o", top / "trial", "/bin/true"], capture_output=True, check=False)
    return done.returncode == 0


_of_the_ordinary_user = pytest.mark.soak if os.geteuid() == 0 else pytest.mark.timeout(300)
"""Root's is for the long round: it traces a crew for a quarter of a minute of processor time, as the ordinary user's does beside it."""


def judge(found: list[Seen], needed: set[tuple[str, str]]) -> None:
    """`needed`: the entries of ALLOWED that must have been met."""
    wrong = collections.Counter(str(seen) for seen in found if (seen.who, seen.below) not in ALLOWED)
    assert not wrong, "\n".join(f"{count} x {seen}" for seen, count in wrong.most_common())
    idle = needed - {(seen.who, seen.below) for seen in found}
    assert not idle, f"nothing needs these entries of ALLOWED any more, take them out: {idle}"


@_of_the_ordinary_user
def test_nothing_outside_a_sandbox_takes_what_an_agent_can_write_by_its_path(tmp_path: Path) -> None:
    works = executors.probe()
    if not works.tiers >= {Tier.FILES, Tier.OFFLINE}:
        pytest.skip(f"no sandbox works here: {works.why_not}")
    crew = Crew(House(tmp_path, make_repository(tmp_path / "repo")), may_trace(tmp_path))
    crew.run()
    orders = {task.rpartition("/")[2]: (crew.house.home.attempt(task, 1) / "launch.spec").read_bytes() for task, _ in crew.attempts}
    assert b"\0policy=/" in orders["warm"] and b"\0wrap=enter\0" in orders["fails"], "both ways into namespaces of our own"
    assert (b"\0wrap=--unshare-pid\0" in orders["other"]) == (Tier.OFFLINE in works.works[Executor.BUBBLEWRAP])
    judge(seen_by_python(crew), set())
    if not crew.traced:
        pytest.skip("NO PROCESS MAY BE TRACED HERE (strace, ptrace): only the audit hook has looked")
    judge(seen_by_the_kernel(crew), {*ALLOWED})


def seen_by_python(crew: Crew) -> list[Seen]:
    found = []
    for file in crew.top.glob("*.notes"):
        for note in map(json.loads, file.read_text().splitlines()):
            for path in note["paths"]:
                if (place := crew.place_of(path)) is not None and note["at"] > crew.began[place[0]]:
                    found.append(Seen(" < ".join(reversed(note["frames"])), note["event"], *place[1:]))
    return found


def seen_by_the_kernel(crew: Crew) -> list[Seen]:
    trace = tracing.Trace(crew.top / "supervisor.trace", crew.house.repo)
    marks = {attempt: trace.began(crew.house.home.attempt(*attempt)) for attempt in crew.attempts}
    assert len(marks) == 6
    assert None not in marks.values(), f"an agent without a sandbox: {marks}"
    found = []
    for touch in trace.touches:
        if (place := crew.place_of(touch.path)) is not None and touch.at > (marks[place[0]] or 0):
            found.append(Seen(touch.program, touch.call, *place[1:]))
    for file in crew.top.glob("*-*.trace"):  # the commands of a person, when every agent has begun
        for touch in tracing.Trace(file, crew.house.repo).touches:
            if (place := crew.place_of(touch.path)) is not None:
                found.append(Seen(touch.program, touch.call, *place[1:]))
    return found


SCRIPT = """
import os, subprocess, sys
root, *sandbox = sys.argv[1:]
here = os.open(root, os.O_RDONLY)
os.close(os.open("by-handle", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here))
os.rename("by-handle", "moved", src_dir_fd=here, dst_dir_fd=here)
os.unlink("moved", dir_fd=here)
os.stat(root + "/stat")
open(root + "/open")
os.rename(root + "/rename", root + "/renamed")
os.close(os.open("deep/file", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here))
os.close(os.open("followed", os.O_RDONLY, dir_fd=here))
open(f"/proc/self/fd/{here}/through")
if os.fork() == 0:
    os.chdir(root)
    os.chmod("chmod", 0o600)
    subprocess.run(["/bin/sh", "-c", ": > shell; cd deep; : > deeper"], check=True)
    os._exit(0)
os.wait()
subprocess.run([*sandbox, "/bin/sh", "-c", ": > " + root + "/inside"], check=True)
"""


@pytest.mark.parametrize("executor", Executor)
def test_the_trace_tells_paths_from_handles_and_inside_from_outside(tmp_path: Path, executor: Executor) -> None:
    if not may_trace(tmp_path):
        pytest.skip("NO PROCESS MAY BE TRACED HERE (strace, ptrace)")
    if Tier.FILES not in executors.probe().works[executor]:
        pytest.skip(f"{executor} does not work here")
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    for name in ("by-handle", "stat", "open", "rename", "deep/file", "followed", "through", "chmod"):
        (root / name).touch()
    policy = Policy(writable=(str(root),), readable=program(), hidden=(), tmp="")
    argv = ["strace", *tracing.OPTIONS, "-o", tmp_path / "trace", sys.executable, "-I", "-c", SCRIPT, root, *argv_of(policy, executor)]
    subprocess.run(list(map(str, argv)), cwd=tmp_path, check=True)
    trace = tracing.Trace(tmp_path / "trace", tmp_path)
    assert (root / "inside").exists() and trace.entries
    seen = [touch.path.removeprefix(f"{root}/") for touch in trace.touches if touch.path.startswith(f"{root}/")]
    wanted = ["open", "rename", "renamed", "deep/file", "followed", "through", "chmod", "shell", "deep", "deep/deeper"]
    assert seen == wanted
