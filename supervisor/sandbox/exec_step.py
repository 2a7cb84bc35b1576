"""The last steps before the agent's own code, and the system calls for them."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # `typing` costs more to import than this module

if TYPE_CHECKING:
    from collections.abc import Iterable


# Syscalls
# --------
# The system calls that Python 3.11 has no function for. Each raises OSError with the kernel's answer and the object. All but
# `clone_tree` are Linux's.
#
# Mounts go by the calls of Linux 5.2 to 5.12 (`open_tree`, `move_mount`, `mount_setattr`): a tree can be taken before something
# covers it, and a whole tree made read-only at once. Their numbers are the same on every architecture.


# ruff: noqa: PTH123
# (pathlib and contextlib cost several ms, see `main.py`)


_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _AT_NO_AUTOMOUNT = -100, 0x1000, 0x8000, 0x800
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
READ_ONLY, NO_SUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8  # MOUNT_ATTR_*, and MS_* alike
_MS_REC, _MS_SLAVE = 0x4000, 0x80000

_CLONE_NEWNS, _CLONE_NEWCGROUP, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64  # as many as version 3 has room for; the kernel refuses the numbers it does not know

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_FICLONE = 0x40049409  # include/uapi/linux/fs.h
_CLONE_NOFOLLOW = 1  # <sys/clonefile.h>

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def prctl(option: int, *values: int | ctypes.c_void_p) -> None:
    """prctl(2)."""
    arguments = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in (*values, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *arguments), f"prctl {option}")


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, `parent` as getppid() gives it, ends; exits at once when it has."""
    prctl(_PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(127)


def hide_from_tracers() -> None:
    """Let no process of the same user look into or steer this one."""
    prctl(_PR_SET_DUMPABLE, 0)


def unshare(*, network: bool) -> None:
    """Enter namespaces of our own: mounts, ipc, host name, cgroups, the network when asked; the next child begins the process numbers anew.

    Who may not, takes a user namespace as well, with the same user and group ids and no others in it.
    """
    flags = _CLONE_NEWNS | _CLONE_NEWCGROUP | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | (_CLONE_NEWNET if network else 0)
    if os.geteuid() == 0 and _libc.unshare(flags) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(flags | _CLONE_NEWUSER), "namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def loopback_up() -> None:
    """Let 127.0.0.1 answer in a new network namespace."""
    import _socket
    import fcntl

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    finally:
        probe.close()


def follow_host() -> None:
    """Pass no mount of ours on to the host, but let go of what the host unmounts."""
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "mounts of our own")


def new_mount(kind: str, path: str | os.PathLike[str], options: str = "", flags: int = NO_SUID | NO_DEVICES) -> None:
    """Mount a new file system of `kind` at `path`."""
    _check(_libc.mount(kind.encode(), os.fsencode(path), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options)), os.fspath(path))


def unmount(path: str | os.PathLike[str], *, lazy: bool = False) -> None:
    """Never through a symbolic link. `lazy`: it disappears now and ends with its last user. Raises OSError (EBUSY: in use)."""
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
    _check(_libc.umount2(os.fsencode(path), ctypes.c_int(flags)), os.fspath(path))


def share_file(source: int, target: int) -> None:
    """Let the open file `target` have the blocks of `source`, copied on write (xfs, btrfs and others)."""
    import fcntl

    fcntl.ioctl(target, _FICLONE, source)


def clone_tree(source: os.PathLike[str], target: os.PathLike[str]) -> None:
    """clonefile(2) of macOS: a whole directory, copied on write, with its times. ENOSYS elsewhere."""
    if not hasattr(_libc, "clonefile"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), os.fspath(target))
    _check(_libc.clonefile(os.fsencode(source), os.fsencode(target), ctypes.c_int(_CLONE_NOFOLLOW)), os.fspath(target))


def take_tree(path: str) -> int:
    """A copy of what is visible at `path`, everything mounted below it included, attached nowhere: a handle."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_NO_AUTOMOUNT
    return _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags)), path)


def attach(tree: int, path: str) -> None:
    """Let a taken tree stand at `path`."""
    _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH), path)


def restrict(path: str, attributes: int, *, tree: int = _AT_FDCWD, below: bool = True) -> None:
    """Add _MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
    READ_ONLY, NO_SUID, NO_DEVICES to what stands at `path`, or to a taken `tree`; `below`: to everything mounted below it too."""
    flags = (_AT_RECURSIVE if below else 0) | (_AT_EMPTY_PATH if tree != _AT_FDCWD else 0)
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    _check(_libc.syscall(_MOUNT_SETATTR, tree, os.fsencode(path), flags, wanted, ctypes.c_size_t(len(wanted))), path or "a taken tree")


def give_up_rights() -> None:
    """No capability, now or after any exec, and none to be regained: root inside can do only what it may as an owner of files."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break  # this kernel has no more of them, or the bound is not ours to lower, and then no_new_privs alone holds
    header, none = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    _check(_libc.capset(header, none), "capabilities")


