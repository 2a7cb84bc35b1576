"""What a run's report says of the memory: what its agents had from earlier runs, and what they left."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from memory import mail as mail_rows
from memory import reports
from memory.files import Layout
from memory.versions import PERSON, Author, ReadBook
from memory.writing import Store
from supervisor.views import waits
from supervisor.views.report import model, pages
from tests.views.report.kit import report


def test_what_came_from_earlier_runs_and_what_was_left(tmp_path: Path) -> None:
    ledger = sqlite3.connect(":memory:")
    ledger.row_factory = sqlite3.Row
    ledger.execute("CREATE TABLE attempt (task TEXT, epoch INTEGER, result TEXT)")
    first = {"first_request": {"input": 100, "cache_read": 300, "cache_write": 0}}
    ledger.execute("INSERT INTO attempt VALUES ('2/a', 1, ?)", (json.dumps(first),))
    assert reports.of_run(ledger, "2", 100.0, tmp_path) is None, "no memory at all"
    Layout(tmp_path).memory.mkdir()
    clock = [50.0]
    store = Store(Layout(tmp_path), lambda: clock[0])
    store.put("semantic/old.md", "Old.\n", PERSON)
    clock[0] = 150.0
    store.put("semantic/new.md", "New.\n", Author("2/a", 1))
    store.put("semantic/new.md", "Newer.\n", Author("2/a", 1))
    store.put("semantic/other.md", "Of another run.\n", Author("22/a", 1))
    store.close()
    with ReadBook.opened(Layout(tmp_path).book) as book:
        book.note(["semantic/old.md"], "2/a", 150.0, given=True)
        book.note(["semantic/old.md", "semantic/new.md"], "2/b", 151.0, given=False)
        book.note(["semantic/new.md"], "22/a", 152.0, given=False)
        book.briefed("2/a", 1, ("d" * 16, 900), 150.0)
    used = reports.of_run(ledger, "2", 100.0, tmp_path)
    assert used is not None
    assert (used["written"], used["briefed"], used["given"], used["asked"], used["from_earlier"]) == (1, 1, 1, 2, 1)
    assert used["top"][0] == {"path": "semantic/old.md", "given": 1, "asked": 1, "agents": 2, "earlier": True}
    assert used["first_hit_ratio"] == 0.75
    assert reports.of_run(ledger, "3", 100.0, tmp_path) is None, "a run that had nothing to do with it"
    for page in (pages.render_markdown(report(memory=used)), pages.render_html(report(memory=used))):
        assert "What they knew" in page and "old.md" in page and "75%" in page and "1 of them" in page
    assert "What they knew" not in pages.render_html(report()) + pages.render_markdown(report())


def test_what_the_mail_of_a_run_cost_is_in_its_report() -> None:
    ledger = sqlite3.connect(":memory:")
    ledger.row_factory = sqlite3.Row
    ledger.execute("CREATE TABLE mail (project TEXT, sender TEXT, recipient TEXT, state TEXT, bytes INTEGER, tokens INTEGER)")
    for row in (("2/a", "2/b", 40), ("2/a", "2/b", 50), ("person", "3/c", 70)):
        ledger.execute("INSERT INTO mail VALUES ('p', ?, ?, 'read', 9, ?)", row)
    told = [model.pair(one) for one in mail_rows.pairs(ledger, "p", {"2/a", "2/b"})]
    assert told == [{"from": "2/a", "to": "2/b", "messages": 2, "tokens": 90}], "of this run alone"
    for page in (pages.render_markdown(report(mail=told)), pages.render_html(report(mail=told)).replace("<wbr>", "")):
        assert "What they wrote to each other" in page and "2/a" in page and "90" in page
    assert "wrote to each other" not in pages.render_html(report(mail=[])) + pages.render_markdown(report())


def test_who_waited_for_whom_is_in_the_reports() -> None:
    ledger = sqlite3.connect(":memory:")
    ledger.row_factory = sqlite3.Row
    ledger.executescript(
        """CREATE TABLE wait (task TEXT, kind TEXT, holders TEXT, since REAL, ended REAL);
           CREATE TABLE journal (task TEXT, event TEXT);"""
    )
    assert waits.of_tasks(ledger, ["2/a"], 100.0) is None, "an older ledger"
    assert waits.of_tasks(ledger, ["2/a"], 100.0) is None
    rows = [
        ("2/a", "lease", ["2/b"], 10, 30),
        ("2/a", "lease", ["2/b"], 40, None),
        ("2/b", "rate", [], 50, 55),
        ("3/c", "mail", ["2/a"], 0, 90),
    ]
    ledger.executemany("INSERT INTO wait VALUES (?, ?, ?, ?, ?)", [(who, kind, json.dumps(whom), *at) for who, kind, whom, *at in rows])
    events = ["wait refused", "wait refused", "wait given up", "memory changed"]
    ledger.executemany("INSERT INTO journal VALUES ('2/b', ?)", [(event,) for event in events])
    found = waits.of_tasks(ledger, ["2/a", "2/b"], 100.0)
    assert found == {
        "waits": 3, "seconds": 85.0, "refused": 2, "given_up": 1,
        "top": [
            {"task": "2/a", "kind": "lease", "for": ["2/b"], "waits": 2, "seconds": 80.0, "longest_s": 60.0},
            {"task": "2/b", "kind": "rate", "for": [], "waits": 1, "seconds": 5.0, "longest_s": 5.0},
        ],
    }, "of these tasks alone"  # fmt: skip
    for page in (pages.render_markdown(report(waits=found)), pages.render_html(report(waits=found))):
        assert "What they waited for" in page and "its turn at a quota" in page and "2 refused at once, 1 given up" in page
    assert "What they waited for" not in pages.render_html(report(waits=None)) + pages.render_markdown(report())
