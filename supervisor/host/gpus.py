"""Graphics processors: which there are, and what processes take of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.kernel.account import Gpu
from supervisor.kernel.errors import Refused

# Gpus
# ----
# Graphics processors: which there are, and how an agent is kept to some of them.
#
# Found by what their drivers show in /dev and /proc, without their libraries or tools. Being kept to some is a matter of
# environment variables, which an agent can change: a sandbox that does not show it the other devices is what keeps it.


_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
NONE_VISIBLE = {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
"""What each vendor's documents say for "none": an index that no device has; `void` for NVIDIA's container runtime."""
_NVIDIA_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


@dataclass(frozen=True, slots=True)
class GpusGpu:
    """One device."""

    vendor: str
    """`nvidia` or `amd`."""
    index: int
    """Among those of its vendor, as its variable counts them."""
    name: str
    devices: tuple[str, ...]
    """Files in /dev that using it takes, those included that all of its vendor share."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe found."""

    gpus: tuple[GpusGpu, ...]
    why: str
    """When there is none to use: why, in words for a person. Empty otherwise."""


def probe(root: Path = Path("/")) -> Found:
    """Look for devices. `root` is where /dev, /proc and /sys are. Opens no device and never raises."""
    gpus = (*_nvidia(root), *_amd(root))
    return Found(gpus, "" if gpus else _why_none(root))


def chosen(found: Found, wanted: bool | tuple[int, ...]) -> tuple[GpusGpu, ...]:
    """All that there are, none, or those of these indexes, of every vendor. Raises Refused for an index that no device has."""
    if isinstance(wanted, bool):
        return found.gpus if wanted else ()
    missing = sorted(set(wanted) - {gpu.index for gpu in found.gpus})
    if missing:
        why = found.why or f"there are {', '.join(f'{gpu.vendor} {gpu.index}' for gpu in found.gpus)}"
        raise Refused("no such GPU", on=f"gpus = {list(wanted)}", why=why, kept="the task, it was not started", hint="nightcrew doctor")
    return tuple(gpu for gpu in found.gpus if gpu.index in wanted)


def visibility(found: Collection[GpusGpu], chosen: Collection[GpusGpu]) -> dict[str, str]:
    """Environment variables that show `chosen` of `found` and no other. Empty where there is no device: nothing is to be hidden."""
    if not found:
        return {}
    shown = dict(NONE_VISIBLE)
    for vendor, names in _VARIABLES.items():
        indexes = [str(gpu.index) for gpu in sorted(chosen, key=lambda one: one.index) if gpu.vendor == vendor]
        shown |= dict.fromkeys(names, ",".join(indexes)) if indexes else {}
    return shown


def _nvidia(root: Path) -> Iterable[GpusGpu]:
    """One directory a device, named by its PCI address; the driver numbers its device files by `Device Minor`."""
    shared = tuple(path for path in _NVIDIA_SHARED if (root / path[1:]).exists())
    every = sorted(_listed(root / "proc/driver/nvidia/gpus"))
    facts = [_facts(entry / "information") for entry in every]
    seen = [(name.get("Model", "NVIDIA"), f"/dev/nvidia{name['Device Minor']}") for name in facts if name.get("Device Minor", "").isdigit()]
    there = [(model, device) for model, device in seen if (root / device[1:]).exists()]
    return [GpusGpu("nvidia", index, model, (device, *shared)) for index, (model, device) in enumerate(there)]


def _amd(root: Path) -> Iterable[GpusGpu]:
    """Nodes of the compute driver; those that no render device belongs to (minor 0) are processors."""
    if not (root / "dev/kfd").exists():
        return []
    nodes = sorted(_listed(root / "sys/class/kfd/kfd/topology/nodes"), key=lambda entry: (len(entry.name), entry.name))
    minors = [_pairs(_read(node / "properties")).get("drm_render_minor", "0") for node in nodes]
    there = [device for minor in minors if minor != "0" and (root / (device := f"/dev/dri/renderD{minor}")[1:]).exists()]
    return [GpusGpu("amd", index, "AMD", (device, "/dev/kfd")) for index, device in enumerate(there)]


def _why_none(root: Path) -> str:
    if _listed(root / "proc/driver/nvidia/gpus"):
        return "unavailable: NVIDIA's driver knows devices, but /dev shows none of them"
    if (root / "dev/kfd").exists():
        return "unavailable: AMD's compute driver is there, but no device of its is"
    return "unavailable: no NVIDIA or AMD device here"


def _facts(file: Path) -> dict[str, str]:
    """Lines such as `Model: \t NVIDIA A100`."""
    lines = (line.partition(":") for line in _read(file).splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _pairs(text: str) -> dict[str, str]:
    """Lines such as `simd_count 320`."""
    return dict(found) if (found := re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)) else {}


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


# Gpu usage
# ---------
# What processes take of graphics processors, as NVIDIA's `nvidia-smi` tells it. Other vendors' tools are not asked.
#
# The format is that of `nvidia-smi pmon` (its manual, and the header that it prints): a table with a `#` line that names the
# columns. No machine of ours has such a device.


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
    return shutil.which("nvidia-smi") if any(one.vendor == "nvidia" for one in probe().gpus) else None


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
