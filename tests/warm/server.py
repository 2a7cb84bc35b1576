"""Imports nightcrew once and forks it as often as the other end of the socket (a handle, its first argument) asks. Ends with that.

It also finds out once which sandboxes work here, and reads our kinds of agent. A fork imports by itself what few tests run and much hangs
on: the measurements, the server of MCP, and the agents, of which the SDK alone is 3,000 modules and a second.

What such a fork starts of our own programs (`_STARTS`) is forked warm as well. It cannot fork itself, as it has threads then: beside it,
from before it had any, waits a fork that does nothing else (`_Kin`), and what that one forks is its child as if Popen had started it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from agents.kinds import kinds
from agents.runner import warm
from agents.zygote.preload import threads
from supervisor.host.sandbox import probing

_PACKAGES = ("supervisor", "memory", "worktrees")
_RARE = ("supervisor.bench", "supervisor.cli.mcp")
_MAIN = "supervisor.cli.main"  # what `-m` runs must not be imported already
_PATH = os.environb.get(b"PATH")
_STARTS = {_MAIN: "supervisor.daemon.gateway_process", "supervisor.gateway": "supervisor.gateway.settings"}
"""Whose Popen is to fork, in which program: a supervisor's gateway, and what reads the gateway's settings."""
_CLONE = {"x86_64": 56}.get(os.uname().machine, 220)  # <asm/unistd.h>
_CLONE_PARENT = 0x8000  # <linux/sched.h>


def main() -> None:
    for name in _modules():
        importlib.import_module(name)
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"  # as worktrees.git has it, which imports GitPython when it is used first
    import multiprocessing.pool  # noqa: F401

    import git.cmd  # noqa: F401

    probing.known()  # half of what a supervisor's start takes; a fork that finds other programs asks again
    list(kinds())  # the files of ours, which are kept once read
    Counter([]), Counter(iter(()))  # whether these are mappings is asked of each class of all those modules, and kept too
    sys.modules.pop(_MAIN, None)
    assert threads() == 1, "a fork would have the locks of a thread and not the thread"
    gc.collect()
    gc.freeze()
    warm.prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as asker:
        _serve(asker, os.fork)


def _serve(asker: socket.socket, fork: Callable[[], int]) -> None:
    """Do as `asker` says, until it is closed at its other end."""
    while True:
        word, handles, _, _ = socket.recv_fds(asker, 1, 8)
        if not word:
            return
        with open(handles[0], "rb") as paper:
            paper.seek(0)
            order = json.load(paper)
        try:
            number = _fork(order, handles[1:], asker, fork) if order["do"] == "start" else _reap(order["pid"])
            answer: dict[str, Any] = {"number": number}
        except OSError as error:
            answer = {"error": [error.errno, error.strerror, error.filename]}
        for handle in handles[1:]:
            os.close(handle)
        asker.send(json.dumps(answer).encode())


def _modules() -> Iterator[str]:
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name != _MAIN and not module.name.endswith("__main__") and not module.name.startswith(_RARE):
                yield module.name


def _reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(order: dict[str, Any], handles: list[int], asker: socket.socket, fork: Callable[[], int]) -> int:
    os.close(os.open(order["cwd"], os.O_PATH | os.O_DIRECTORY))
    pid = fork()
    if pid == 0:
        try:
            asker.close()
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
        probing.known.cache_clear()
    program = warm.recognise(argv, environment)
    if program is None:  # for example under a locale that a running interpreter cannot change to
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606 - our own words
    if program.module == "supervisor.gateway.settings":
        sys.modules.pop(program.module)  # as `_MAIN`
    if b"NIGHTCREW_TEST_COLD" not in environment and (
        program.module == "supervisor.gateway" or (program.module == _MAIN and "up" in program.arguments)
    ):
        importlib.import_module(_STARTS[program.module]).subprocess = _Kin().module  # type: ignore[attr-defined]  # a module has it
    exec(order["first"], {})  # noqa: S102 - a test's own text
    warm.run(program, argv, environment)


class _Kin:
    """A fork of this process that forks for it. It ends with this process."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                self._socket.close()
                os.setsid()
                os.chdir("/")
                null = os.open(os.devnull, os.O_RDWR)
                for handle in (0, 1, 2):  # who reads what this process says waits until nobody has it open
                    os.dup2(null, handle)
                _serve(theirs, _fork_a_sibling)
            finally:
                os._exit(0)
        theirs.close()
        kin = self

        class Popen(subprocess.Popen[bytes]):
            """As the real one, whose handling of pipes and of the end it has."""

            def _execute_child(self, args: list[str], _: object, __: object, ___: object, ____: object, *given: Any) -> None:
                cwd, env, _, _, _, *pipes = given[:11]
                session = given[-2]
                self.pid = kin.fork(args, cwd, os.environ if env is None else env, (pipes[3], pipes[5]), session)
                self._child_created = True
                self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

        self.module = types.SimpleNamespace(**{**vars(subprocess), "Popen": Popen})

    def fork(self, argv: list[str], cwd: Any, env: Mapping[str, str], outputs: tuple[int, int], session: bool) -> int:
        """The pid of a child of this process."""
        order = {"do": "start", "argv": argv, "cwd": os.fspath(cwd or os.getcwd()), "env": dict(env), "session": session, "umask": _umask()}
        handles = [number if handle == -1 else handle for number, handle in enumerate(outputs, 1)]
        with tempfile.TemporaryFile() as paper, self._turn:
            paper.write(json.dumps(order).encode("utf-8", "surrogateescape"))
            paper.flush()
            socket.send_fds(self._socket, [b"?"], [paper.fileno(), *handles])
            answer = json.loads(self._socket.recv(4096))
        if "error" in answer:
            raise OSError(*answer["error"])
        return int(answer["number"])


def _fork_a_sibling() -> int:
    """As os.fork, but the child is one of our parent's."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(ctypes.PyDLL(None).syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    assert pid >= 0
    return pid


def _umask() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))


if __name__ == "__main__":
    main()
