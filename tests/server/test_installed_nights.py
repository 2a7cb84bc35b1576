"""Nights that start by themselves: what is written, what was consented to, and what a changed plan comes to."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.night import install as night_install
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.spec import Submission
from supervisor.store import sqlite
from tests.server.installed_kit import own_crontab
from tests.support import House, shell_task

OTHERS = "MAILTO=me\n5 4 * * * mine  # nightcrew night of mine\n"


@pytest.fixture
def table(house: House, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The crontab of the house, with lines of somebody else's."""
    file = own_crontab(house, monkeypatch)
    file.write_text(OTHERS)
    return file


def install(house: House, *words: str, code: int = 0, plan: str = "") -> str:
    """Install the house's plan at this minute; what it said."""
    path = plan or house.plan(shell_task("one", "true"), name="chores.toml")
    at = ("--at", f"{datetime.now():%H:%M}")
    done = house.run("night", "install", path, *at, "--no-check", *words)
    assert done.returncode == code, done.stderr
    return done.stderr


def listed(house: House) -> dict[str, Any]:
    [night] = json.loads(house.ok("night", "list", "--json"))["installed"]
    return dict(night)


def refusals(house: House) -> list[dict[str, Any]]:
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return [json.loads(row["data"]) for row in db.execute("SELECT data FROM journal WHERE event = 'night refused'")]


def test_all_that_is_written_is_shown_and_off_a_terminal_nothing_is_without_yes(house: House, table: Path) -> None:
    said = install(house, code=2)
    assert "nobody can be asked" in said and "nightcrew night chores" in said
    assert table.read_text() == OTHERS
    assert not (house.home.root / "nights").exists()
    shown = next(line.strip() for line in install(house, "--yes", "--days", "mon-fri").splitlines() if "flock" in line)
    assert table.read_text() == f"{OTHERS}{shown}\n"
    record = house.home.root / "nights" / "chores.json"
    assert record.stat().st_mode & 0o777 == 0o600 and record.parent.stat().st_mode & 0o777 == 0o700


def test_an_installed_night_runs_once_a_date_and_is_uninstalled_whole(house: House, table: Path) -> None:
    house.start_daemon()
    install(house, "--yes", "--until", "8h", "--cost-max", "3")
    assert listed(house)["last"] is None
    first = house.ok("night", "run", "--installed", "chores").strip()
    assert house.ok("night", "run", "--installed", "chores").strip() == first  # a clock that is set back, a second cron
    [night] = json.loads(house.ok("night", "list", "--json"))["nights"]
    assert (night["run"], night["timer"], night["cost_max"]) == (first, "chores", 3.0)
    assert night["plan_hash"] == listed(house)["digest"]
    assert (listed(house)["last"]["outcome"], listed(house)["last"]["run"]) == ("started", first)
    house.ok("night", "uninstall", "chores")
    assert table.read_text() == OTHERS
    assert house.run("night", "run", "--installed", "chores").returncode == NotFound.exit_code


@pytest.mark.one_in(3)
@pytest.mark.parametrize("changes", ["prompt", "plan", "project", "terms"])
def test_a_plan_that_changed_is_refused_with_one_alert(house: House, table: Path, changes: str) -> None:
    (house.home.root.parent / "what.md").write_text("do it\n")
    plan = house.plan('[[tasks]]\nid = "one"\nkind = "builtin"\nprompt_file = "what.md"\n', name="chores.toml")
    install(house, "--yes", plan=plan)
    changed = {
        "plan": Path(plan),
        "prompt": house.home.root.parent / "what.md",
        "project": house.repo / "nightcrew.toml",
        "terms": house.home.root / "nights" / "chores.json",
    }[changes]
    text = changed.read_text() if changed.exists() else ""
    changed.write_text(text.replace('"terms": {}', '"terms": {"cost_max": "9"}') if changes == "terms" else f"{text}\n# more\n")
    for _ in range(2):
        done = house.run("night", "run", "--installed", "chores")
        assert done.returncode == Refused.exit_code, done.stderr
        assert str(changed) in done.stderr
    if changes == "terms":  # the consent itself is off: its name is all that is known
        install(house, "--yes", plan=plan)
        record = house.home.root / "nights" / "chores.json"
        record.write_text("{")
        house.ok("night", "uninstall", "chores")
        assert table.read_text() == OTHERS and not record.exists()
        return
    [told] = refusals(house)
    assert (told["name"], told["outcome"]) == ("chores", "refused") and str(changed) in told["why"]
    assert house.tasks() == []
    assert listed(house)["last"]["outcome"] == "refused"
    assert str(changed) in house.run("status").stderr
    doctor = json.loads(house.run("doctor", "--json").stdout)
    [found] = [one for one in doctor["checks"] if one["name"] == "nights"]
    assert found["state"] == "warn" and str(changed) in found["seen"]
    changed.unlink() if changes == "project" else changed.write_text(text)
    assert house.run("night", "run", "--installed", "chores").returncode != Refused.exit_code


