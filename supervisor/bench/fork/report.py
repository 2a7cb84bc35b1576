"""The report for people: each figure beside what we want of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure; `least` says that more is better. An aim of None is none."""

    room: str
    key: str
    name: str
    unit: str = ""
    aim: float | None = None
    least: bool = False

    def missed(self, value: float | None) -> bool:
        """Whether `value` misses it; one that could not be measured misses nothing."""
        if value is None or self.aim is None:
            return False
        return value < self.aim if self.least else value > self.aim


ROWS = (
    Aim("environment", "ms_p50", "environment, p50", "ms", 15),
    Aim("environment", "ms_p99", "environment, p99", "ms"),
    Aim("environment", "disk_mb", "its disk", "MB", 1),
    Aim("environment", "first_status_ratio", "first git status, to a plain worktree's", "x", 1.3),
    Aim("environment", "vs_copied_deps", "faster than with copied dependencies", "x", 50, least=True),
    Aim("environment", "vs_linked_deps", "faster than with linked dependencies", "x", 5, least=True),
    Aim("private_git", "setup_ms_p50", "a repository of its own, p50", "ms", 5),
    Aim("private_git", "import_ms_p50", "taking a living agent's commit over, p50", "ms"),
    Aim("private_git", "secure_ms_p50", "securing a commit and a file, p50", "ms"),
    Aim("private_git", "secure_more_ms_p50", "that above an attempt without, p50", "ms", 90),
    Aim("private_git", "secure_50k_files_s", "securing 50,000 files (a quick run: 5,000)", "s", 20),
    Aim("spawn", "memory_tier0_ms_p50", "memory fork, C client, tier 0, p50", "ms", 40),
    Aim("spawn", "memory_tier2_ms_p50", "the same in tier 2, p50", "ms", 60),
    Aim("spawn", "python_client_ms_p50", "the same by the Python client, tier 0, p50", "ms", 80),
    Aim("spawn", "cold_ms_p50", "the same agent started cold, p50", "ms"),
    Aim("spawn", "ratio", "cold, to a memory fork in tier 0", "x", 10, least=True),
    Aim("spawn", "all_50_s", "{at_once} at once, all up", "s", 1),
    Aim("spawn", "unshared_mb", "unshared memory of agent and runner", "MB", 5),
    Aim("snapshot", "setup_s", "set-up of a snapshot", "s"),
    Aim("snapshot", "freeze_s", "freezing it", "s"),
    Aim("snapshot", "first_run_s", "its first run", "s"),
    Aim("snapshot", "break_even_runs", "pays from run", ""),
    Aim("analysts", "cold_seq_s", "analysts, cold, one after another", "s"),
    Aim("analysts", "cold_par_s", "analysts, cold, at once", "s"),
    Aim("analysts", "fork_seq_s", "analysts, forked, one after another", "s"),
    Aim("analysts", "fork_par_s", "analysts, forked, at once", "s"),
    Aim("analysts", "pool_s", "the same pieces in a multiprocessing.Pool", "s"),
    Aim("analysts", "efficiency", "pool, to forked at once", "x", 0.85, least=True),
)
"""The full run's aims, on two quiet cores; a quick run is smaller and says so."""


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    used, load, size = report["material"], report["load_average"], report["options"]
    lines = [
        f"files by {report['environment']['backend']}, client in {used['spawn']['client']}, set-up: {used['setup']}",
        f"repository of {size['repository']['files']:,} files, {used['repository_bytes'] / 1e6:.0f} MB; dependencies of "
        f"{size['dependencies']['files']:,} files, {size['dependencies']['bytes'] / 1e6:.0f} MB; "
        f"{report['analysts']['files']:,} Python files",
        f"a memory fork in tier 0, median ms of each stage: {_stages(used['spawn']['stages_ms']['memory_tier0'])}",
        f"load average {load['before']:g} before, {load['after']:g} after",
        "",
    ]
    return "\n".join([*lines, *(_row(row, report[row.room][row.key], used["spawn"]) for row in ROWS)])


def _stages(found: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in found.items())


def _row(row: Aim, value: float | None, used: Mapping[str, Any]) -> str:
    shown = "not measured" if value is None else f"{value:.0f}" if isinstance(value, int) else f"{value:.2f}"
    line = f"{row.name.format_map(used):<46}{shown:>12} {row.unit:<3}"
    if row.aim is not None:
        line += f" aim {'>=' if row.least else '<='} {row.aim:g}"
    return (line + ("  MISSED" if row.missed(value) else "")).rstrip()
