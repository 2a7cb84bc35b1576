"""What is measured of attempts: what they take, and where their time goes."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.account import Measured
from supervisor.kernel.records import Exit
from supervisor.kernel.result import Spent
from supervisor.kernel.spec import TaskSpec
from supervisor.server.attempts import collect
from supervisor.server.attempts.observe import RECORD, AgentEvidence, waited_for_person
from supervisor.store import queries, sqlite
from supervisor.store.rows import AttemptRow
from tests.support import House, plan_of, shell_task, wait_until

BUSY = [sys.executable, "-c", "import time\nheld = bytearray(80 << 20)\nwhile time.process_time() < 0.3: pass"]


def test_an_attempt_that_ended_has_its_account(house: House) -> None:
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task("busy", BUSY, size="auto")])))
    task = house.task("busy")
    assert task.assigned.startswith("size small by "), "its repository was measured where it was handed over"
    account = (task.result or {})["account"]
    assert 0.3 <= account["cpu_s"] < 60 and account["tool_cpu_s"] == account["cpu_s"], "a command's time is all a tool's"
    assert 80 << 20 <= account["peak_memory"] < 400 << 20, "one process had it, however short it lived"
    assert account["wall_s"] >= 0.3 and account["local_s"] == account["wall_s"], "it asked no model and no person"
    assert (account["tokens"], account["human_s"], account["peak_gpu_memory"]) == (None, None, None)
    assert json.loads((house.home.attempt(task.id, 1) / "result.json").read_text())["account"] == account
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        assert json.loads(db.execute("SELECT account FROM attempt").fetchone()[0]) == account


def account(house: House, name: str) -> dict[str, Any]:
    """Of its newest attempt, as the ledger has it now."""
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        row = db.execute("SELECT account FROM attempt WHERE task = ? ORDER BY epoch DESC", (house.task(name).id,)).fetchone()
    return dict(json.loads((row and row[0]) or "{}"))


GLUTTON = """#!/usr/bin/env python3
import pathlib, signal, sys
if pathlib.Path("begun").exists():
    print("went on with", pathlib.Path("begun").read_text())
    sys.exit()
