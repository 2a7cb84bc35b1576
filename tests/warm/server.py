"""Imports nightcrew once and forks it as often as somebody asks who is connected to its socket (a handle that listens, its first argument).
Ends when who connected first is gone.

What a supervisor starts for long, its gateway and the zygote of our own agents, is forked too, by a second process (`_nurse`), and so is
the supervisor that a command starts in a pane, by a third one (`_start_panes`).

It also finds out once which sandboxes work here, reads our kinds of agent, and makes a ledger and an account, of which a fork that makes
one copies the pages. A fork imports by itself what few tests run and much hangs
on: the measurements, the server of MCP, and the agents, of which the SDK alone is 3,000 modules and two seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import select
import selectors
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from agents import compiling, zygote
from agents.kinds import kinds
from agents.runner import main as runner
from agents.runner import warm
from agents.tmux import Pane, Tmux
from agents.zygote import server as zygotes_server
from agents.zygote.server import threads
from supervisor.client import start
from supervisor.gateway import lifecycle
from supervisor.gateway.account import schema
from supervisor.sandbox import executors
from supervisor.server import gateway_process
from supervisor.store import sqlite

_PACKAGES = ("supervisor", "memory", "worktrees", "nightcrew")
_RARE = ("nightcrew.plugins.bench", "supervisor.features.mcp")
_MAIN = "supervisor.cli.main"  # what `-m` runs must not be imported already
_PATH = os.environb.get(b"PATH")


def main() -> None:
    for name in _modules():
        importlib.import_module(name)
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"  # as worktrees.git has it, which imports GitPython when it is used first
    import multiprocessing.pool  # noqa: F401

    import git.cmd  # noqa: F401

    executors.known()  # half of what a supervisor's start takes; a fork that finds other programs asks again
    list(kinds())  # the files of ours, which are kept once read
    Counter([]), Counter(iter(()))  # whether these are mappings is asked of each class of all those modules, and kept too
    lifecycle.Reading = _Reading  # type: ignore[misc]  # a quarter of a second at each start
    _copy_schemas(sqlite.LEDGER, schema.ACCOUNT)  # a fifth of a supervisor's start
    place = Path(tempfile.mkdtemp(prefix="nc-"))  # short: sockets lie there
    nursery = _open_nursery(place)
    _keep_clients(place)
    sys.modules.pop(_MAIN, None)
    assert threads() == 1, "a fork would have the locks of a thread and not the thread"
    gc.collect()
    gc.freeze()
    warm.prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _start_nurse(nursery)
    _start_panes(place)
    try:
        with socket.socket(fileno=int(sys.argv[1])) as listener:
            _serve(listener, os.fork)
    finally:  # not by `atexit`, nor by what uses it: forks run that
        shutil.rmtree(place)


def _copy_schemas(*books: sqlite.Book) -> None:
    """Have forks make a new file of these from the pages of one that was made here, statement by statement."""
    patterns = {book.name: _made(book) for book in books}
    migrate = sqlite._migrate

    def copy_or_migrate(db: sqlite3.Connection, path: Path, version: int, book: sqlite.Book) -> None:
        if version == 0 and book.name in patterns:
            patterns[book.name].backup(db)
        else:
            migrate(db, path, version, book)

    sqlite._migrate = copy_or_migrate


def _made(book: sqlite.Book) -> sqlite3.Connection:
    """A new file of these, in memory: without a handle or a lock, which forks would have in common."""
    pages = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory() as place:
        sqlite.make(Path(place, "book"), book)
        with contextlib.closing(sqlite3.connect(Path(place, "book"))) as made:
            made.backup(pages)
    return pages


class _Reading(lifecycle.Reading):
    """As a gateway reads its settings when it starts: by a process of its own, here a fork, which need not import what checks them."""

    nursery = ""

    def __init__(self, config: Path, keys: Path) -> None:
        self._config = config
        if threads() > 1:  # it runs already
            self._child = _NursedReading(self.nursery, config, keys)
        else:
            self._child = _Child(lambda: lifecycle._main(str(config), str(keys)))  # type: ignore[assignment]  # as much of Popen as it takes


class _Child:
    """A fork that does one thing, and what it writes to stdout."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._said, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(writer, 1)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            try:
                act()
                sys.stdout.flush()
            except BaseException:  # noqa: BLE001 - a forked child: nothing may unwind into the gateway's frames
                traceback.print_exc()
            os._exit(0)
        os.close(writer)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *error: object) -> None:
        os.waitpid(self._pid, 0)

    def communicate(self, timeout: float) -> tuple[bytes, None]:  # noqa: ARG002 - as Popen has it; a test has its own
        with open(self._said, "rb") as said:
            return said.read(), None

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


