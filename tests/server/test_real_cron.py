"""What is installed, started by a real cron daemon with a spool of its own."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from supervisor.server import lock
from tests.server.installed_kit import RealCron, real_cron
from tests.support import House, make_repository, shell_task, signal_if_there, wait_until

NIGHTCREW = (sys.executable, "-I", "-m", "supervisor.cli.main")
HOSTILE = "it's a 100% pl%ace; $HOME ü"


@pytest.fixture
def cron(tmp_path: Path) -> Iterator[RealCron]:
    with real_cron(tmp_path) as found:
        yield found


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[House]:
    """A house whose state, repository and plan have names that mean something to a shell and to cron."""
    place = tmp_path / HOSTILE
    made = House(place, make_repository(place / "repo"))
    yield made
    made.reap()


def installed(house: House, cron: RealCron, *words: str) -> str:
    """Install the house's plan inside the namespace; the line that it wrote."""
    (house.home.root.parent / "pro\nmpt.md").write_text("a prompt\n")
    plan = house.plan(shell_task("one", 'printf "%s" "$PATH" >"$NIGHTCREW_OUT/path"'), name="a pl%an 'x'\n$y.toml")
    done = cron.run(
        [*NIGHTCREW, "night", "install", plan, "-C", str(house.repo), "--no-check", "--yes", "--name", "chores", *words], house.env
    )
    assert done.returncode == 0, done.stderr
    [line] = cron.run(["crontab", "-l"], house.env).stdout.splitlines()
    return line


def test_a_night_that_cron_starts_runs_its_plan(hostile: House, cron: RealCron) -> None:
    """cron's own time fields are replaced by @reboot, so that nobody waits for a minute to end."""
    line = installed(hostile, cron, "--at", f"{datetime.now():%H:%M}")
    now = re.sub(r"^\d+ \d+ \* \* \* ", "@reboot ", line)
    assert now != line
    cron.run(["crontab", "-"], hostile.env, input=f"{now}\n")
    with cron.daemon():
        wait_until(lambda: hostile.state("one") == "done", "the task that cron started", timeout_s=120)
    path = hostile.home.attempt(hostile.task("one").id, 1) / "out" / "path"
    assert path.read_text() == hostile.env["PATH"]  # and not cron's
    assert cron.run([*NIGHTCREW, "night", "uninstall", "chores"], hostile.env).returncode == 0
    assert "no crontab" in cron.run(["crontab", "-l"], hostile.env).stderr


@pytest.mark.soak
def test_the_supervisor_comes_back_under_cron_after_a_kill(house: House, cron: RealCron) -> None:
    assert cron.run([*NIGHTCREW, "service", "install", "--yes"], house.env).returncode == 0
    with cron.daemon():
        wait_until(house.ready, "the supervisor that cron started")
        first = lock.holder(house.home.lock)
        assert first is not None
        assert '"watched": true' in cron.run([*NIGHTCREW, "service", "status", "--json"], house.env).stdout
        signal_if_there(first, signal.SIGKILL)
        wait_until(lambda: lock.holder(house.home.lock) not in (None, first) and house.ready(), "its successor")
        house.ok("down")
    assert cron.run([*NIGHTCREW, "service", "remove"], house.env).returncode == 0
    assert "no crontab" in cron.run(["crontab", "-l"], house.env).stderr


@pytest.mark.soak
def test_cron_starts_a_night_at_its_minute(hostile: House, cron: RealCron) -> None:
    soon = datetime.now() + timedelta(seconds=70)
    installed(hostile, cron, "--at", f"{soon:%H:%M}")
    with cron.daemon():
        wait_until(lambda: hostile.state("one") == "done", "the task that cron started", timeout_s=200)
