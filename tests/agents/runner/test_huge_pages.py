"""The memory of a process that is forked often, in huge pages."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from agents.runner import warm
from agents.runner.warm import SIZE, written

MAPS = b"""\
55d000000000-55d000400000 r--p 00000000 08:01 1000 /usr/bin/python3.11
55d001000000-55d001400000 rw-p 00000000 08:01 1000 /usr/bin/python3.11
55d002100000-55d002900000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0001000000-7f0001400000 rw-s 00000000 00:05 77 /memfd:shared (deleted)
7f0002100000-7f00022ff000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
"""


def test_it_is_memory_of_the_process_alone_and_a_whole_page_fits() -> None:
    assert [hex(start) for start in written(MAPS)] == [
        "0x55d002200000",
        "0x55d002400000",
        "0x55d002600000",
        "0x7f0000000000",
        "0x7f0000200000",
    ]
    assert list(written(b"")) == []


@pytest.fixture
def has_them() -> None:
    """Huge pages on demand are there and one is free now."""
    memory = ctypes.create_string_buffer(3 * SIZE)
    start = -(-ctypes.addressof(memory) // SIZE) * SIZE
    madvise = getattr(ctypes.CDLL(None, use_errno=True), "madvise", None)
    if madvise is None or madvise(ctypes.c_void_p(start), ctypes.c_size_t(SIZE), warm._MADV_COLLAPSE):
        pytest.skip(f"no huge page on demand here: {os.strerror(ctypes.get_errno())}")


_PROGRAM = """
import os
from agents.runner import warm

def in_huge_pages():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("AnonHugePages"))

before = in_huge_pages()
kept = [bytes([number % 256]) * 300 for number in range(60_000)]
given = warm.collapse()
print(given, in_huge_pages() - before)
if not os.fork():
    kept[7] = b"a fork's own"
    os._exit(0)
os.wait()
print(all(one == bytes([number % 256]) * 300 for number, one in enumerate(kept)))
"""


@pytest.mark.usefixtures("has_them")
def test_what_was_written_is_in_huge_pages_and_forks_have_it() -> None:
    said = subprocess.run([sys.executable, "-I", "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    given, kilobytes, unharmed = said
    assert int(given) > 0 and int(kilobytes) == int(given) * SIZE // 1024 and unharmed == "True"


def test_where_the_system_has_none_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "slurp", lambda _: b"")  # as where there is no /proc
    assert warm.collapse() == 0