# What a supervisor starts for long
# ---------------------------------
# A gateway and a zygote of our own agents begin by importing, for one second and for three. Where a fork of ours starts one as the product
# does, with `subprocess.Popen`, it has it from the nurse instead: a process that imports the agents when one is first asked for.
# To the supervisor it is the same but for its parent: it ends, outlives it and is seen in /proc as any other.


_OURS = ("nightcrew.", "supervisor.")
_ROOM = {"NIGHTCREW_ROOM": "."}  # as a zygote gives itself when it starts over, for which this process was started with room enough


class _Subprocess:
    """`subprocess` as the modules see it that start a gateway or a zygote."""

    def __init__(self, nursery: str) -> None:
        self._nursery = nursery

    def __getattr__(self, name: str) -> object:
        return getattr(subprocess, name)

    def Popen(self, argv: list[str], **how: Any) -> subprocess.Popen[bytes]:
        if argv[2:4] == ["-m", "supervisor.gateway"]:
            return _Nursed(self._nursery, argv, **how)
        if argv[4:5] == ["agents.zygote"] and argv[7].startswith(_OURS) and "--path" not in argv:
            env = {name: text for name, text in how.pop("env").items() if name != "LC_ALL"} | {"LC_CTYPE": "C.UTF-8"} | _ROOM
            return _Nursed(self._nursery, [*argv, "--room", "."], env=env, **how)
        return subprocess.Popen(argv, **how)


class _Nursed(subprocess.Popen[bytes]):
    """As much of Popen as it takes: a child of the nurse, which reaps it and then says its status to us, if we are there."""

    def __init__(
        self, nursery: str, argv: list[str], *, cwd: str | Path, env: dict[str, str], stdout: int, stderr: int, first: str = "", **_: Any
    ) -> None:
        self.args, self.returncode = argv, None
        self.stdin = self.stdout = self.stderr = None
        umask = os.umask(0o77)
        os.umask(umask)
        self._nurse = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._nurse.connect(nursery)
        with tempfile.TemporaryFile() as paper:
            order = {"do": "start", "argv": argv, "cwd": os.fspath(cwd), "env": env, "session": True, "umask": umask, "first": first}
            paper.write(json.dumps(order).encode("utf-8", "surrogateescape"))
            paper.flush()
            socket.send_fds(self._nurse, [b"?"], [paper.fileno(), stdout, stderr])
        self.pid = int(json.loads(self._nurse.recv(4096))["number"])

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            look = select.poll()
            look.register(self._nurse, select.POLLIN)
            if look.poll(None if timeout is None else timeout * 1000):
                self.returncode = int(self._nurse.recv(64) or -signal.SIGKILL)
                self._nurse.close()
        return self.returncode


class _NursedReading(_Nursed):
    """A gateway that runs reads its settings; by a process of its own, too."""

    def __init__(self, nursery: str, config: Path, keys: Path) -> None:
        self._said, writer = os.pipe()
        first = f"import os, sys; from supervisor.gateway import lifecycle; lifecycle._main({str(config)!r}, {str(keys)!r})"
        argv = [sys.executable, "-I", "-m", "supervisor.gateway.lifecycle", str(config), str(keys)]
        try:
            super().__init__(
                nursery,
                argv,
                cwd=os.getcwd(),
                env=dict(os.environ),
                stdout=writer,
                stderr=2,
                first=f"{first}; sys.stdout.flush(); os._exit(0)",
            )
        finally:
            os.close(writer)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[bytes, Any]:  # noqa: ARG002 - Popen's
        with open(self._said, "rb") as said:
            return said.read(), None


def _keep_clients(place: Path) -> None:
    """Have forks copy from `place` the small clients in C that a supervisor compiles for its home; the first that needs one compiles it."""
    compile_in = compiling.build

    def copy_or_compile(source: Path, directory: Path) -> Path | None:
        if os.environb.get(b"PATH") != _PATH:  # it may lead to no compiler, or to one that does not work
            return compile_in(source, directory)
        made = compile_in(source, place)
        if made is None or (target := directory / made.name).exists():
            return made and compile_in(source, directory)
        draft = Path(tempfile.mkdtemp(prefix=".client-", dir=directory)) / "client"
        shutil.copy(made, draft)
        draft.rename(target)
        draft.parent.rmdir()
        return target

    compiling.build = copy_or_compile


