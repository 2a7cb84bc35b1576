"""The benchmark itself, as small as it gets: what it prints is complete and fits together, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import crews, spawn
from nightcrew.plugins.bench.crews import by_hand, make_repository
from nightcrew.plugins.bench.spawn import Options, Waiting
from supervisor.kernel.errors import ToolFailed
from tests.support import wait_until
from tests.warm import NIGHTCREW

TINY = Options(
    rounds={1: 1, 2: 2},
    crew=3,
    idle_s=0.1,
    history_rows=450,
    seed=7,
    waiting=Waiting(sizes=(10, 20), tasks=2, rounds=1, warm_up=1),
    clean=6,
    files=40,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    where = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "REPEATS", 1)
        patch.setattr(spawn, "FILES", 10)
        found: dict[str, Any] = json.loads(json.dumps(crews.report(spawn, TINY, where, print)))
    assert list(where.iterdir()) == []
    assert users_of(where) == []
    return found


def users_of(where: Path) -> list[int]:
    """Processes that know `where`: by their command, environment or working directory."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != os.getpid() and _knows(pid, os.fsencode(where))]


def _knows(pid: int, text: bytes) -> bool:
    try:
        return any(text in Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")) or text in os.fsencode(
            os.readlink(f"/proc/{pid}/cwd")
        )
    except OSError:
        return False


def test_every_figure_is_there(report: dict[str, Any]) -> None:
    assert report.keys() == {
        "spawn",
        "plain",
        "ratio",
        "idle",
        "adopt_s",
        "scale",
        "status_ms",
        "clean",
        "options",
        "machine",
        "repository",
    }
    for side in ("spawn", "plain"):
        assert report[side].keys() == {"1", "2", "3"}
        for size in report[side].values():
            assert size.keys() == {"ms_p50", "ms_p99", "all_up_s", "rounds"}
    assert report["idle"].keys() == {"cpu_percent", "tmux_cpu_percent", "rss_mb", "runner_unshared_mb", "agents", "seconds"}
    assert report["clean"].keys() == {"worktrees", "ms_each", "first_line_s", "removed", "remove_ms_each", "confined"}
    assert (report["clean"]["worktrees"], report["clean"]["confined"]["worktrees"]) == (6, 3)
    assert report["options"]["seed"] == 7


@pytest.mark.parametrize("side", ["spawn", "plain"])
def test_the_figures_fit_together(report: dict[str, Any], side: str) -> None:
    one, two, three = (report[side][size] for size in ("1", "2", "3"))
    assert one["ms_p50"] == one["ms_p99"] == pytest.approx(one["all_up_s"] * 1000, abs=0.1)
    assert two["ms_p50"] <= two["ms_p99"]
    assert three["ms_p99"] == pytest.approx(three["all_up_s"] * 1000, abs=0.1)
    assert [size["rounds"] for size in (one, two, three)] == [1, 2, 1]


def test_the_rest_was_measured(report: dict[str, Any]) -> None:
    idle = report["idle"]
    assert idle["agents"] == 3
    assert min(idle["rss_mb"], idle["runner_unshared_mb"], report["adopt_s"], report["status_ms"], report["clean"]["ms_each"]) > 0
    assert idle["runner_unshared_mb"] < idle["rss_mb"]
    assert report["ratio"] == pytest.approx(report["spawn"]["1"]["ms_p50"] / report["plain"]["1"]["ms_p50"], abs=0.01)
    assert report["repository"]["files"] == 40
    assert spawn.table(report).count("plain") == 4


def test_work_beside_what_waits_was_measured(report: dict[str, Any]) -> None:
    waiting, ratio = report["scale"]["waiting"], report["scale"]["ratio"]
    assert waiting.keys() == {"10", "20"}
    for figure in waiting.values():
        assert figure.keys() == {"tasks_per_s", "daemon_cpu_ms_per_task", "status_ms", "tick_ms_p99"} == ratio.keys()
        assert min(figure.values()) > 0
    assert ratio["status_ms"] == pytest.approx(waiting["20"]["status_ms"] / waiting["10"]["status_ms"], abs=0.01)
    assert ratio["tasks_per_s"] == pytest.approx(waiting["10"]["tasks_per_s"] / waiting["20"]["tasks_per_s"], abs=0.01)
    assert report["scale"]["ms_per_task"] == pytest.approx(1000 / waiting["10"]["tasks_per_s"], rel=0.01)
    cpu_ms = report["scale"]["cpu_ms"]  # counted in steps of 10 ms, which is more than some of them cost over so few tasks
    assert cpu_ms.keys() == {"supervisor", "git", "tmux", "runner"} and min(cpu_ms.values()) >= 0 < sum(cpu_ms.values())
    assert spawn.table(report).count("most waiting over fewest") == 4


def test_the_same_seed_is_the_same_commit(tmp_path: Path) -> None:
    sizes = [make_repository(tmp_path / name, seed, files=5) for name, seed in (("a", 3), ("b", 3), ("c", 4))]
    heads = [
        subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path / name, capture_output=True, check=True).stdout
        for name in ("a", "b", "c")
    ]
    assert sizes[0] == sizes[1]
    assert heads[0] == heads[1] != heads[2]


def test_a_failing_tool_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="git failed rev-parse"):
        by_hand(["git", "rev-parse", "--verify", "nothing"], tmp_path)


def test_a_stop_in_the_middle_of_starting_a_tool_leaves_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Popen itself is interrupted: the tool runs, and nobody has its number yet."""
    began: list[int] = []

    class Stopped(subprocess.Popen[str]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            began.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    with pytest.raises(KeyboardInterrupt):
        by_hand(["sleep", "600"], tmp_path)
    assert not [pid for pid in began if Path(f"/proc/{pid}").exists()]
    assert began


def test_terminated_half_way_it_leaves_nothing(tmp_path: Path) -> None:
    argv = [*NIGHTCREW, "bench", "spawn", "--json", "--quick", "--dir", str(tmp_path)]
    with (tmp_path / "said").open("wb") as said:
        bench = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
    try:
        wait_until(lambda: b"round 2" in (tmp_path / "said").read_bytes() or bench.poll() is not None, "the first agents to come and go")
        bench.send_signal(signal.SIGTERM)
        out, _ = bench.communicate(timeout=60)
    finally:
        bench.kill()
        bench.communicate()
    assert (bench.returncode, out) == (128 + signal.SIGTERM, b""), (tmp_path / "said").read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["said"]
    assert users_of(tmp_path) == []