@pytest.mark.parametrize(("which", "evil_at"), [("chores.toml", 3), ("what.md", 2), ("nightcrew.toml", 2)])
def test_what_runs_is_what_was_looked_at_though_the_file_is_swapped_and_swapped_back(
    house: House, table: Path, monkeypatch: pytest.MonkeyPatch, which: str, evil_at: int
) -> None:
    """Somebody swaps it after it was looked at, for the one read that mattered when each file was read several times."""
    (house.home.root.parent / "what.md").write_text("do good\n")
    (house.repo / "nightcrew.toml").write_text("[defaults]\npriority = 7\n")
    plan = house.plan('[[tasks]]\nid = "good"\nkind = "builtin"\nprompt_file = "what.md"\n', name="chores.toml")
    install(house, "--yes", plan=plan)
    consent = night_install.load(house.home, "chores")
    for name, text in {**house.env, **consent.env}.items():
        monkeypatch.setenv(name, text)
    target = next(Path(file) for file in consent.files if file.endswith(which))
    good, reads, opened = target.read_text(), list[Path](), Path.open

    def swapping(path: Path, *args: Any, **options: Any) -> Any:
        if path == target:
            reads.append(path)
            swap = target.with_name("swap")
            swap.write_bytes((good if len(reads) != evil_at else good.replace("good", "evil").replace("7", "9")).encode())
            swap.replace(target)
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", swapping)
    given: list[Submission] = []

    def hand_over(submission: Submission, notes: tuple[str, ...]) -> str:
        given.append(submission)
        return "r"

    night_install.begin(house.home, "chores", datetime.now().astimezone(), hand_over)
    [task] = given[0].spec.tasks
    assert (task.name, task.prompt, task.priority) == ("good", "do good\n", 7)
    assert len(reads) == 1


def test_a_start_that_comes_too_late_is_missed_and_said(house: House, table: Path) -> None:
    plan = house.plan(shell_task("one", "true"), name="chores.toml")
    hour = (datetime.now().hour - 2) % 24
    until = f"{(hour + 1) % 24:02}:{datetime.now().minute:02}"
    house.ok("night", "install", plan, "--at", f"{hour:02}:00", "--until", until, "--no-check", "--yes")
    early = house.run("night", "run", "--installed", "chores")
    assert early.returncode == Refused.exit_code and "missed" not in early.stderr and "its first start is at" in early.stderr
    assert listed(house)["last"] is None
    night_install.save(house.home, replace(night_install.load(house.home, "chores"), at=time.time() - 86400))
    done = house.run("night", "run", "--installed", "chores")
    assert done.returncode == Refused.exit_code and "was missed, and that night ended at" in done.stderr
    assert listed(house)["last"]["outcome"] == "missed"
    assert "missed" in house.ok("night", "list")


def test_a_name_is_one_plan(house: House, table: Path) -> None:
    install(house, "--yes")
    other = house.plan(shell_task("two", "true"), name="other.toml")
    assert "the name is taken" in install(house, "--yes", "--name", "chores", plan=other, code=6)
    install(house, "--yes", "--days", "sat")  # the same plan anew, at other times
    assert table.read_text().count("# nightcrew night chores") == 1
    assert "chores" in house.ok("night", "list")


def test_the_line_runs_what_it_says_with_the_path_of_the_install(house: House, table: Path) -> None:
    """As cron runs it: by /bin/sh, with cron's own environment."""
    import subprocess

    install(house, "--yes", plan=house.plan(shell_task("one", 'printf "%s" "$PATH" >"$NIGHTCREW_OUT/path"'), name="cho%res.toml"), code=0)
    line = table.read_text().splitlines()[-1].split(None, 5)[5].replace("\\%", "%")
    env = {"PATH": "/usr/bin:/bin", "HOME": house.env["HOME"], "SHELL": "/bin/sh", "LOGNAME": "me"}
    subprocess.run(["/bin/sh", "-c", line], env=env, check=True, cwd="/")
    house.wait_final()
    path = house.home.attempt(house.task("one").id, 1) / "out" / "path"
    assert path.read_text() == house.env["PATH"]
    assert "run " in (house.home.root / "nights" / "cho-res.log").read_text()
    assert shlex.split(line)[0] == f"NIGHTCREW_HOME={house.home.root}"


def test_a_consent_holds_no_secret(house: House, table: Path) -> None:
    path = house.plan(shell_task("one", "true"), name="chores.toml")
    env = {"ANTHROPIC_API_KEY": "sk-canary", "GITHUB_TOKEN": "canary", "LC_ALL": "C.UTF-8"}
    assert house.run("night", "install", path, "--at", "1:00", "--no-check", "--yes", env=env).returncode == 0
    record = (house.home.root / "nights" / "chores.json").read_text()
    assert "canary" not in record and json.loads(record)["env"]["LC_ALL"] == "C.UTF-8"


def test_a_name_is_made_of_the_plans_and_never_of_anything_else() -> None:
    assert night_install.name_of(Path("/x/Nightly chores (ü).toml"), None) == "nightly-chores"
    assert night_install.name_of(Path("/x/ÜÜÜ.toml"), None) == "night"
    with pytest.raises(Exception, match="--name"):
        night_install.name_of(Path("x"), "../x")


def test_a_line_that_cron_cannot_hold_is_refused_and_nothing_is_kept(house: House, table: Path, tmp_path: Path) -> None:
    env = {"NIGHTCREW_HOME": str(tmp_path / "a\nb")}
    path = house.plan(shell_task("one", "true"))
    done = house.run("night", "install", path, "--at", "1:00", "--no-check", "--yes", env=env)
    assert done.returncode == Refused.exit_code and "line break" in done.stderr
    assert table.read_text() == OTHERS and not (tmp_path / "a\nb" / "nights").exists()
