"""Put a forked process into a sandbox, and a policy as words of a command line."""

from __future__ import annotations

import os
import select

from supervisor.sandbox import exec_step, loopback_proxy
from supervisor.sandbox.exec_step import NO_DEVICES, NO_PROGRAMS, NO_SUID, READ_ONLY

TYPE_CHECKING = False  # `typing` costs more to import than this module

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


# Policy arguments
# ----------------
# A policy as flat words: what `main.py` gets on its command line, and what `namespaces.enter` carries out.


_LENGTHS = {"--ro": 2, "--rw": 2, "--device": 2, "--hide": 1, "--mask": 1, "--overlay": 2, "--own-network": 0, "--gateway": 2, "--proxy": 2}


class PolicyArguments:
    """What to do, in a form that costs nothing to import."""

    def __init__(self) -> None:
        self.mounts: list[tuple[str, str, str]] = []
        """(`ro`, `rw`, `device`, `hide` or `mask`; path; source, empty for the last two)"""
        self.overlay: tuple[str, str] | None = None
        """A directory, and the options of what is mounted there first."""
        self.own_network = False
        self.gateway: tuple[int, str] | None = None
        """Port inside, and the socket it leads to."""
        self.proxy: tuple[int, tuple[str, ...]] | None = None
        """Port inside, and the hosts that may be reached."""

    @property
    def ports(self) -> list[int]:
        """Where the loopback inside must answer, in the order in which the loopback proxy expects their sockets."""
        return [door[0] for door in (self.gateway, self.proxy) if door is not None]


def parse(words: Sequence[str]) -> tuple[PolicyArguments, list[str]]:
    """The orders, and what follows `--`. Raises ValueError with the word that is wrong."""
    orders, at = PolicyArguments(), 0
    while at < len(words) and words[at] != "--":
        word = words[at]
        values = words[at + 1 : at + 1 + _LENGTHS.get(word, 0)]
        if word not in _LENGTHS or len(values) < _LENGTHS[word]:
            raise ValueError(f"not an order: {word}")
        _take(orders, word, values)
        at += 1 + len(values)
    return orders, list(words[at + 1 :])


def _take(orders: PolicyArguments, word: str, values: Sequence[str]) -> None:
    if word == "--own-network":
        orders.own_network = True
    elif word == "--overlay":
        orders.overlay = values[0], values[1]
    elif word == "--gateway":
        orders.gateway = int(values[0]), values[1]
    elif word == "--proxy":
        orders.proxy = int(values[0]), tuple(values[1].split(","))
    else:
        orders.mounts.append((word[2:], values[0], values[1] if len(values) > 1 else ""))


# Namespaces
# ----------
# The second executor: a forked process puts itself into a sandbox and goes on, without an exec, so its memory stays warm.
#
# The order inside init matters: take every tree while all is still visible, then make the host read-only, then lay the trees over
# it, from the root down. Rights go last, and the agent is forked after them.


# ruff: noqa: PTH102, PTH103, PTH109, PTH110, PTH112, PTH120, PTH211
# (pathlib and contextlib cost several ms, see `main.py`)


_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
_HIGHEST = 1 << 20


class SandboxError(Exception):
    """There is no sandbox: which step failed, and the kernel's words. Nothing runs."""


def enter(orders: PolicyArguments) -> None:
    """Put this process, which must have one thread, into the sandbox of `orders`. Returns only in a new process inside: with all open
    handles, in the same directory as it looks inside, leading a process group of its own. On a terminal that this process had in the
    foreground, that group has it now.

    This process itself stays outside, waits, and exits as the one inside did, with 128+n for signal n; it never returns. Raises
    SandboxError, in it, when the sandbox cannot be built.
    """
    parent, cwd = os.getppid(), os.getcwd()
    ready, told = os.pipe()
    alive, hold = os.pipe()
    signals = exec_step.ignore_stops()
    try:
        post = loopback_proxy.start(orders) if orders.ports else -1
        exec_step.unshare(network=orders.own_network)
        exec_step.die_with(parent)  # only now: taking a user namespace clears it
    except OSError as error:
        exec_step.restore(signals)
        raise SandboxError(_words(error)) from error
    terminal = exec_step.foreground_terminal()
    init = os.fork()
    if init:
        _wait_outside(init, ready, told, hold)
    os.close(ready)
    os.close(hold)
    _become_init(orders, cwd, post, told, alive)
    exec_step.restore(signals)
    exec_step.lead_group(terminal)


