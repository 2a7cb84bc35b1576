"""The system calls that Python 3.11 has no function for. Each raises OSError with the kernel's answer and the object. All but `clone_tree`
are Linux's.

Mounts go by the calls of Linux 5.2 to 5.12 (`open_tree`, `move_mount`, `mount_setattr`): a tree can be taken before something covers it,
and a whole tree made read-only at once. Their numbers are the same on every architecture.
"""

# ruff: noqa: PTH123
# (pathlib and contextlib cost several ms, see `main.py`)

import ctypes
import errno
import os
import struct

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


def prctl(option: int, *values: "int | ctypes.c_void_p") -> None:
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


def new_mount(kind: str, path: "str | os.PathLike[str]", options: str = "", flags: int = NO_SUID | NO_DEVICES) -> None:
    """Mount a new file system of `kind` at `path`."""
    _check(_libc.mount(kind.encode(), os.fsencode(path), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options)), os.fspath(path))


def unmount(path: "str | os.PathLike[str]", *, lazy: bool = False) -> None:
    """Never through a symbolic link. `lazy`: it disappears now and ends with its last user. Raises OSError (EBUSY: in use)."""
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
    _check(_libc.umount2(os.fsencode(path), ctypes.c_int(flags)), os.fspath(path))


def share_file(source: int, target: int) -> None:
    """Let the open file `target` have the blocks of `source`, copied on write (xfs, btrfs and others)."""
    import fcntl

    fcntl.ioctl(target, _FICLONE, source)


def clone_tree(source: "os.PathLike[str]", target: "os.PathLike[str]") -> None:
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
