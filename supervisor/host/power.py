"""Whether the machine has mains power, and a lid: /sys/class/power_supply and /proc/acpi/button/lid of Linux."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Power:
    """What the kernel says."""

    known: bool
    """False: it says nothing, as in most containers."""
    mains: bool | None
    """Whether a charger or a supply that can be unplugged gives power; None: there is none to look at."""
    batteries: tuple[int | None, ...] = ()
    """How full each battery of the machine is, in percent; None: not known."""
    lid: str = ""
    """`open` or `closed`; empty: there is none."""


def look(system: Path = Path("/sys"), proc: Path = Path("/proc")) -> Power:
    """As it is now."""
    supplies = system / "class" / "power_supply"
    if not supplies.is_dir():
        return Power(known=False, mains=None, lid=_lid(proc))
    mains: list[bool] = []
    batteries: list[int | None] = []
    for supply in sorted(supplies.iterdir()):
        match _text(supply / "type"):
            case "Battery" if _text(supply / "scope") != "Device":  # of a mouse or a headset
                full = _text(supply / "capacity")
                batteries.append(int(full) if full.isdigit() else None)
            case "Mains" | "USB" | "Wireless":
                mains.append(_text(supply / "online") not in ("0", ""))
    return Power(True, any(mains) if mains else None, tuple(batteries), _lid(proc))


def _lid(proc: Path) -> str:
    for file in sorted((proc / "acpi" / "button" / "lid").glob("*/state")):
        return "closed" if "closed" in _text(file) else "open"
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