def _wait_outside(init: int, ready: int, told: int, hold: int) -> NoReturn:
    os.close(told)
    failure = b"".join(iter(lambda: os.read(ready, 4096), b""))
    if failure:
        os.waitpid(init, 0)
        raise SandboxError(failure.decode("utf-8", "replace"))
    os.closerange(3, hold)
    os.closerange(hold + 1, _HIGHEST)
    os._exit(exec_step.exit_status(os.waitpid(init, 0)[1]))


def _become_init(orders: PolicyArguments, cwd: str, post: int, told: int, alive: int) -> None:
    """Build everything as pid 1; returns in its only child of ours, the agent."""
    try:
        exec_step.default_stops()  # what it has no handler for does not reach the first process of a namespace
        exec_step.die_with(0)  # the parent lives in another namespace, so it has no number here
        if select.select([alive], [], [], 0)[0]:
            os._exit(127)
        _build(orders)
        os.chdir(cwd)
        if orders.own_network:
            exec_step.loopback_up()
        if post >= 0:
            exec_step.open_doors(orders.ports, post)
        exec_step.confine()
        agent = os.fork()
    except BaseException as error:  # noqa: BLE001 - a forked child: nothing may unwind into the caller's frames
        os.write(told, _words(error).encode("utf-8", "replace")[:4000])
        os._exit(126)
    os.close(told)
    if agent:
        _reap(agent, alive)
    os.close(alive)


def _reap(agent: int, alive: int) -> NoReturn:
    """Collect whatever ends until the agent does. Our own end then takes everybody else along."""
    exec_step.hide_from_tracers()
    os.closerange(3, alive)
    os.closerange(alive + 1, _HIGHEST)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            os._exit(exec_step.exit_status(status))


def _build(orders: PolicyArguments) -> None:
    exec_step.follow_host()
    if orders.overlay is not None:
        exec_step.new_mount("overlay", *orders.overlay)
    mounts = [mount for mount in orders.mounts if mount[0] != "mask" or os.path.exists(mount[1])]
    sources = ["/dev/null" if act == "mask" else source for act, _, source in mounts]
    trees = [exec_step.take_tree(source) if source else -1 for source in sources]
    directories = [bool(source) and os.path.isdir(source) for source in sources]
    devices = {name: exec_step.take_tree(f"/dev/{name}") for name in _DEVICES}
    if (terminal := _terminal()) is not None:
        devices["console"] = exec_step.take_tree(terminal)
    exec_step.restrict("/", READ_ONLY | NO_SUID | NO_DEVICES)
    exec_step.new_mount("proc", "/proc", flags=NO_SUID | NO_DEVICES | NO_PROGRAMS)
    _new_dev(devices)
    for (act, path, _), tree, directory in zip(mounts, trees, directories, strict=True):
        if act == "hide":
            _make_place(path, directory=True)
            exec_step.new_mount("tmpfs", path, "mode=0755")
        else:
            exec_step.restrict(
                "", (READ_ONLY if act in ("ro", "mask") else 0) | NO_SUID | (0 if act == "device" else NO_DEVICES), tree=tree
            )
            if act != "mask":
                _make_place(path, directory=directory)
            _put(tree, path, may_be_gone=act == "mask")
    for act, path, _ in mounts:
        if act == "hide":
            exec_step.restrict(path, READ_ONLY, below=False)


def _new_dev(devices: dict[str, int]) -> None:
    exec_step.new_mount("tmpfs", "/dev", "mode=0755")
    for name in ("shm", "pts"):
        os.mkdir(f"/dev/{name}")
    exec_step.new_mount("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620", flags=NO_SUID)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name, tree in devices.items():
        _make_place(f"/dev/{name}", directory=False)
        _put(tree, f"/dev/{name}")


def _put(tree: int, path: str, *, may_be_gone: bool = False) -> None:
    try:
        exec_step.attach(tree, path)
    except (FileNotFoundError, NotADirectoryError):
        if not may_be_gone:
            raise
    os.close(tree)


def _make_place(path: str, *, directory: bool) -> None:
    """Something to mount upon. It can be missing only where we have just put something new around it."""
    if os.path.lexists(path):
        return
    os.makedirs(path if directory else os.path.dirname(path), exist_ok=True)
    if not directory:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _terminal() -> str | None:
    for handle in (0, 1, 2):
        try:
            return os.ttyname(handle)
        except OSError:
            continue
    return None


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def run(orders: PolicyArguments, command: list[str]) -> NoReturn:
    """The command-line form: `command` in the sandbox. Exits 126 with one sentence when there is none."""
    try:
        enter(orders)
    except SandboxError as error:
        os.write(2, f"nightcrew: no sandbox: {error}\n".encode("utf-8", "replace"))
        os._exit(126)
    exec_step.execute(command)