pathlib.Path("begun").write_text(sys.argv[1])
held = bytearray(150 << 20)
signal.pause()
"""


def test_an_agent_near_its_memory_goes_on_in_a_new_attempt_with_its_work(house: House) -> None:
    """One whose kind can continue no conversation; so it begins anew, on what it left."""
    program = house.config.with_name("glutton")
    program.write_text(GLUTTON)
    program.chmod(0o755)
    kinds = house.config.with_name("kinds")
    kinds.mkdir()
    (kinds / "glutton.toml").write_text(f'description = "x"\nbinary = "{program}"\nheadless = ["{{prompt}}"]\n')
    house.config.write_text(house.config.read_text() + "memory_restart = 0.7\nmemory_warn = 0.6\n")
    house.start_daemon()
    plan = '[[tasks]]\nid = "glutton"\nkind = "glutton"\nprompt = "work"\nmemory_max = "200MiB"\n'
    house.ok("run", house.plan(plan))
    task = house.task("glutton")
    first, second = attempts(house, "glutton")
    assert (first["end"], second["end"], task.retries_used) == ("lost", "done", 0), "it costs no retry"
    assert first["end_cause"].startswith("begun again for its memory: it holds 1") and first["end_cause"].endswith("% of memory_max")
    assert second["cause"] == f"lost: {first['end_cause']}"
    assert "went on with work" in (house.home.attempt(task.id, 2) / "stdout.log").read_text()
    assert "You were stopped for your memory: it holds 1" in (house.home.attempt(task.id, 2) / "prompt.md").read_text()
    assert first["end_cause"].removeprefix("begun again for its memory: ") in house.daemon_output()


def attempts(house: House, name: str) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return queries.attempts(db, house.task(name).id)


HOLDS = """
import pathlib, signal, time
held = bytearray(80 << 20)
while not pathlib.Path("drop").exists(): time.sleep(0.02)
del held
pathlib.Path("dropped").touch()
signal.pause()
"""


def test_a_living_attempt_is_measured_and_the_next_supervisor_goes_on_with_that(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("holds", [sys.executable, "-c", HOLDS])])))
    wait_until(lambda: account(house, "holds").get("memory", 0) > 80 << 20, "it to be measured")
    seen = account(house, "holds")
    assert seen["processes"] >= 2 and seen["samples"] and 80 << 20 <= seen["peak_memory"] < 300 << 20
    daemon.kill()
    daemon.wait()
    where = Path(house.task("holds").worktree or "")
    (where / "drop").touch()
    wait_until((where / "dropped").exists, "it to hold less")
    house.start_daemon()
    wait_until(lambda: account(house, "holds")["memory"] < 80 << 20, "the next one to look")
    now = account(house, "holds")
    assert now["samples"] > seen["samples"] and now["peak_memory"] == seen["peak_memory"], "it goes on with what was seen before"
    house.ok("kill", "holds")
    closed = (house.task("holds").result or {})["account"]
    assert closed["samples"] >= now["samples"] and closed["peak_memory"] >= now["peak_memory"]


class At:
    """A clock that a test moves."""

    now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now


def test_how_long_an_agent_waited_for_a_person_survives_the_supervisor(tmp_path: Path) -> None:
    home, clock, key = Home(tmp_path), At(), ("run/a", 1)
    directory = home.attempt(*key)
    directory.mkdir(parents=True)
    assert waited_for_person(directory, 2000.0, interactive=True) is None, "it sent no hook"
    asks = {"tool_name": "Bash", "tool_input": {}}
    for at, name, event in (
        (1000, "UserPromptSubmit", {}),
        (1010, "PermissionRequest", asks),
        (1030, "PostToolUse", asks),  # 20 s
        (1100, "Stop", {}),
        (1200, "UserPromptSubmit", {}),  # 100 s at its prompt
        (1300, "PermissionRequest", asks),
    ):
        clock.now = float(at)
        AgentEvidence(home, clock).hook(key, name, {"session_id": "own", **event})  # each time another supervisor
    assert waited_for_person(directory, 1307.0, interactive=False) == 27.0
    assert waited_for_person(directory, 1307.0, interactive=True) == 127.0
    files.atomic_write(directory / RECORD, b'{"waited": {"human": [NaN, 0]}}')
    assert waited_for_person(directory, 1307.0, interactive=True) is None, "an agent without a sandbox can write there"


def test_the_records_of_an_attempt_and_the_gateway_make_its_account(tmp_path: Path) -> None:
    home = Home(tmp_path)
    directory = home.attempt("run/a", 1)
    directory.mkdir(parents=True)
    nothing: dict[str, Any] = dict.fromkeys(AttemptRow.__dataclass_fields__)
    row = AttemptRow(
        **{**nothing, "task": "run/a", "epoch": 1, "created": 110.0, "account": codec.dumps(Measured(samples=3, peak_memory=7))}
    )
    spent = Spent(input=5, output=2, cache_read=100, cache_write=1, busy=((120.0, 130.0),), queued=((115.0, 120.0),))
    record = Exit("run/a", 1, 0, None, "exit", cpu_s=9.0, max_rss=6)
    times = {"ready": 100.0, "started": 112.0, "ended": 212.0, "now": 5000.0}
    (directory / "paused").write_bytes(b"12.5 4990.0")  # it stands still since 10 s, again
    made = collect.closed(home, row, TaskSpec("a", "a", "shell", ("true",)), (record, spent), times)
    assert made["paused_s"] == 22.5 and made["local_s"] == 100 - 22.5 - 10 - 5
    assert (made["slot_queue_s"], made["launch_s"], made["wall_s"], made["model_s"], made["token_queue_s"]) == (10.0, 2.0, 100.0, 10.0, 5.0)
    assert (made["tokens"], made["peak_memory"], made["samples"], made["cpu_s"]) == (8, 7, 3, 9.0)
    (directory / "paused").write_bytes(b"nan inf")
    assert collect.closed(home, row, TaskSpec("a", "a", "shell", ("true",)), (None, Spent()), times)["paused_s"] == 0.0
