"""Runs and one run, from real ledgers and archives; and the reports that are served."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from memory.lease_rows import Waits
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, NotFound, Refused
from supervisor.kernel.leases import Wait, WaitKind
from supervisor.kernel.night import NightOrder, NightTerms
from supervisor.kernel.states import End, TaskState
from supervisor.store.ledger import Ledger
from supervisor.views.report import pages
from supervisor.views.web import pages as web_pages
from tests.gateway.account.kit import NOW
from tests.store.kit import RUN, Wall, spec, submission, submit, whole
from tests.views.report.kit import report
from tests.views.web.elements import leads, rows, text
from tests.views.web.models.test_limits import sent, write

RUNS, TASKS = "Runs, the newest first", "Tasks, in the plan's order"
HOSTILE = "<img src=x onerror=alert(1)>\x1b]52;c;AAAA\x07\u202e"


def test_nothing_yet_is_a_sentence(home: Home) -> None:
    with pytest.raises(NotFound, match="nothing was ever run here"):
        web_pages.runs(home, {})
    with pytest.raises(NotFound, match="nothing was ever run here"):
        web_pages.run(home, {"run": RUN}, NOW)


def test_a_damaged_ledger_is_a_sentence(home: Home) -> None:
    home.ledger.write_bytes(b"x" * 4096)
    with pytest.raises(LedgerError, match="damaged"):
        web_pages.runs(home, {})


def test_a_ledger_that_somebody_holds_is_a_sentence_soon(home: Home, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(ledger, "a")
    ledger.close()
    monkeypatch.setattr(web_pages, "BUSY_S", 0.01)
    with closing(sqlite3.connect(home.ledger, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("UPDATE run SET title = title")
        with pytest.raises(LedgerError, match="locked"):
            web_pages.runs(home, {})
    assert rows(web_pages.runs(home, {}), RUNS)


def test_runs_come_the_newest_first_a_page_at_a_time(home: Home, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pages, "ROWS", 2)
    for number in range(5):
        submit(ledger, "a", "b", run=f"0731-aaa{number}")
    ledger.commit(whole("0731-aaa4/a"))
    seen, older = list[str](), ""
    while True:
        page = web_pages.runs(home, {"before": older})
        seen += [one["Run"] for one in rows(page, RUNS)]
        if not (older := leads(page, "Older runs").get("before", "")):
            break
    assert seen == [f"0731-aaa{number}" for number in (4, 3, 2, 1, 0)]
    newest = rows(web_pages.runs(home, {}), RUNS)[0]
    assert (newest["Tasks"].split(), newest["Marks"]) == (["D", "done", "1", "q", "ready", "1"], "")


def test_after_the_ledgers_come_those_of_the_archive_each_once(home: Home, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(ledger, "a", run="0730-old0")
    submit(ledger, "a", run="0730-both")
    ledger.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(home.ledger, home.archive)
    ledger.db.execute("DELETE FROM task WHERE run = '0730-old0'")
    ledger.db.execute("DELETE FROM run WHERE id = '0730-old0'")
    submit(ledger, "a", run="0731-new0")
    assert [one["Run"] for one in rows(web_pages.runs(home, {}), RUNS)] == ["0731-new0", "0730-both", "0730-old0"]
    monkeypatch.setattr(web_pages, "ROWS", 2)
    first = web_pages.runs(home, {})
    assert [one["Run"] for one in rows(first, RUNS)] == ["0731-new0", "0730-both"]
    then = web_pages.runs(home, leads(first, "Older runs"))
    assert [(one["Run"], one["Marks"]) for one in rows(then, RUNS)] == [("0730-old0", "– archived")] and not leads(then, "Older runs")
    assert web_pages.run(home, {"run": "0730-old0"}, NOW)["title"] == "Run 0730-old0"


def test_a_night_says_its_terms(home: Home, ledger: Ledger) -> None:
    terms = NightTerms(cost_max=40.0, parallel=3)
    ledger.submit(submission("conductor", key="n", night=NightOrder(terms, "/p.toml", "ab", "")), "1122-nnnn")
    [found] = rows(web_pages.runs(home, {}), RUNS)
    assert found["Marks"] == "N night, open: $40.00, 3 at once"


def result(**facts: Any) -> str:
    shape = {
        "schema": 1, "tokens": {"input": 1000, "output": 200, "cache_read": 0, "cache_write": 0}, "cost_usd": 0.25,
        "waits": {"queue_s": 4.0, "tokens_s": 7.5, "human_s": 0.0}, "diff": {"files": 2, "plus": 10, "minus": 3},
    }  # fmt: skip
    return json.dumps({**shape, **facts})


def test_one_run_has_its_tasks_what_they_waited_for_and_what_it_took(home: Home, ledger: Ledger, wall: Wall) -> None:
    one, two, three = submit(ledger, spec("one", title=HOSTILE), "two", "three")
    wall.now += 10
    ledger.commit(whole(one))
    ledger.note(one, 1, branch="nightcrew/x", result=result())
    ledger.commit(whole(two, 1, End.FAILED, TaskState.FAILED))
    ledger.of(Waits).begin("0123456789ab", Wait(0, three, 1, WaitKind.LEASE, "src/**", (one,), wall.now, wall.now + 60))
    write(home.gateway_account, [sent(NOW, agent=one), sent(NOW, agent=two), sent(NOW, agent="0731-aaaab/one")])
    found = web_pages.run(home, {"run": RUN}, wall.now + 5)
    tasks = rows(found, TASKS)
    assert [(task["Task"], task["State"]) for task in tasks] == [("one", "D done"), ("two", "F failed"), ("three", "q ready")]
    first = tasks[0]
    assert (first["What"].strip(), first["Tokens"], first["Cost"], first["Tokens wait"]) == (HOSTILE, "1.2k", "$0.25", "7.5s")
    assert first["Changes"] == "2 files +10 −3"
    assert "Cost$0.04Tokens2.1k" in text(found["nodes"][2]) and "Requests2" in text(found["nodes"][2]), "of this run alone"
    [waited] = rows(found, "The longest waits")
    assert (waited["Together"], waited["For whom"]) == ("5s", one)
    with pytest.raises(NotFound):
        web_pages.run(home, {"run": "0731-none"}, NOW)


def test_the_tasks_of_a_large_run_come_a_page_at_a_time(home: Home, ledger: Ledger) -> None:
    made = submit(ledger, *(f"t{number}" for number in range(2 * web_pages.ROWS + 1)))
    seen, after = list[str](), ""
    while True:
        page = web_pages.run(home, {"run": RUN, "after": after}, NOW)
        assert len(rows(page, TASKS)) <= web_pages.ROWS
        seen += [f"{RUN}/{one['Task']}" for one in rows(page, TASKS)]
        if not (after := leads(page, "More tasks").get("after", "")):
            break
    assert seen == made


# Reports --------------------------------------------------------------------------------------------------------------------------


def put(home: Home, data: bytes) -> None:
    (home.runs / RUN).mkdir(parents=True, exist_ok=True)
    (home.runs / RUN / "report.json").write_bytes(data)


def test_a_report_is_made_anew_from_its_json_under_the_policy_that_fits_it(home: Home, ledger: Ledger) -> None:
    submit(ledger, "one")
    put(home, json.dumps(report()).encode())
    (home.runs / RUN / "report.html").write_text("<script>alert(1)</script>")
    served = web_pages.page(home, RUN, "report")
    assert "alert(1)" not in served and served == pages.render_html(report())
    own = served.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0].replace("&#39;", "'")
    policy = web_pages.report_policy()
    assert policy.startswith(own) and own.startswith("default-src 'none'; script-src 'sha256-")
    assert "sandbox allow-scripts;" in policy and "allow-same-origin" not in policy
    assert rows(web_pages.runs(home, {}), RUNS)[0]["Marks"] == "R report"


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"no json", b'{"schema": 1, "tasks": 7}', b"\xff\xfe"])
def test_a_report_of_another_version_is_a_sentence(home: Home, ledger: Ledger, data: bytes) -> None:
    submit(ledger, "one")
    put(home, data)
    with pytest.raises(Refused, match="not as this version writes it"):
        web_pages.page(home, RUN, "report")


def test_no_name_leads_out_of_the_directory_of_runs(home: Home, ledger: Ledger) -> None:
    submit(ledger, "one")
    (home.root / "report.json").write_text(json.dumps(report()))
    home.runs.mkdir()
    for name in ("..", "", f"../{home.root.name}", f"{RUN}/.."):
        with pytest.raises(NotFound):
            web_pages.page(home, name, "report")
    for kind in ("night", "../report", ""):
        with pytest.raises(NotFound):
            web_pages.page(home, RUN, kind)


def test_what_is_no_file_or_too_large_is_not_read(home: Home, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(ledger, "one")
    put(home, json.dumps(report()).encode())
    monkeypatch.setattr(web_pages, "BYTES_MAX", 10)
    with pytest.raises(Refused, match="too large"):
        web_pages.page(home, RUN, "report")
    file = home.runs / RUN / "report.json"
    file.rename(home.root / "elsewhere.json")
    file.symlink_to(home.root / "elsewhere.json")
    assert web_pages.of_run(home, RUN) == []
    with pytest.raises(NotFound):
        web_pages.page(home, RUN, "report")


def test_an_archive_that_is_damaged_is_a_sentence(home: Home, ledger: Ledger) -> None:
    with closing(ledger):
        submit(ledger, "one")
    home.archive.write_bytes(b"x" * 4096)
    with pytest.raises(LedgerError, match="archive"):
        web_pages.runs(home, {})
