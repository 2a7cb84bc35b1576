"""The system calls that no sandboxed agent gets, as a seccomp filter.

* ioctl TIOCSTI and TIOCLINUX: an agent keeps its terminal, and these would type into it on behalf of the person who is attached.
* add_key, request_key, keyctl: the kernel's keyrings belong to a user and know no namespace.

An architecture that is not in the table has no filter, and `probing` says so.
"""

import ctypes
import os
import struct

from supervisor.host.sandbox.syscalls import prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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


def _program() -> "Iterable[bytes]":
    yield _step(_LOAD, _MACHINE)
    for machine, (ioctl, keys) in _CALLS.items():
        block = [*_block(machine, ioctl, keys)]
        yield _step(_EQUAL, machine, 0, len(block))
        yield from block
    yield _step(_RETURN, _ALLOW)


def _block(machine: int, ioctl: int, keys: tuple[int, ...]) -> "Iterable[bytes]":
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
