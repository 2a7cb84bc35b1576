"""S20: a log, a transcript or anything else that an agent can fill with 10 GB: whoever looks reads its end, and keeps within memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.client import start
from supervisor.host.paths import Home
from tests.support import House, wait_until

HUGE = 10 * 2**30
MEMORY = 2 * 2**30
READ_MAX = 256 * 2**20
LOOKS = (
    ("status",),
    ("status", "over", "--json"),
    ("status", "--explain", "agent"),
    ("report", "--json"),
    ("clean", "--old", "--json"),
)


def huge(file: Path) -> None:
    """Of holes: it has the size, and takes nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        opened.truncate(HUGE)


def look(house: House, *words: str) -> str:
    """`nightcrew WORDS` in a process that may not read such a file into memory."""
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.cli.main", *words],
        cwd=house.repo,
        env={**house.env, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def test_files_of_10_gb_change_nothing_for_those_who_look(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("add", "-f", "--id", "over", "echo the end")
    house.ok("add", "--id", "agent", "sleep 600")
    wait_until(lambda: house.state("agent") == "running", "an agent")
    before = read_by(daemon.pid)
    for name in ("over", "agent"):
        place = house.home.attempt(house.task(name).id, 1)
        for below in ("stdout.log", "stderr.log", "gate.log", "screen.txt", "out/hooks.jsonl", "out/result.json"):
            huge(place / below)
    for file in (house.home.log, house.home.gateway_log):
        huge(file)
    for words in LOOKS:
        assert house.task("agent").name in look(house, *words) or words[0] != "status" or words[1:2] == ("over",)
    assert json.loads(look(house, "status", "over", "--json"))["tasks"][0]["state"] == "done"
    house.ok("kill", "agent")
    wait_until(lambda: house.task("agent").final, "its end")
    assert house.state("agent") == "cancelled" and house.ready()
    assert read_by(daemon.pid) - before < READ_MAX, "the supervisor reads no such file whole"


def read_by(pid: int) -> int:
    """Bytes that a process has read."""
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("rchar"))


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_supervisors_own_log_is_put_aside(tmp_path: Path, is_ours: bool) -> None:
    home = Home(tmp_path)
    huge(home.log)
    saved = os.dup(2)
    try:
        if is_ours:
            start.redirect_to_log(home)
        start.rotate_log(home)
        os.write(2, b"said afterwards\n")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert home.log.with_name("daemon.log.1").stat().st_size == HUGE
    assert (home.log.read_bytes() if home.log.exists() else b"") == (b"said afterwards\n" if is_ours else b"")
    start.rotate_log(home)
    assert home.log.exists() is is_ours, "a small one stays"
