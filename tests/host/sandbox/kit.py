"""A house with two attempts, doors that answer, and a process of the host: what a sandbox has to keep from an agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

from supervisor.host.paths import Home
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor, argv
from supervisor.sandbox.policy import Policy, Tier
from tests.host.sandbox.attacks import ATTACKS, DRIVER, PRELUDE
from tests.support import GIT_IDENTITY, git, make_repository
from worktrees import private_repository
from worktrees.git import Git
from worktrees.private_repository import beside
from worktrees.repository import discover

PYTHON = (sys.executable, "-I", "-S")
TIERS = (Tier.FILES, Tier.OFFLINE)
_VICTIM = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1)); print('up', flush=True); time.sleep(600)"
_GROUPS = (
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/cgroup.procs",
    "/sys/fs/cgroup/unified/cgroup.procs",
    "/sys/kernel/profiling",
)


HOMES = (
    ".claude", ".codex", ".gemini", ".qwen", ".aider", ".cache", ".config/claude", ".config/opencode", ".config/aider", ".config/goose",
    ".config/amp", ".config/crush", ".local/share/claude", ".local/share/opencode", ".local/share/aider", ".local/share/goose",
    ".local/share/amp", ".local/share/crush", ".local/state/opencode", ".local/state/crush", ".cache/nightcrew/clients/bin",
    ".cache/pre-commit/repo1", ".cache/ms-playwright/c", ".cache/pip", ".cache/uv/archive-v0/a", ".npm", ".local/share/pnpm/store",
    ".bun/install/cache",
)  # fmt: skip
"""Directories of command lines below the home that exist before the agent starts; what they need is not there yet."""

PROGRAMS = (
    ".cache/p10k-instant-prompt-user.zsh", ".cache/nightcrew/clients/bin/claude", ".cache/pre-commit/repo1/hook",
    ".cache/uv/archive-v0/a/m.py",
)  # fmt: skip
"""Files in the person's caches that something outside runs."""

Seen = Mapping[str, tuple[int, int, bytes]]
"""Files by path: kind and rights, names (0 of a directory), content."""


@cache
def support() -> executors.Support:
    """What this machine can do, asked once."""
    return executors.probe()


def need(executor: Executor, tier: Tier) -> None:
    """Skip, with the reason, what this machine cannot do."""
    if tier not in support().works[executor]:
        pytest.skip(f"{executor} has no tier {int(tier)} here: {support().why_not.get((executor, tier), 'not Linux')}")


