"""The report for people: each figure beside what we want of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.bench.aims import Aim, rows

ROWS = (
    Aim("environment.ms_p50", 15, name="environment, p50", unit="ms"),
    Aim("environment.ms_p99", name="environment, p99", unit="ms"),
    Aim("environment.disk_mb", 1, name="its disk", unit="MB"),
    Aim("environment.first_status_ratio", 1.3, name="first git status, to a plain worktree's", unit="x"),
    Aim("environment.vs_copied_deps", 50, at_least=True, name="faster than with copied dependencies", unit="x"),
    Aim("environment.vs_linked_deps", 5, at_least=True, name="faster than with linked dependencies", unit="x"),
    Aim("private_git.setup_ms_p50", 5, name="a repository of its own, p50", unit="ms"),
    Aim("private_git.import_ms_p50", name="taking a living agent's commit over, p50", unit="ms"),
    Aim("private_git.secure_ms_p50", name="securing a commit and a file, p50", unit="ms"),
    Aim("private_git.secure_more_ms_p50", 90, name="that above an attempt without, p50", unit="ms"),
    Aim("private_git.secure_50k_files_s", 20, name="securing 50,000 files (a quick run: 5,000)", unit="s"),
    Aim("spawn.memory_tier0_ms_p50", 40, name="memory fork, C client, tier 0, p50", unit="ms"),
    Aim("spawn.memory_tier2_ms_p50", 60, name="the same in tier 2, p50", unit="ms"),
    Aim("spawn.python_client_ms_p50", 80, name="the same by the Python client, tier 0, p50", unit="ms"),
    Aim("spawn.cold_ms_p50", name="the same agent started cold, p50", unit="ms"),
    Aim("spawn.ratio", 10, at_least=True, name="cold, to a memory fork in tier 0", unit="x"),
    Aim("spawn.all_50_s", 1, name="a crew at once, all up", unit="s"),
    Aim("spawn.unshared_mb", 5, name="unshared memory of agent and runner", unit="MB"),
    Aim("snapshot.setup_s", name="set-up of a snapshot", unit="s"),
    Aim("snapshot.freeze_s", name="freezing it", unit="s"),
    Aim("snapshot.first_run_s", name="its first run", unit="s"),
    Aim("snapshot.break_even_runs", name="pays from run"),
    Aim("analysts.cold_seq_s", name="analysts, cold, one after another", unit="s"),
    Aim("analysts.cold_par_s", name="analysts, cold, at once", unit="s"),
    Aim("analysts.fork_seq_s", name="analysts, forked, one after another", unit="s"),
    Aim("analysts.fork_par_s", name="analysts, forked, at once", unit="s"),
    Aim("analysts.pool_s", name="the same pieces in a multiprocessing.Pool", unit="s"),
    Aim("analysts.cold_cpu_s", name="processor time of cold analysts", unit="s"),
    Aim("analysts.fork_cpu_s", name="processor time of forked analysts", unit="s"),
    Aim("analysts.pool_cpu_s", name="processor time of the pool", unit="s"),
    Aim("analysts.efficiency", 0.85, at_least=True, name="pool, to forked at once", unit="x"),
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
        f"a crew is {used['spawn']['at_once']} agents",
        f"load average {load['before']:g} before, {load['after']:g} after",
        "",
    ]
    return "\n".join([*lines, *rows(ROWS, report)])


def _stages(found: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in found.items())
