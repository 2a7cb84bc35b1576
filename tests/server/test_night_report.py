"""The writer of the morning report: what it says when it cannot begin. That it writes is in `tests/cli/test_night_report.py`."""

from __future__ import annotations

from pathlib import Path

from supervisor.features.night import service as night_service
from supervisor.host.paths import Home


def test_a_report_that_cannot_be_begun_is_said_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    night_service.write("1122-n1gh", Home(tmp_path / "gone"), said.append)
    assert said == ["the report of 1122-n1gh was not written: No such file or directory; next: nightcrew night report 1122-n1gh"]
