"""The second executor: a forked process puts itself into a sandbox and goes on, without an exec, so its memory stays warm.

The order inside init matters: take every tree while all is still visible, then make the host read-only, then lay the trees over it, from
the root down. Rights go last, and the agent is forked after them.
"""

# ruff: noqa: PTH102, PTH103, PTH109, PTH110, PTH112, PTH120, PTH211
# (pathlib and contextlib cost several ms, see `main.py`)

import os
import select

from supervisor.host.sandbox import exec_step, loopback_proxy, syscalls
from supervisor.host.sandbox.syscalls import NO_DEVICES, NO_PROGRAMS, NO_SUID, READ_ONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from supervisor.host.sandbox.policy_arguments import PolicyArguments

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
_HIGHEST = 1 << 20


class SandboxError(Exception):
    """There is no sandbox: which step failed, and the kernel's words. Nothing runs."""


def enter(orders: "PolicyArguments") -> None:
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
        syscalls.unshare(network=orders.own_network)
        syscalls.die_with(parent)  # only now: taking a user namespace clears it
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


def _wait_outside(init: int, ready: int, told: int, hold: int) -> "NoReturn":
    os.close(told)
    failure = b"".join(iter(lambda: os.read(ready, 4096), b""))
    if failure:
        os.waitpid(init, 0)
        raise SandboxError(failure.decode("utf-8", "replace"))
    os.closerange(3, hold)
    os.closerange(hold + 1, _HIGHEST)
    os._exit(exec_step.exit_status(os.waitpid(init, 0)[1]))


def _become_init(orders: "PolicyArguments", cwd: str, post: int, told: int, alive: int) -> None:
    """Build everything as pid 1; returns in its only child of ours, the agent."""
    try:
        exec_step.default_stops()  # what it has no handler for does not reach the first process of a namespace
        syscalls.die_with(0)  # the parent lives in another namespace, so it has no number here
        if select.select([alive], [], [], 0)[0]:
            os._exit(127)
        _build(orders)
        os.chdir(cwd)
        if orders.own_network:
            syscalls.loopback_up()
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


def _reap(agent: int, alive: int) -> "NoReturn":
    """Collect whatever ends until the agent does. Our own end then takes everybody else along."""
    syscalls.hide_from_tracers()
    os.closerange(3, alive)
    os.closerange(alive + 1, _HIGHEST)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            os._exit(exec_step.exit_status(status))


def _build(orders: "PolicyArguments") -> None:
    syscalls.follow_host()
    if orders.overlay is not None:
        syscalls.new_mount("overlay", *orders.overlay)
    mounts = [mount for mount in orders.mounts if mount[0] != "mask" or os.path.exists(mount[1])]
    sources = ["/dev/null" if act == "mask" else source for act, _, source in mounts]
    trees = [syscalls.take_tree(source) if source else -1 for source in sources]
    directories = [bool(source) and os.path.isdir(source) for source in sources]
    devices = {name: syscalls.take_tree(f"/dev/{name}") for name in _DEVICES}
    if (terminal := _terminal()) is not None:
        devices["console"] = syscalls.take_tree(terminal)
    syscalls.restrict("/", READ_ONLY | NO_SUID | NO_DEVICES)
    syscalls.new_mount("proc", "/proc", flags=NO_SUID | NO_DEVICES | NO_PROGRAMS)
    _new_dev(devices)
    for (act, path, _), tree, directory in zip(mounts, trees, directories, strict=True):
        if act == "hide":
            _make_place(path, directory=True)
            syscalls.new_mount("tmpfs", path, "mode=0755")
        else:
            syscalls.restrict("", (READ_ONLY if act in ("ro", "mask") else 0) | NO_SUID | (0 if act == "device" else NO_DEVICES), tree=tree)
            if act != "mask":
                _make_place(path, directory=directory)
            _put(tree, path, may_be_gone=act == "mask")
    for act, path, _ in mounts:
        if act == "hide":
            syscalls.restrict(path, READ_ONLY, below=False)


def _new_dev(devices: dict[str, int]) -> None:
    syscalls.new_mount("tmpfs", "/dev", "mode=0755")
    for name in ("shm", "pts"):
        os.mkdir(f"/dev/{name}")
    syscalls.new_mount("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620", flags=NO_SUID)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name, tree in devices.items():
        _make_place(f"/dev/{name}", directory=False)
        _put(tree, f"/dev/{name}")


def _put(tree: int, path: str, *, may_be_gone: bool = False) -> None:
    try:
        syscalls.attach(tree, path)
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


def run(orders: "PolicyArguments", command: list[str]) -> "NoReturn":
    """The command-line form: `command` in the sandbox. Exits 126 with one sentence when there is none."""
    try:
        enter(orders)
    except SandboxError as error:
        os.write(2, f"nightcrew: no sandbox: {error}\n".encode("utf-8", "replace"))
        os._exit(126)
    exec_step.execute(command)
