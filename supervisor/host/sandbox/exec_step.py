"""The last steps before the agent's own code, the same for both executors: rights, terminal, doors, exec."""

# ruff: noqa: SIM105
# (pathlib and contextlib cost several ms, see `main.py`)

import os

from supervisor.host.sandbox import seccomp_filter as calls
from supervisor.host.sandbox import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import Any, NoReturn
else:
    import _signal as signal

_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def ignore_stops() -> "dict[int, Any]":
    """Be deaf to the polite signals; what they did before."""
    return {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}


def default_stops() -> None:
    """As the system starts a process."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_DFL)


def restore(before: "dict[int, Any]") -> None:
    """What `ignore_stops` returned."""
    for number, action in before.items():
        signal.signal(number, action)


def confine() -> None:
    """Give up every right, and the calls that reach out of a sandbox."""
    syscalls.give_up_rights()
    calls.install()


def foreground_terminal() -> int:
    """A handle on the terminal whose foreground our process group is, -1 for none: of handle 0, or of our session where we lead that group
    ourselves. A headless agent does; who only tries a sandbox out is in its starter's group, and must not take the terminal from it.
    Inside, a group from outside is number 0 to both questions about handle 0."""
    try:
        if os.tcgetpgrp(0) == os.getpgrp():
            return os.dup(0)
    except OSError:
        pass
    if os.getpgrp() != os.getpid():
        return -1
    terminal = own_terminal()
    try:
        if terminal < 0 or os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    except OSError:
        pass  # it hung up
    os.close(terminal)
    return -1


def own_terminal() -> int:
    """A handle on the terminal of our session, -1 for none."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def lead_group(terminal: int) -> None:
    """Lead a process group that reaches nobody outside: Ctrl-C on `terminal` (-1: there is none) is the agent's alone, and so is what it
    sends to its own group."""
    os.setpgid(0, 0)
    if terminal < 0:
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, os.getpgrp())
    except OSError:
        pass  # the terminal has gone away; the agent will find out
    signal.signal(signal.SIGTTOU, before)
    os.close(terminal)


def open_doors(ports: "Sequence[int]", post: int) -> None:
    """Listen on 127.0.0.1 in this network namespace, and leave what listens to the loopback proxy at the other end of `post`."""
    import _socket
    import array

    doors = [_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM) for _ in ports]
    for door, port in zip(doors, ports, strict=True):
        door.bind(("127.0.0.1", port))
        door.listen(128)
    handles = array.array("i", [door.fileno() for door in doors])
    hatch = _socket.socket(fileno=post)
    hatch.sendmsg([b"doors"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)])
    for mine in (*doors, hatch):
        mine.close()


def exit_status(status: int) -> int:
    """Return the exit status that tells of this status of `waitpid`: 128+n for signal n."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def execute(command: list[str]) -> "NoReturn":
    """Become `command`; 126 or 127 with one sentence when that fails, as a shell would."""
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(2, f"nightcrew: {command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
