"""What is killed, hangs or is full while a map runs: nothing is lost, nothing comes twice, and the output is that of a quiet run."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents.tmux import Tmux
from supervisor.features.map import open_map
from supervisor.host.paths import Home
from supervisor.kernel import records
from supervisor.server import lock
from tests import warm
from tests.support import House, git, signal_if_there, wait_until

MODULE = """
import os, signal, sys, time
LOG = {log!r}

def note(item):
    handle = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (item + "\\n").encode())
    os.close(handle)

def slow(item):
    note(item)
    time.sleep(0.02)
    return item * 2

def held(item):
    note(item)
    while not os.path.exists(LOG + ".go"):
        time.sleep(0.01)
    return item * 2

def deadly(item):
    note(item)
    if item == "7":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return item

def untidy(item):
    with open("README", "a") as file:
        file.write(item)
    open("new of " + item, "w").close()
    os.system("git add -A && git -c user.name=x -c user.email=x@example.invalid commit -qm left")
    return item
"""


@pytest.fixture
def lines(house: House, tmp_path: Path) -> Path:
    """A house with the module `tools`, a supervisor, and a file of lines."""
    (house.repo / "tools.py").write_text(MODULE.format(log=str(tmp_path / "log")))
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", "tools")
    house.start_daemon()
    return tmp_path / "lines"


def begun(house: House, *words: str) -> subprocess.Popen[bytes]:
    """`nightcrew map` in a process of its own."""
    argv = ("map", "--json", "--class", "interactive", *words)
    with (house.home.root.parent / "said").open("wb") as said, (house.home.root.parent / "told").open("wb") as told:
        return warm.start(argv, house.repo, house.env, said.fileno(), told.fileno(), session=True)


def summary(house: House, *words: str, code: int = 0) -> dict[str, Any]:
    done = house.run("map", "--json", "--class", "interactive", *words, timeout_s=300)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{house.daemon_output()}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def output(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(found["out"]).read_text().splitlines()]


def workers(home: Home) -> list[tuple[int, int]]:
    """Pids of the runner and the agent of each living worker."""
    found = []
    for place in (home.root / "runs").glob("*/w*/*/started.json"):
        started = records.parse_started(place.read_text())
        if started is None or (place.parent / "exit.json").exists():
            continue
        children = Path(f"/proc/{started.identity.pid}/task/{started.identity.pid}/children")
        below = children.read_text().split() if children.exists() else []
        if below:
            found.append((started.identity.pid, int(below[0])))
    return found


def ended(home: Home) -> int:
    """How many items have ended by now."""
    for path in (home.root / "maps").glob("*/map.db"):
        db = open_map.connect_readonly(path)
        try:
            return open_map.counts(db)["done"]
        finally:
            db.close()
    return 0


@pytest.mark.parametrize("items", [150, pytest.param(2000, marks=pytest.mark.soak)])
def test_whatever_is_killed_nothing_is_lost_and_nothing_comes_twice(house: House, lines: Path, items: int, seed: int) -> None:
    rng = random.Random(seed)
    lines.write_text("".join(f"{number}\n" for number in range(items)))
    words = ("--agents", "3", "--lines", str(lines), "--retries", "0", "--call", "tools:slow")
    command, kills = begun(house, *words), 0
    order = ["supervisor", "runner", "agent"] if items < 1000 else rng.choices(("supervisor", "runner", "agent"), k=7)
    for part, what in enumerate([*order, "command"], 1):
        wait_for_items(house, command, part * items // (len(order) + 2))
        kills += kill(house, what, rng, command)
    found = summary(house, *words)
    assert [(line["item"], line["result"]) for line in output(found)] == [(str(n), f"{n}{n}") for n in range(items)]
    again = Counter((lines.parent / "log").read_text().split())
    assert set(again) == {str(number) for number in range(items)}
    assert sum(again.values()) <= items + kills, f"only what a worker was at when it died is done again: {again.most_common(5)}"


def wait_for_items(house: House, command: subprocess.Popen[bytes], count: int) -> None:
    wait_until(lambda: ended(house.home) >= count or command.poll() is not None, f"{count} items")


def kill(house: House, what: str, rng: random.Random, command: subprocess.Popen[bytes]) -> int:
    """Kill it; how many items may be done again for that."""
    if what == "command":
        signal_if_there(command.pid)
        command.wait()
    elif what == "supervisor":
        kill_supervisor(house)
        house.start_daemon()
    elif living := workers(house.home):
        signal_if_there(rng.choice(living)[what == "agent"])
        return 1
    return 0


def kill_supervisor(house: House) -> None:
    pid = lock.holder(house.home.lock)
    assert pid is not None
    signal_if_there(pid)
    wait_until(lambda: lock.holder(house.home.lock) != pid, "it to be gone")


def test_the_same_command_again_does_what_is_missing(house: House, lines: Path) -> None:
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    words = ("--agents", "2", "--lines", str(lines), "--call", "tools:slow")
    command = begun(house, *words)
    wait_until(lambda: ended(house.home) >= 20, "some items")
    run = house.tasks()[0].run
    house.ok("kill", run)
    assert command.wait(timeout=60) == 1
    told = (house.home.root.parent / "said").read_text()
    assert json.loads(told)["why"] == "its workers have ended; the same command again goes on" and json.loads(told)["missing"] > 0
    found = summary(house, *words)
    assert found["done"] == 100 and found["missing"] == 0
    assert max(Counter((lines.parent / "log").read_text().split()).values()) <= 2, "at most what the killed workers were at"
    assert sum(Counter((lines.parent / "log").read_text().split()).values()) <= 102


def test_an_item_that_kills_its_workers_is_given_up_and_harms_no_other(house: House, lines: Path) -> None:
    lines.write_text("".join(f"{number}\n" for number in range(20)))
    found = summary(house, "--agents", "2", "--lines", str(lines), "--call", "tools:deadly", code=1)
    wrong = [line for line in output(found) if not line["ok"]]
    assert [(line["item"], line["error"]) for line in wrong] == [("7", "3 workers died of it, the last one: killed by signal 9")]
    assert [line["result"] for line in output(found) if line["ok"]] == [str(n) for n in range(20) if n != 7]
    assert Counter((lines.parent / "log").read_text().split()) == {**{str(n): 1 for n in range(20)}, "7": 3}


def test_what_items_leave_in_the_worktree_is_undone_and_said(house: House, lines: Path) -> None:
    lines.write_text("a\nb\nc\n")
    found = summary(house, "--agents", "1", "--lines", str(lines), "--call", "tools:untidy")
    assert found["done"] == 3 and found["cleaned"] >= 1
    assert git(house.repo, "status", "--porcelain") == ""
    wait_until(lambda: git(house.repo, "branch", "--list", "nightcrew/*") == "", "nothing of the workers to be left")


def test_a_supervisor_that_dies_before_it_wrote_the_output(house: House, lines: Path, tmp_path: Path) -> None:
    """Every item has ended, and the file that the person wants cannot be written: it is, once it can."""
    lines.write_text("a\nb\n")
    place = tmp_path / "results"
    place.mkdir()
    command = begun(house, "--agents", "1", "--lines", str(lines), "--out", str(place / "out.jsonl"), "--call", "tools:held")
    wait_until((tmp_path / "log").exists, "an item")
    place.rename(tmp_path / "away")
    (tmp_path / "log.go").touch()
    wait_until(lambda: "waits: cannot write" in house.daemon_output(), "it to be said")
    kill_supervisor(house)
    (tmp_path / "away").rename(place)
    house.start_daemon()
    assert command.wait(timeout=60) == 0
    assert [json.loads(line)["result"] for line in (place / "out.jsonl").read_text().splitlines()] == ["aa", "bb"]


def test_the_tmux_server_dies(house: House, lines: Path) -> None:
    lines.write_text("".join(f"{number}\n" for number in range(60)))
    command = begun(house, "--agents", "2", "--lines", str(lines), "--retries", "0", "--call", "tools:slow")
    wait_until(lambda: ended(house.home) >= 5, "some items")
    with Tmux(house.home.tmux_socket) as tmux:
        server = tmux.server_pid()
    assert server is not None
    signal_if_there(server)
    began = time.monotonic()
    assert command.wait(timeout=120) == 0, f"{time.monotonic() - began:.0f} s"
    assert json.loads((house.home.root.parent / "said").read_text())["done"] == 60
