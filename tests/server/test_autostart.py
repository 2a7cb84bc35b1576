"""What starts things by itself where a user manager of systemd answers: its unit files, and what is ordered of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.features import service
from supervisor.host import autostart
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound, Refused, ToolFailed, ToolMissing
from supervisor.kernel.night import Timetable

TABLE = Timetable(22 * 60 + 30)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemctl` and a `loginctl` of shell on the PATH; the file in which they write down what was ordered. `refuse` beside it makes
    an `enable` fail."""
    orders, programs = tmp_path / "orders", tmp_path / "programs"
    programs.mkdir()
    script = f"""#!/bin/sh
case "$*" in
*is-system-running) echo degraded; exit 1;;
*is-active*) echo active;;
*show-user*) echo no;;
*enable*) [ ! -e {tmp_path}/refuse ] || {{ echo "Failed to connect to bus" >&2; exit 1; }};;
esac
echo "$*" >>{orders}
"""
    for name in ("systemctl", "loginctl"):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "a con%fig"))
    return orders


def ordered(orders: Path) -> list[str]:
    """What was ordered by now, without what only asks."""
    lines = orders.read_text().splitlines() if orders.exists() else []
    return [line.removeprefix("--user --no-pager ") for line in lines if "is-" not in line and "show-" not in line]


def test_a_degraded_manager_answers_and_linger_is_told(manager: Path) -> None:
    assert autostart.chosen() == (autostart.SYSTEMD, "")
    [remark] = autostart.remarks(autostart.SYSTEMD, "")
    assert "loginctl enable-linger" in remark


def test_a_night_is_written_enabled_and_removed_whole(manager: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    entry = autostart.night(home, "chores", TABLE, autostart.SYSTEMD)
    directory = tmp_path / "a con%fig" / "systemd" / "user"
    autostart.write(home, entry)
    timer = f"nightcrew-night-chores-{autostart._tag(home)}.timer"
    assert ordered(manager) == ["daemon-reload", f"enable --now {timer}"]
    assert {file.name: file.read_text() for file in directory.iterdir()} == dict(entry.units)
    assert autostart.wrong(entry) == ""
    assert all(text in "\n".join(entry.shown()) for text in (str(directory / timer), "OnCalendar=*-*-* 22:30:00", "night"))
    (directory / timer).write_text((directory / timer).read_text().replace("22:30", "23:00"))
    assert autostart.wrong(entry) == f"{timer} was changed"
    (directory / "mine.service").write_text("[Service]\n")
    assert autostart.remove(home, entry) and not autostart.remove(home, entry)
    assert [file.name for file in directory.iterdir()] == ["mine.service"]
    assert f"{directory / entry.starts.replace('.timer', '.service')} is gone" == autostart.wrong(entry)


def test_a_unit_of_somebody_else_is_not_touched(manager: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    entry = autostart.night(home, "chores", TABLE, autostart.SYSTEMD)
    entry.directory.mkdir(parents=True)
    strange = entry.directory / entry.starts
    strange.write_text("[Timer]\nOnCalendar=daily\n")
    with pytest.raises(Refused, match="did not write it"):
        autostart.write(home, entry)
    assert [file.name for file in entry.directory.iterdir()] == [strange.name]
    with pytest.raises(Refused):
        autostart.remove(home, entry)
    assert strange.read_text() == "[Timer]\nOnCalendar=daily\n" and ordered(manager) == []


def test_units_that_cannot_be_enabled_are_removed_again(manager: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "refuse").touch()
    with pytest.raises(ToolFailed, match="connect to bus"):
        service.install(home, autostart.supervisor(home, autostart.SYSTEMD), os.environ)
    assert not list((tmp_path / "a con%fig" / "systemd" / "user").iterdir())
    assert service.status(home)["installed"] is False


def test_the_service_keeps_its_environment_and_is_removed_whole(manager: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    entry = autostart.supervisor(home, autostart.SYSTEMD)
    service.install(home, entry, {"PATH": "/x", "ANTHROPIC_API_KEY": "canary", "NIGHTCREW_CONFIG": "/c"})
    assert service.environment(home) == {"PATH": "/x", "NIGHTCREW_CONFIG": "/c"}
    assert (home.root / "service.json").stat().st_mode & 0o777 == 0o600
    assert service.status(home) == {"installed": True, "by": "systemd", "wrong": "", "supervisor": None, "watched": False}
    service.remove(home)
    assert service.environment(home) is None and not list(entry.directory.iterdir())
    with pytest.raises(NotFound):
        service.remove(home)


def test_where_nothing_starts_commands_the_person_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert autostart.user_manager() == "systemctl is not on the PATH"
    with pytest.raises(ToolMissing, match="no crontab"):
        autostart.chosen()
    with pytest.raises(ToolMissing, match="user manager"):
        autostart.chosen(autostart.SYSTEMD)