def _open_nursery(place: Path) -> socket.socket:
    """Where forks find the nurse."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(place / "nurse"))
    listener.listen(64)
    _Reading.nursery = listener.getsockname()
    for module in (gateway_process, zygote.lifecycle):
        module.subprocess = _Subprocess(listener.getsockname())  # type: ignore[attr-defined]
    return listener


def _start_nurse(listener: socket.socket) -> None:
    """It lives as long as this process."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            ours.close()
            os.close(int(sys.argv[1]))
            _nurse(listener, theirs)
        except BaseException:  # noqa: BLE001 - a forked child: nothing may unwind into its parent's frames
            traceback.print_exc()
        os._exit(70)
    _nurse_ends_with_us.append(ours)
    listener.close()
    theirs.close()


_nurse_ends_with_us: list[socket.socket] = []


def _nurse(listener: socket.socket, parent: socket.socket) -> None:
    """Fork what each who connects orders, once, and say its status there when it has ended. Ends with the process that forked it."""
    os.closerange(3, min(listener.fileno(), parent.fileno()))
    asking: dict[int, socket.socket] = {}
    living: dict[int, tuple[int, socket.socket]] = {}
    look = select.poll()
    for each in (listener, parent):
        look.register(each, select.POLLIN)
    while True:
        for handle, _ in look.poll():
            if handle == parent.fileno():
                os._exit(0)
            if handle == listener.fileno():
                caller, _ = listener.accept()
                asking[caller.fileno()] = caller
                look.register(caller, select.POLLIN)
                continue
            look.unregister(handle)
            if handle in asking:
                pid = _nursed(caller := asking.pop(handle))
                if pid is None:
                    caller.close()
                    continue
                life = os.pidfd_open(pid)
                living[life] = pid, caller
                look.register(life, select.POLLIN)
            else:
                pid, caller = living.pop(handle)
                status = _reap(pid)
                os.close(handle)
                with caller, contextlib.suppress(OSError):  # the supervisor may be gone
                    caller.send(str(status).encode())


def _nursed(caller: socket.socket) -> int | None:
    """Do the order of this caller: the pid of what was started; None where it was killed before it ordered."""
    try:
        _, handles, _, _ = socket.recv_fds(caller, 1, 8)
    except ConnectionError:
        return None
    if not handles:
        return None
    with open(handles[0], "rb") as paper:
        paper.seek(0)
        order = json.load(paper)
    _get_ready([name for name in _preloaded(order["argv"]) if name not in sys.modules])
    pid = _fork(order, handles[1:], (), os.fork)
    for handle in handles[1:]:
        os.close(handle)
    with contextlib.suppress(OSError):
        caller.send(json.dumps({"number": pid}).encode())
    return pid


def _preloaded(argv: list[str]) -> list[str]:
    return argv[7].split(",") if "agents.zygote" in argv else []


def _get_ready(modules: list[str]) -> None:
    """Import them for all that come."""
    if modules:
        for name in modules:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        warm.prepare()
        warm.prepare = lambda: None  # of a zygote, for its forks: it would copy what it has in common with us


# A supervisor in a pane
# ----------------------
# `nightcrew up -d`, and any command that needs a supervisor where none runs, starts one in a pane of tmux. There the product's own client
# asks a zygote for it, as an agent's pane does; the pane, its terminal, its signals and its status are the supervisor's all the same.


_PR_SET_PDEATHSIG = 1


