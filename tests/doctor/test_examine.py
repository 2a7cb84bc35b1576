"""Whatever one check does, the others answer; and what a page shows of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from supervisor.doctor import examine as output
from supervisor.doctor.examine import (
    GROUPS,
    Check,
    CheckContext,
    Checked,
    Finding,
    State,
    examine,
    fail,
    mend,
    ok,
    unknown,
    warn,
    without_failed,
)
from supervisor.kernel.errors import ToolFailed
from tests.doctor.conftest import Machine


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set when the test is over, so that its hanging check ends."""
    over = threading.Event()
    yield over
    over.set()


def failing(error: Exception) -> Check:
    def check(place: CheckContext) -> Finding:
        raise error

    return check


def test_checks_that_hang_or_break_are_unknown_and_keep_their_places(machine: Machine, stuck: threading.Event) -> None:
    def hang(place: CheckContext) -> Finding:
        stuck.wait()
        return ok("never")

    def well(place: CheckContext) -> Finding:
        return ok("fine")

    checks: dict[str, dict[str, Check]] = {
        "one": {"hangs": hang, "breaks": failing(ZeroDivisionError("x\ny")), "well": well},
        "two": {"ours": failing(ToolFailed("git failed", on="/x", why="no reason", hint="try again"))},
    }
    found = examine(machine.place(), checks, deadline_s=0.5)
    assert [(one.group, one.name, one.finding.state) for one in found] == [
        ("one", "hangs", State.UNKNOWN),
        ("one", "breaks", State.UNKNOWN),
        ("one", "well", State.OK),
        ("two", "ours", State.UNKNOWN),
    ]
    assert found[0].finding.seen == "no answer in 500ms"
    assert found[1].finding.seen == "ZeroDivisionError: x\\ny"
    assert (found[3].finding.seen, found[3].finding.fix) == ("git failed: /x: no reason", "try again")


def test_a_machine_without_anything_is_described_all_the_same(machine: Machine) -> None:
    none = machine.root / "none"
    place = CheckContext(machine.place().home, none, cwd=none, environ={"PATH": str(none)}, proc=none, sys=none, run=none)
    found = {f"{one.group}.{one.name}": one.finding for one in examine(place)}
    assert {name.partition(".")[0] for name in found} == set(GROUPS)
    assert found["software.tmux"].state is found["software.git"].state is State.FAIL
    assert found["machine.logout"].state is State.UNKNOWN


def test_a_group_that_cannot_be_imported_is_a_finding(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "supervisor.doctor.crew", raising=False)
    monkeypatch.setitem(sys.modules, "worktrees.removal", None)
    found = {one.name: one.finding for one in examine(machine.place())}
    assert found["crew"].state is State.FAIL and "worktrees.removal" in found["crew"].seen
    assert found["git"].seen, "the others looked"


def test_what_was_mended_and_what_could_not_be() -> None:
    def broken() -> str:
        raise PermissionError(13, "Permission denied", "/x")

    def refused() -> str:
        raise ToolFailed("no")

    checked = [
        Checked("a", "well", ok("")),
        Checked("a", "one", warn("", "", "", lambda: "done it")),
        Checked("a", "two", fail("", "", "", broken)),
        Checked("a", "three", fail("", "", "", refused)),
    ]
    mended = mend(checked)
    assert [(one["name"], one["done"], one["what"]) for one in mended] == [
        ("one", True, "done it"),
        ("two", False, "[Errno 13] Permission denied: '/x'"),
        ("three", False, "no"),
    ]
    left = without_failed(checked, mended)
    assert [one.name for one in left if one.finding.mend is not None] == ["one"], "what just failed is not offered again"
    assert [one.finding.state for one in left] == [one.finding.state for one in checked]


SAMPLE = [
    Checked("software", "tmux", ok("3.3a  /usr/bin/tmux")),
    Checked("software", "git", fail("not on PATH", "every agent works in a git worktree", "install git 2.38 or newer: apt install git")),
    Checked("machine", "inotify", warn("128 instances", "watchers share them " * 6, "sudo sysctl -w " + "x" * 90, lambda: "")),
    Checked("machine", "logout", unknown("systemd does not\x1b[31m run here")),
]


def test_the_page() -> None:
    assert list(output.lines(SAMPLE, 80, color=False)) == [
        "Software",
        "  ✓ tmux           3.3a  /usr/bin/tmux",
        "  ✗ git            not on PATH",
        "                   every agent works in a git worktree",
        "                   → install git 2.38 or newer: apt install git",
        "",
        "Machine",
        "  ! inotify        128 instances",
        "                   watchers share them watchers share them watchers share them",
        "                   watchers share them watchers share them watchers share them",
        "                   → sudo sysctl -w " + "x" * 90,
        "  ? logout         systemd does not\\x1b[31m run here",
    ]
    assert output.summary(SAMPLE) == "1 not working, 1 to look at, 1 unknown, 1 fine; next: nightcrew doctor --fix mends 1 of them"
    assert output.summary(SAMPLE[:1]) == "all 1 are fine"


def test_colours_only_wrap_the_same_text() -> None:
    plain, coloured = (list(output.lines(SAMPLE, 60, color=color)) for color in (False, True))
    assert "\x1b[31m✗\x1b[0m" in "\n".join(coloured)
    assert [line.replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[2m", "") for line in coloured if "✗" not in line][:1] == plain[
        :1
    ]
    assert not any("\x1b" in line for line in plain)


def test_the_object() -> None:
    shape = output.shape(SAMPLE, [])
    assert shape["counts"] == {"ok": 1, "warn": 1, "fail": 1, "unknown": 1}
    assert shape["checks"][2]["fixable"] and not shape["checks"][1]["fixable"]
    assert set(shape["checks"][0]) == {"group", "name", "state", "seen", "why", "fix", "fixable"}