@dataclass
class House:
    """One user's state, repository, home, and two attempts in it: `mine.1` and `other.1`."""

    root: Path
    home: Home = field(init=False)
    canary: str = field(default_factory=lambda: f"canary-{uuid.uuid4().hex}")
    doors: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    changed: list[str] = field(default_factory=list)
    """What was not as before after `attack`."""
    read: dict[str, tuple[object, bytes]] = field(default_factory=dict)
    """Files outside, by path: which state of it was read, and what was in it."""

    def __post_init__(self) -> None:
        self.home = Home(self.root / "state")
        self.repo = make_repository(self.root / "repo")
        self.user = self.root / "user"
        self.elsewhere = self.root / "elsewhere"
        self.attempt = self.home.attempt("run/mine", 1)
        self.store = self.home.project("project") / "caches"
        self.worktree = self._worktree("mine")
        self.neighbour = self._worktree("other")
        self._repository()
        self._files()
        self._doors()

    def _repository(self) -> None:
        """One pack, one object that no pack holds, and a repository of its own for either attempt."""
        git(self.repo, "branch", "theirs")
        git(self.repo, "gc", "-q")
        (self.repo / ".git" / "hooks" / "theirs").touch()
        (self.root / "loose").write_text("an object that no pack holds")
        loose = git(self.repo, "hash-object", "-w", str(self.root / "loose"))
        self.loose = f"{loose[:2]}/{loose[2:]}"
        repository = discover(Git(self.home.root / "git"), self.repo)
        for name, worktree in (("other", self.neighbour), ("mine", self.worktree)):
            admin = self.repo / ".git" / "worktrees" / f"{name}.1"
            self.private = private_repository.make(repository, worktree, admin, f"nightcrew/run/{name}/work", repository.head)

    def _worktree(self, name: str) -> Path:
        path = self.home.worktrees / "project" / "run" / f"{name}.1"
        path.parent.mkdir(parents=True, exist_ok=True)
        git(self.repo, "worktree", "add", "-q", "--no-track", "-b", f"nightcrew/run/{name}/work", str(path))
        return path

    def _files(self) -> None:
        (beside(self.worktree) / "securing.1").mkdir()
        (beside(self.worktree) / "securing.1" / "scratch").touch()
        for name in ("out", "tmp"):
            (self.attempt / name).mkdir(parents=True)
        for name in ("prompt.md", "launch.spec", "exit.json", "started.json"):
            (self.attempt / name).write_text(name)
        self.home.keys.mkdir()
        for file in (self.home.ledger, self.home.keys / "anthropic", self.home.secret):
            file.write_text(self.canary)
        for directory in (self.user / ".docker" / "run", self.elsewhere, *(self.user / name for name in HOMES)):
            directory.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            (self.user / name).write_text("the person's")
        (self.user / ".claude" / "settings.json").write_text("{}")
        (self.user / ".claude.json").write_text("{}")
        (self.user / ".profile").touch()
        (self.elsewhere / "private").write_text(self.canary)
        self.memory, self.their_memory = self.home.memory("project"), self.home.memory("elsewhere")
        self.mail = self.home.project("project") / "mail"
        told = (self.memory / "core.md", self.memory / "semantic" / "fact.md", self.their_memory / "core.md")
        letters = (self.mail / "run" / name / "new" / "1.md" for name in ("mine", "other"))
        for file in (*told, *letters, self.home.project("project") / "memory.db"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"known: {self.canary}")

    def _doors(self) -> None:
        self.home.run_dir.mkdir(parents=True, exist_ok=True)
        for name in ("daemon", "tmux", "gateway"):
            self.listen(socket.AF_UNIX, str(self.home.run_dir / f"{name}.sock"), f"I am {name}".encode())
        self.home.agents_socket.parent.mkdir()
        self.listen(socket.AF_UNIX, str(self.home.agents_socket), b"I am agents")
        for door in (self.elsewhere / "s", self.user / ".docker" / "run" / "s"):
            self.listen(socket.AF_UNIX, str(door), b"I am a door out")
        self.abstract = f"nightcrew-test-{self.canary}"
        self.listen(socket.AF_UNIX, f"\0{self.abstract}", b"I have no path")
        self.port = self.listen(socket.AF_INET, ("127.0.0.1", 0), b"I am the host")
        echo = self.doors.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        echo.bind(("127.0.0.1", 0))
        self.udp = echo.getsockname()[1]
        keeper = threading.Thread(target=_echo, args=(echo,), daemon=True)
        keeper.start()
        self.doors.callback(_wake, self.udp, keeper)
        victim = subprocess.Popen([*PYTHON, "-c", _VICTIM, self.canary], env={"SECRET": self.canary}, stdout=subprocess.PIPE)
        self.doors.callback(_end, victim)
        assert victim.stdout is not None
        victim.stdout.readline()
        self.victim = victim.pid

    def listen(self, family: socket.AddressFamily, address: object, answer: bytes) -> int:
        """A door that says `answer` to everybody and hangs up; its port, when it has one."""
        door = socket.socket(family, socket.SOCK_STREAM)
        door.bind(address)  # type: ignore[arg-type]  # either kind
        door.listen(64)
        keeper = threading.Thread(target=_answer, args=(door, answer), daemon=True)
        keeper.start()
        self.doors.callback(_close, door, keeper)
        return int(door.getsockname()[1]) if family == socket.AF_INET else 0

    def policy(
        self,
        tier: Tier,
        network: bool | tuple[str, ...] = True,
        port: int = 7777,
        *,
        shared_caches: bool = True,
        env: Mapping[str, str] = MappingProxyType({}),
        program: tuple[str, ...] = (),
    ) -> Policy:
        """Return the policy that `mine.1` gets."""
        found = executors.survey(self.home, self.attempt, self.worktree, (self.repo / ".git", self.private, "mine.1"), self.user)
        found = replace(found, memory=executors.unmoved(self.home, self.memory))
        found = replace(found, program=(*found.program, *program))
        found = executors.with_home(found, self.attempt, self.user, env, tier, network, str(self.store))
        return executors.policy(replace(found, shared_caches=shared_caches), tier, network, port)

    def prefix(self, executor: Executor | None, policy: Policy) -> tuple[str, ...]:
        """What runs a command in the sandbox; without one, root's mounts at least stay away from the host."""
        if executor is not None:
            return argv(policy, executor)
        return ("unshare", "--mount", "--propagation", "private") if os.geteuid() == 0 else ()

    @property
    def environment(self) -> dict[str, str]:
        """What the agent gets."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.user), "TMPDIR": str(self.attempt / "tmp"), **GIT_IDENTITY}

    def run(self, prefix: Sequence[str], *command: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """A command in the worktree."""
        return subprocess.run(
            [*prefix, *command],
            cwd=self.worktree,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def attack(self, executor: Executor | None, policy: Policy) -> dict[str, str]:
        """Every attack in one sandbox: why it failed, "" when it did not. Without one, each finds the repository as it was at first."""
        table = self.attempt / "out" / "attacks.json"
        table.write_text(json.dumps({"": PRELUDE, **{attack.name: attack.body for attack in ATTACKS}}))
        argv = [*self.prefix(executor, policy), *PYTHON, "-c", DRIVER, json.dumps(self._told(table))]
        results, at_first = dict[str, str](), self.outside()
        kept = shutil.copytree(self.repo, self.root.with_name(f"{self.root.name}.kept"), symlinks=True)
        with subprocess.Popen(
            argv, cwd=self.worktree, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as inside:
            assert inside.stdin is not None
            assert inside.stdout is not None
            before = at_first
            for attack in ATTACKS:
                print(json.dumps(attack.name), file=inside.stdin, flush=True)
                why = str(json.loads(inside.stdout.readline()))
                after = self.outside() if attack.outside or executor is None else before
                is_changed = attack.outside and after != before
                results[attack.name] = "" if is_changed else why or ("nothing outside changed" if attack.outside else "")
                before = after if executor is not None else self._restored(kept, at_first, after)
        self.changed = changed(at_first, self.outside())
        return results

    def _told(self, table: Path) -> dict[str, object]:
        """What an attacker knows of the house."""
        common = self.repo / ".git"
        known = {
            "state": self.home.root, "run_dir": self.home.run_dir, "attempt": self.attempt, "worktree": self.worktree,
            "neighbour": self.neighbour, "their_git": private_repository.place(self.neighbour), "beside": beside(self.worktree),
            "home": self.user, "memory": self.memory, "their_memory": self.their_memory, "mail": self.mail,
            "repo": self.repo, "common": common, "admin": common / "worktrees" / "mine.1", "elsewhere": self.elsewhere,
            "ref": common / "refs/heads/nightcrew/run/mine/work", "attacks": table, "cgroup": next(filter(os.path.exists, _GROUPS)),
        }  # fmt: skip
        names = {"pack": next((common / "objects" / "pack").glob("*.pack")).name, "loose": self.loose, "abstract": self.abstract}
        numbers = {"port": self.port, "udp": self.udp, "victim": self.victim}
        oid = git(self.repo, "rev-parse", "HEAD")
        return {**{name: str(path) for name, path in known.items()}, **names, **numbers, "canary": self.canary, "other_oid": oid}

    def outside(self) -> Seen:
        """Every file that is none of the attempt's own: kind and rights, names, content."""
        own = {str(path) for path in (self.worktree, self.private, self.store, *(self.attempt / name for name in ("out", "tmp", "home")))}
        return dict(_files(str(self.root), own, self.read))

    def _restored(self, kept: Path, at_first: Seen, now: Seen) -> Seen:
        """Put the repository back when it is not as it was at first; what is outside then."""
        (self.worktree / ".git").write_text(f"gitdir: {self.repo}/.git/worktrees/mine.1\n")
        if not any(name.startswith(f"{self.repo}/") for name in changed(at_first, now)):
            return now
        shutil.rmtree(self.repo)
        shutil.copytree(kept, self.repo, symlinks=True)
        return self.outside()