def _start_panes(place: Path) -> None:
    """Have forks start supervisors by the client, where it can be compiled. Its zygote lives as long as this process."""
    client, door, us = zygote.build_client(place), place / "panes", os.getpid()
    if client is None:
        return
    listener = socket.socket(socket.AF_UNIX, zygote.lifecycle.KIND)
    listener.bind(str(door))
    listener.listen(64)
    _Supervisor.place = place
    if os.fork() == 0:
        try:
            os.close(int(sys.argv[1]))
            _nurse_ends_with_us.pop().close()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            zygotes_server.runner = _Supervisor  # type: ignore[assignment,attr-defined]  # as much of the runner as it takes
            zygotes_server.Server(listener, lambda: os.getppid() == us).serve()
        except BaseException:  # noqa: BLE001 - a forked child: nothing may unwind into its parent's frames
            traceback.print_exc()
        os._exit(0)
    listener.close()

    class Panes(Tmux):
        def spawn(self, name: str, argv: Sequence[str], cwd: Path, tags: Mapping[str, str], size: tuple[int, int] = (200, 50)) -> Pane:
            if os.environb.get(b"PATH") == _PATH and argv[-1].startswith("/"):
                umask = os.umask(0o77)
                os.umask(umask)
                order = {"session": False, "umask": umask, "cwd": os.fspath(cwd), "argv": argv}
                _Supervisor.paper(place, argv[-1]).write_text(json.dumps(order), "utf-8", "surrogateescape")
                argv = [str(client), str(door), *argv]
            return super().spawn(name, argv, cwd, tags, size)

    start.Tmux = Panes  # type: ignore[attr-defined]


class _Supervisor:
    """What is forked for a pane. The client says the last word of the command, and beside our socket lies all of it."""

    __file__ = runner.__file__
    place: Path

    @staticmethod
    def paper(place: Path, last: str) -> Path:
        return place / hashlib.sha256(os.fsencode(last)).hexdigest()

    @classmethod
    def main(cls, last: str, *, forked: bool) -> NoReturn:  # noqa: ARG003 - the runner's
        order = json.loads(cls.paper(cls.place, last).read_text("utf-8", "surrogateescape"))
        _become({**order, "env": dict(os.environ)}, [])


def _serve(listener: socket.socket, fork: Callable[[], int]) -> None:
    """Do as those say who connect, one order after the other."""
    first, _ = listener.accept()
    known = [first, listener]
    with selectors.PollSelector() as look:  # it has no handle, which a fork would have to close
        for each in known:
            look.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in look.select():
                asker = cast("socket.socket", key.fileobj)
                if asker is listener:
                    known.append(listener.accept()[0])
                    look.register(known[-1], selectors.EVENT_READ)
                elif not _obey(asker, known, fork):
                    if asker is first:
                        return
                    look.unregister(asker)
                    known.remove(asker)
                    asker.close()


def _obey(asker: socket.socket, known: Sequence[socket.socket], fork: Callable[[], int]) -> bool:
    """Whether there was an order. A worker may be killed at any moment."""
    try:
        word, handles, _, _ = socket.recv_fds(asker, 1, 8)
    except ConnectionError:
        return False
    if not word:
        return False
    with open(handles[0], "rb") as paper:
        paper.seek(0)
        order = json.load(paper)
    try:
        number = _fork(order, handles[1:], known, fork) if order["do"] == "start" else _reap(order["pid"])
        answer: dict[str, Any] = {"number": number}
    except OSError as error:
        answer = {"error": [error.errno, error.strerror, error.filename]}
    for handle in handles[1:]:
        os.close(handle)
    with contextlib.suppress(ConnectionError):
        asker.send(json.dumps(answer).encode())
    return True


def _modules() -> Iterator[str]:
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name != _MAIN and not module.name.endswith("__main__") and not module.name.startswith(_RARE):
                yield module.name


def _reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(order: dict[str, Any], handles: list[int], known: Sequence[socket.socket], fork: Callable[[], int]) -> int:
    os.close(os.open(order["cwd"], os.O_PATH | os.O_DIRECTORY))
    pid = fork()
    if pid == 0:
        try:
            for each in known:
                each.close()
            _become(order, handles)
        except BaseException:  # noqa: BLE001 - a forked child: nothing may unwind into the server's frames
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    return pid


def _become(order: dict[str, Any], handles: list[int]) -> NoReturn:
    if order["session"]:
        os.setsid()
    os.umask(order["umask"])
    os.chdir(order["cwd"])
    for number, handle in enumerate(handles, 1):
        os.dup2(handle, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    argv = [os.fsencode(word) for word in order["argv"]]
    environment = {os.fsencode(name): os.fsencode(text) for name, text in order["env"].items()}
    if environment.get(b"PATH") != _PATH:
        executors.known.cache_clear()
    program = warm.recognise(argv, environment)
    if program is None:  # for example under a locale that a running interpreter cannot change to
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606 - our own words
    exec(order.get("first", ""), {})  # noqa: S102 - a test's own text
    warm.run(program, argv, environment)


if __name__ == "__main__":
    main()
