"""`nightcrew bench fork`: as small as it gets it has every figure, it says what it was made on, and it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents import zygote
from nightcrew.plugins.bench import crews, fork
from nightcrew.plugins.bench.crews import SupervisedRun
from nightcrew.plugins.bench.fork import Options, Size
from supervisor.client import protocol
from supervisor.host import processes
from supervisor.host.paths import Home
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.snapshots import SnapshotKind, SnapshotSpec
from tests.bench.test_spawn import users_of
from tests.support import git, wait_until
from worktrees.backends import mounts
from worktrees.git import Git, Place
from worktrees.repository import discover

ROOT = Path(__file__).parents[2]
TINY = Options(
    repository=Size(20, 100_000),
    dependencies=Size(40, 100_000),
    turns=1,
    rounds=1,
    attempts=1,
    leftover=50,
    crew=2,
    bursts=1,
    seed=7,
)
pytestmark = pytest.mark.timeout(600)
"""Some forty agents of two supervisors, most of them one after the other: half a minute alone, minutes on a busy machine."""
KEYS = {
    "environment": ("backend", "ms_p50", "ms_p99", "disk_mb", "first_status_ratio", "vs_copied_deps", "vs_linked_deps"),
    "private_git": ("setup_ms_p50", "import_ms_p50", "secure_ms_p50", "secure_more_ms_p50", "secure_50k_files_s"),
    "spawn": (
        "memory_tier0_ms_p50", "memory_tier2_ms_p50", "python_client_ms_p50", "cold_ms_p50", "ratio", "all_50_s", "unshared_mb", "client",
    ),
}  # fmt: skip
NO_NUMBERS = ("backend", "client")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    where = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork, "REFS", 50)
        patch.setattr(fork, "OURS_A_TURN", 3)
        made: dict[str, Any] = json.loads(json.dumps(crews.report(fork, TINY, where, print)))
    assert_nothing_stays(where)
    return made


def assert_nothing_stays(where: Path) -> None:
    assert [entry.name for entry in where.iterdir() if entry.name != "said"] == []
    assert users_of(where) == []
    assert mounts(where.resolve()) == []


def test_every_figure_is_there(found: dict[str, Any]) -> None:
    assert found.keys() == {*KEYS, "options", "machine"}
    for room, keys in KEYS.items():
        assert tuple(found[room]) == keys
        for key, value in found[room].items():
            if key not in (*NO_NUMBERS, "secure_more_ms_p50") and not (value is None and key == "memory_tier2_ms_p50"):
                assert value > 0, (room, key)


def test_it_says_what_it_was_made_on(found: dict[str, Any]) -> None:
    assert found["options"]["seed"] == 7
    assert found["options"]["dependencies"] == {"files": 40, "bytes": 100_000}


def test_the_ratio_is_that_of_the_figures(found: dict[str, Any]) -> None:
    spawn = found["spawn"]
    assert spawn["ratio"] == pytest.approx(spawn["cold_ms_p50"] / spawn["memory_tier0_ms_p50"], abs=0.06)


def test_the_table_has_every_figure_and_says_which_aims_are_missed(found: dict[str, Any]) -> None:
    shown = fork.table(found)
    assert {aim.figure for aim in fork.AIMS} == {f"{room}.{key}" for room, keys in KEYS.items() for key in keys if key not in NO_NUMBERS}
    assert shown.count("\n") >= len(fork.AIMS)
    slow = {**found, "environment": {**found["environment"], "ms_p50": 99.0, "vs_copied_deps": 1.0, "disk_mb": 0.5}}
    missed = [line.split("  ")[0] for line in fork.table(slow).splitlines() if line.endswith("MISSED")]
    assert "environment, p50" in missed and "faster than with copied dependencies" in missed and "its disk" not in missed


def test_what_could_not_be_measured_is_no_figure(found: dict[str, Any]) -> None:
    without = {**found, "spawn": {**found["spawn"], "memory_tier2_ms_p50": None}}
    (line,) = (line for line in fork.table(without).splitlines() if "tier 2" in line)
    assert "not measured" in line and "MISSED" not in line


def test_the_same_seed_is_the_same_material(tmp_path: Path) -> None:
    heads = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        size = fork.repository(tmp_path / name, seed, Size(30, 100_000))
        assert 50_000 < size < 200_000
        heads.append(git(tmp_path / name, "rev-parse", "HEAD"))
        fork.dependencies(tmp_path / f"{name}-deps", seed, Size(50, 100_000))
    assert heads[0] == heads[1] != heads[2]
    one, same, other = ([path.read_bytes() for path in sorted((tmp_path / f"{name}-deps").rglob("file*"))] for name in ("a", "b", "c"))
    assert one == same != other
    assert len(one) == 50
    assert sum(map(len, one)) == pytest.approx(100_000, rel=0.01)


def test_a_worktree_that_is_not_clean_is_no_figure(repo: Path, tmp_path: Path) -> None:
    known = discover(Git(tmp_path / "git"), repo)
    place = Place(known.git_dir, known.common_dir, repo)
    assert fork._status(known, place) > 0
    (repo / "new").write_text("x")
    with pytest.raises(ToolFailed, match="new"):
        fork._status(known, place)


AS_SMALL = """
from nightcrew.plugins.bench import fork
from tests.bench.test_fork import TINY
from supervisor.cli.main import main
fork.QUICK = TINY
main()
"""


@pytest.mark.soak
def test_terminated_half_way_it_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", AS_SMALL, "bench", "fork", "--json", "--quick", "--dir", str(tmp_path)]
    said = tmp_path / "said"
    with said.open("wb") as out:
        bench = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out)
    try:
        wait_until(lambda: list(tmp_path.glob("*/home/runs/*/*/1/started.json")) or bench.poll() is not None, "the first agent", 300)
        bench.send_signal(signal.SIGTERM)
        printed, _ = bench.communicate(timeout=60)
    finally:
        bench.kill()
        bench.communicate()
    assert (bench.returncode, printed) == (128 + signal.SIGTERM, b""), said.read_text()
    assert_nothing_stays(tmp_path)


def test_a_warm_process_whose_supervisor_was_killed_is_ended(repo: Path, tmp_path: Path) -> None:
    with SupervisedRun(tmp_path / "home", 1) as side:
        side.snapshot(side.repository(repo), SnapshotSpec("warm", kind=SnapshotKind.MEMORY, preload=("json",)))
        supervisor = processes.identity(int(protocol.call(side.home.daemon_socket, "ping", {})["pid"]))
        assert supervisor is not None
        processes.send(supervisor, signal.SIGKILL)
        wait_until(lambda: not processes.alive(supervisor), "the supervisor to die")
        assert [record for place in zygote_places(side.home) if (record := zygote.find(place))], "it outlives its supervisor"
    assert users_of(tmp_path) == []


def zygote_places(home: Home) -> list[zygote.Place]:
    return [zygote.Place(socket) for socket in (home.run_dir / "z").glob("*.z")]
