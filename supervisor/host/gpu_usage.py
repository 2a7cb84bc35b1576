"""What processes take of graphics processors, as NVIDIA's `nvidia-smi` tells it. Other vendors' tools are not asked.

The format is that of `nvidia-smi pmon` (its manual, and the header that it prints): a table with a `#` line that names the columns. No
machine of ours has such a device.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from supervisor.core.account import Gpu
from supervisor.host import gpus

_ASKED = ("pmon", "-c", "1", "-s", "um")
"""One look at utilisation (`sm`, percent) and memory (`fb`, MiB) of each process."""
_TOOL_S = 5.0
"""The tool looks for a second before it answers."""


class GpuUsage:
    """Asks the tool where there is a device of its vendor; a tool that fails is not asked again."""

    def __init__(self, tool: str | None = None) -> None:
        """`tool`: path of the program; None: looked for, where there is a device."""
        self._tool = tool or (_found() if tool is None else None)

    def read(self) -> Mapping[int, Gpu] | None:
        """What each process takes, by pid; None where nothing tells. Blocks for up to 5 s where there is a device."""
        if self._tool is None:
            return None
        try:
            asked = subprocess.run([self._tool, *_ASKED], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_S, check=True)
        except (OSError, subprocess.SubprocessError):
            self._tool = None
            return None
        return parse(asked.stdout.decode("utf-8", "replace"))


def _found() -> str | None:
    return shutil.which("nvidia-smi") if any(one.vendor == "nvidia" for one in gpus.probe().gpus) else None


def parse(text: str) -> dict[int, Gpu]:
    """What the tool printed, by pid; a process on several devices has the sum. `-` is what it does not tell."""
    found: dict[int, Gpu] = {}
    for row in _rows(text):
        pid = row.get("pid", "")
        if not pid.isdigit():
            continue
        before = found.get(int(pid), Gpu())
        memory, share = _number(row.get("fb")), _number(row.get("sm"))
        found[int(pid)] = Gpu(
            before.memory if memory is None else (before.memory or 0) + memory * 2**20,
            before.utilisation if share is None else (before.utilisation or 0.0) + share / 100,
        )
    return found


def _rows(text: str) -> Iterator[dict[str, str]]:
    names: Sequence[str] = ()
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            names = names or words  # the second such line has the units
        elif names:
            yield dict(zip(names, words, strict=False))


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdigit() else None
