"""A short process: makes a user and a mount namespace, mounts one overlay in it, and waits until its parent has opened both.

    python -I -S overlay_helper.py TARGET OPTIONS FLAGS

It answers one line: `ok`, or the number of the error and the step that met it. The namespaces live on in the parent's
handles after it has ended. Users and groups are mapped to themselves, so that owners look the same inside: git compares them.
"""

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000


def main(target: str, options: str, flags: str) -> None:
    """Do it, and say so. Raises OSError; its `filename` is the step."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "private mounts")
    mode = ctypes.c_ulong(MS_NOSUID | MS_NODEV | int(flags))
    check(libc.mount(b"overlay", os.fsencode(target), b"overlay", mode, os.fsencode(options)), "mount")
    os.write(1, b"ok\n")
    os.read(0, 1)


def write(path: str, text: str) -> None:
    """One write, as the kernel wants it for these files."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def check(code: int, step: str) -> None:
    """Raises OSError when a system call failed."""
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), step)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        os.write(1, f"{error.errno} {error.filename}\n".encode())