def _files(top: str, leave_out: Container[str], read: dict[str, tuple[object, bytes]]) -> Iterator[tuple[str, tuple[int, int, bytes]]]:
    for entry in os.scandir(top):
        if entry.path in leave_out:
            continue
        seen = entry.stat(follow_symlinks=False)
        yield entry.path, (seen.st_mode, 0 if stat.S_ISDIR(seen.st_mode) else seen.st_nlink, _content(entry.path, seen, read))
        if stat.S_ISDIR(seen.st_mode):
            yield from _files(entry.path, leave_out, read)


def _content(path: str, seen: os.stat_result, read: dict[str, tuple[object, bytes]]) -> bytes:
    """Of a file, or where a link leads. What is in `read` is read again when it was changed: the kernel stamps that, and no attack the
    stamp. What had changed just before it was read may change without another stamp."""
    if stat.S_ISLNK(seen.st_mode):
        return os.fsencode(os.readlink(path))
    if not stat.S_ISREG(seen.st_mode):
        return b""
    stamp = (seen.st_ino, seen.st_size, seen.st_ctime_ns)
    if path in read and read[path][0] == stamp:
        return read[path][1]
    content = Path(path).read_bytes()
    if seen.st_ctime_ns < time.time_ns() - 10**8:
        read[path] = (stamp, content)
    return content


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Names that came, went, or are no longer the same."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


