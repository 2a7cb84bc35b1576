"""What tells a process from every other one, and an attempt's processes from all others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

TAG_VARIABLE = "NIGHTCREW_TAG"
"""Environment variable that every process of an attempt inherits; its value is `tag(home, task, epoch)`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for ever: a pid alone is reused, a pid with its kernel start ticks and boot is not."""

    pid: int
    ticks: int
    """Field 22 of /proc/PID/stat: clock ticks after boot."""
    boot_id: str


def mark(tag_text: str) -> int:
    """A number in 2^40..2^62 for RLIMIT_LOCKS, which Linux keeps and inherits but has not enforced since 2.4.

    It is inherited across fork, exec, setsid and `env -i`, so it finds the daemons that shed the environment tag.
    """
    span = 2**62 - 2**40
    return 2**40 + int.from_bytes(hashlib.sha256(tag_text.encode()).digest()[:8], "big") % span
