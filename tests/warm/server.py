"""Imports nightcrew once and forks it as often as somebody asks who is connected to its socket (a handle that listens, its first argument).
Ends when who connected first is gone.

It also finds out once which sandboxes work here, reads our kinds of agent, and makes a ledger and an account, of which a fork that makes
one copies the pages. A fork imports by itself what few tests run and much hangs
on: the measurements, the server of MCP, and the agents, of which the SDK alone is 3,000 modules and a second.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from agents.kinds import kinds
from agents.runner import warm
from agents.zygote.server import threads
from supervisor.gateway import lifecycle
from supervisor.gateway.account import schema
from supervisor.sandbox import executors
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
    sys.modules.pop(_MAIN, None)
    assert threads() == 1, "a fork would have the locks of a thread and not the thread"
    gc.collect()
    gc.freeze()
    warm.prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _serve(listener, os.fork)


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

    def __init__(self, config: Path, keys: Path) -> None:
        if threads() > 1:  # it runs already
            super().__init__(config, keys)
            return
        self._config = config
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
