"""Lists of notes, changes, leases and mails on a terminal of 80 columns: aligned, one a line, and with times that need no calendar."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memory import local
from memory import mail as views
from supervisor.client import common
from supervisor.kernel.format import rfc3339

NOW = 1_800_000_000.0
LONG = "semantic/how-the-parser-of-payments-is-tested.md"
TITLE = "How the parser is tested with the large corpus of fixtures"
ISO = re.compile(r"\d{4}-\d\d-\d\dT")


def entry(path: str, title: str = TITLE) -> dict[str, Any]:
    return {"path": path, "size": 153, "version": "0" * 16, "mtime": NOW - 300, "title": title}


def mail(**given: Any) -> dict[str, Any]:
    made = {
        "id": "01JDPV7W3D5R7Q2KX07Q2KX0", "thread": "01", "in_reply_to": None, "from": "1123-k3f9/lint", "to": "person", "type": "request",
        "priority": "normal", "subject": "Which port?", "sent": rfc3339(NOW - 300), "state": "new", "needs_reply_by": rfc3339(NOW + 600),
        "answered": False, "overdue": False, "why": "", "text": "Which port?\nQuick.",
    }  # fmt: skip
    return {**made, **given}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "width", lambda: 80)


@pytest.mark.usefixtures("narrow")
def test_nothing_is_wider_than_the_terminal_and_a_title_has_room() -> None:
    listed = local.entries([entry("core.md", "Core"), entry(LONG)], NOW).split("\n")
    assert listed[0].index("Core") == listed[1].index("How the parser") and "5m" in listed[1]
    assert "0" * 16 in local.entries([entry("core.md", "Core")], NOW), "there is room for its version"
    hit = local.hit({"path": LONG, "title": TITLE, "excerpt": f"# {TITLE} run make test-parser with the fixtures of make corpus " * 2})
    change = {"path": LONG, "at": NOW - 300, "author": "1123-k3f9/lint", "epoch": 1, "action": "restore", "version": "0" * 16}
    lease = {"fence": 12, "glob": "a/" * 40, "mode": "exclusive", "task": "1123-k3f9/lint", "expires": rfc3339(NOW + 300)}
    lines = [*listed, *hit.split("\n"), local.change(change, NOW), local.lease(lease, 40, NOW)]
    assert all(len(line) <= 80 for line in lines)
    assert hit.split("\n")[1].startswith("    run make"), "its title is not said twice"
    assert local.hit({"path": "a.md", "title": "One.", "excerpt": "One."}) == "a.md  One."


def test_nothing_is_cut_where_there_is_no_terminal() -> None:
    assert TITLE in local.entries([entry(LONG)], NOW) and "0" * 16 in local.entries([entry(LONG)], NOW)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "reply needed in 10m"),
        ({"overdue": True, "needs_reply_by": rfc3339(NOW - 60)}, "reply overdue for 1m"),
        ({"answered": True}, ""),
    ],
)
def test_times_of_mail_are_told_from_now(given: dict[str, Any], said: str) -> None:
    shown = mail(**given)
    (line,), whole = views.mail_lines(shown, NOW, 120), list(views.whole(shown, NOW))
    assert said in line and " 5m" in line and line.endswith("Which port?")
    assert any(one.startswith("sent     5m") and one.endswith(" ago") for one in whole)
    assert said.removeprefix("reply ") in "\n".join(whole) and not ISO.search("\n".join([line, *whole]))


def test_pairs_stand_below_each_other() -> None:
    pair = {"mails": 1, "unread": 0, "tokens": 30}
    lines = views.pair_lines(
        [{**pair, "from": "1123-k3f9/planner", "to": "1123-k3f9/builder"}, {**pair, "from": "person", "to": "1123-k3f9/a"}]
    )
    assert lines[0].index("1 message,") == lines[1].index("1 message,")
    assert views.pair_lines([]) == []


def test_a_subject_stands_below_a_message_that_has_no_room_for_it() -> None:
    first, second = views.mail_lines(mail(subject="May I change the public interface of the parser?"), NOW, 80)
    assert "reply needed" in first and second.strip() == "May I change the public interface of the parser?"