# Seccomp filter
# --------------
# The system calls that no sandboxed agent gets, as a seccomp filter.
#
# * ioctl TIOCSTI and TIOCLINUX: an agent keeps its terminal, and these would type into it on behalf of the person who is attached.
# * add_key, request_key, keyctl: the kernel's keyrings belong to a user and know no namespace.
#
# An architecture that is not in the table has no filter, and `probing` says so.


_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x50000 | 1, 0x50000 | 38
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
_NUMBER, _MACHINE, _SECOND = 0, 4, 24  # offsets in struct seccomp_data; the low half of the second argument, little endian
_X32 = 0x40000000

_CALLS = {
    0xC000003E: (16, (248, 249, 250)),  # x86_64
    0x40000003: (54, (286, 287, 288)),  # i386, which an x86_64 kernel runs too
    0xC00000B7: (29, (217, 218, 219)),  # aarch64
    0x40000028: (54, (309, 310, 311)),  # arm
    0xC00000F3: (29, (217, 218, 219)),  # riscv64
}
"""AUDIT_ARCH_* -> number of ioctl, numbers of the key calls (the kernel's syscall tables)."""
MACHINES = frozenset({"x86_64", "aarch64", "riscv64"})
"""What os.uname() calls the machines of the table."""


def install() -> None:
    """For this process and all its children, for ever. Needs no_new_privs. Raises OSError."""
    if os.uname().machine not in MACHINES:
        return
    program = b"".join(_program())
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.cast(ctypes.c_char_p(head), ctypes.c_void_p))


def _program() -> Iterable[bytes]:
    yield _step(_LOAD, _MACHINE)
    for machine, (ioctl, keys) in _CALLS.items():
        block = [*_block(machine, ioctl, keys)]
        yield _step(_EQUAL, machine, 0, len(block))
        yield from block
    yield _step(_RETURN, _ALLOW)


def _block(machine: int, ioctl: int, keys: tuple[int, ...]) -> Iterable[bytes]:
    """For one machine: it ends in a verdict on every path, so the next machine's block is never entered."""
    yield _step(_LOAD, _NUMBER)
    if machine == 0xC000003E:  # the x32 numbers of the same machine: nothing uses them but what wants to pass by a filter
        yield _step(_AT_LEAST, _X32, 0, 1)
        yield _step(_RETURN, _ENOSYS)
    for key in keys:
        yield _step(_EQUAL, key, 0, 1)
        yield _step(_RETURN, _ENOSYS)
    yield _step(_EQUAL, ioctl, 1, 0)
    yield _step(_RETURN, _ALLOW)
    yield _step(_LOAD, _SECOND)  # the kernel reads 32 bits of it; so do we, or the upper half would hide the request
    for request in (_TIOCSTI, _TIOCLINUX):
        yield _step(_EQUAL, request, 0, 1)
        yield _step(_RETURN, _EPERM)
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


# Exec step
# ---------
# The last steps before the agent's own code, the same for both executors: rights, terminal, doors, exec.


# ruff: noqa: SIM105
# (pathlib and contextlib cost several ms, see `main.py`)


if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import Any, NoReturn
else:
    import _signal as signal

_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def ignore_stops() -> dict[int, Any]:
    """Be deaf to the polite signals; what they did before."""
    return {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}


def default_stops() -> None:
    """As the system starts a process."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_DFL)


def restore(before: dict[int, Any]) -> None:
    """What `ignore_stops` returned."""
    for number, action in before.items():
        signal.signal(number, action)


def confine() -> None:
    """Give up every right, and the calls that reach out of a sandbox."""
    give_up_rights()
    install()


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


def open_doors(ports: Sequence[int], post: int) -> None:
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


def execute(command: list[str]) -> NoReturn:
    """Become `command`; 126 or 127 with one sentence when that fails, as a shell would."""
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(2, f"nightcrew: {command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
