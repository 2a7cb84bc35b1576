"""How busy the machine is, as its files say."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from supervisor.host.usage import PressureReader

PSI = "some avg10=25.00 avg60=1.00 avg300=2.00 total=3\nfull avg10=12.50 avg60=1.00 avg300=2.00 total=3\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """What a calm machine of two cores says."""
    made = tmp_path / "proc"
    for name, text in {
        "loadavg": "1.50 1.00 1.00 2/300 4711\n",
        "sys/kernel/threads-max": "30000\n",
        "sys/kernel/pid_max": "3000\n",
        "pressure/memory": PSI,
        "pressure/cpu": PSI,
        "self/cgroup": "0::/crew/agents\n",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def test_this_machine_says_something() -> None:
    pressure, memory = PressureReader(2).look()
    assert memory is not None and 0 < memory.available <= memory.total
    assert pressure.load is not None and pressure.memory is not None and 0 <= pressure.memory <= 1 and not pressure.trouble


def test_load_stalls_and_processes(proc: Path, tmp_path: Path) -> None:
    reader = PressureReader(2, proc, tmp_path / "none")
    pressure, _ = reader.look()
    assert (pressure.load, pressure.memory_stall, pressure.io_stall, pressure.processes) == (0.75, 0.125, None, 0.1)
    assert reader.cpu_stall() == 0.25
    (proc / "pressure/cpu").unlink()
    (proc / "loadavg").write_text("3.50 1 1 2/300 4711\n")
    assert reader.cpu_stall() == 0.75, "without PSI the load says it"


@pytest.mark.parametrize("text", [None, "", "fast", "1.0 1.0 1.0"])
def test_what_cannot_be_read_is_said(proc: Path, tmp_path: Path, text: str | None) -> None:
    (proc / "loadavg").unlink()
    if text is not None:
        (proc / "loadavg").write_text(text)
    reader = PressureReader(2, proc, tmp_path / "none")
    pressure, memory = reader.look()
    assert pressure.load is None and "its load cannot be looked at" in pressure.trouble and memory is not None
    (proc / "pressure/cpu").unlink()
    assert reader.cpu_stall() is None


@pytest.mark.parametrize("names", [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")])
def test_the_nearer_limit_of_a_control_group_counts(proc: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    groups = tmp_path / "groups"
    (groups / "crew/agents").mkdir(parents=True)
    (groups / "crew" / names[0]).write_text(str(100 * 2**20))
    (groups / "crew" / names[1]).write_text(str(90 * 2**20))
    (groups / "crew/memory.stat").write_text(f"anon 7\ninactive_file {20 * 2**20}\nactive_file {10 * 2**20}\n")
    (groups / "crew/agents" / names[0]).write_text("max")
    (groups / "crew/agents/pids.max").write_text("10")
    (groups / "crew/agents/pids.current").write_text("9")
    pressure, memory = PressureReader(2, proc, groups).look()
    assert memory is not None and (memory.total, memory.available) == (100 * 2**20, 40 * 2**20)
    assert pressure.memory == pytest.approx(0.6) and pressure.processes == 0.9
    (groups / "crew" / names[0]).write_text(str(2**60))
    _, memory = PressureReader(2, proc, groups).look()
    assert memory is not None and memory.total == psutil.virtual_memory().total, "a limit above the machine's memory is none"
