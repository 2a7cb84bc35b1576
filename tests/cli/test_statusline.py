"""`nightcrew statusline` and `nightcrew popup`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.server.test_answering import SCREEN
from tests.support import House, plan_of, shell_task, wait_until


def typed(house: House, *words: str) -> subprocess.CompletedProcess[str]:
    """By the installed command's own first lines."""
    argv = [sys.executable, "-I", "-m", "nightcrew", *words]
    return subprocess.run(argv, env=house.env, cwd=house.repo, capture_output=True, text=True, check=False, timeout=60)


def test_it_says_who_needs_me_who_works_and_what_waits(house: House) -> None:
    assert (typed(house, "statusline").stdout, house.ok("statusline")) == ("\n", "\n"), "nothing is there: the prompt stays as it was"
    daemon = house.start_daemon()
    asks = shell_task("asks", f"cat {SCREEN}; sleep 600", kind="terminal")
    house.ok("run", "-d", house.plan(plan_of([asks, shell_task("works", "sleep 600"), shell_task("later", "true", after=["works"])])))
    line = re.compile(r"1\? asks [0-9ms]+ 2W 1q\n")
    wait_until(lambda: line.fullmatch(house.ok("statusline")), "the line")
    assert line.fullmatch(typed(house, "statusline").stdout)
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    assert house.ok("statusline") == "no supervisor 2W 1q\n"


def test_it_never_complains_in_the_middle_of_a_prompt(house: House) -> None:
    for content in (b"", b"no ledger at all" * 1000):
        house.home.root.mkdir(exist_ok=True)
        Path(house.home.ledger).write_bytes(content)
        done = typed(house, "statusline")
        assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_binding_that_is_printed_is_one_that_tmux_takes(house: House, tmp_path: Path) -> None:
    socket = tmp_path / "t"
    tmux = ["tmux", "-f", "/dev/null", "-S", str(socket)]
    env = {**house.env, "TERM": "screen"}
    subprocess.run([*tmux, "new-session", "-d", "sh"], env=env, check=True)
    try:
        printed = house.ok("popup", "--key", "F5")
        subprocess.run([*tmux, "source-file", "-"], input=printed, text=True, env=env, check=True)
        keys = subprocess.run([*tmux, "list-keys", "-T", "prefix", "F5"], env=env, capture_output=True, text=True, check=True).stdout
        assert "display-popup -E" in keys and str(house.home.root) in keys and "top" in keys
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False)
    assert house.run("popup", "--key", "\x1b").returncode == 2