@dataclass(frozen=True)
class Box:
    """A sandbox around the attempt of a house."""

    house: House
    executor: Executor
    tier: Tier
    prefix: tuple[str, ...]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command inside, to its end."""
        return self.house.run(self.prefix, *command)

    def python(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A program inside, which must succeed."""
        done = self.run(*PYTHON, "-c", program, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    @contextlib.contextmanager
    def start(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command inside, which is ended with the body."""
        process = subprocess.Popen([*self.prefix, *command], cwd=self.house.worktree, env=self.house.environment, stdout=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def living(marker: str) -> list[int]:
    """Processes of this host with `marker` in their command line, zombies not among them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


def children(pid: int) -> list[int]:
    """Everything below a process, from outside."""
    with contextlib.suppress(OSError):
        direct = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*direct, *(below for child in direct for below in children(child))]
    return []


@contextlib.contextmanager
def house(root: Path) -> Iterator[House]:
    """A house whose doors are closed afterwards."""
    made = House(root)
    with made.doors:
        yield made


def without_private_tmp(policy: Policy) -> Policy:
    """The same, judged by its other rules alone: the tests' files lie below /tmp, where a private one hides everything anyway."""
    return replace(policy, tmp="")


def _answer(door: socket.socket, answer: bytes) -> None:
    with door:
        while True:
            try:
                peer, _ = door.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.sendall(answer)


def _echo(echo: socket.socket) -> None:
    while True:
        data, peer = echo.recvfrom(64)
        if data == b"end":
            return
        echo.sendto(data, peer)


def _wake(port: int, keeper: threading.Thread) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as knock:
        knock.sendto(b"end", ("127.0.0.1", port))
    keeper.join()


def _close(door: socket.socket, keeper: threading.Thread) -> None:
    door.shutdown(socket.SHUT_RDWR)
    keeper.join()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
