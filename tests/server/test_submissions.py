"""Submissions that come at one moment are one commit, and none of them pays for another's mistake."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.host.clock import SystemClock
from supervisor.kernel.errors import LedgerError, NightcrewError, TokenRefused
from supervisor.server.hooks import Hooks
from supervisor.server.loop import Made, Submissions
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, spec, submission


def handed_over(ledger: Ledger, *orders: tuple[str, str, str]) -> list[Made | BaseException]:
    """Submit runs at one moment: of each its key, its id, and a token."""

    async def all_at_once() -> list[Made | BaseException]:
        desk = Submissions(ledger, SystemClock(), Hooks(()), lambda _: None)
        work = (desk.commit(submission(spec(key), key=key, token=token), run) for key, run, token in orders)
        return await asyncio.gather(*work, return_exceptions=True)

    return asyncio.run(all_at_once())


def test_those_of_one_moment_are_one_commit(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger.db", Wall())) as ledger:
        transactions: list[str] = []
        ledger.db.set_trace_callback(lambda sql: transactions.append(sql) if sql in ("COMMIT", "BEGIN IMMEDIATE") else None)
        made = handed_over(ledger, *((f"k{number}", f"0731-aaa{number}", "") for number in range(5)), ("k1", "0731-bbbb", ""))
        assert made == [*((f"0731-aaa{number}", True) for number in range(5)), ("0731-aaa1", False)], "the same key beside itself, too"
        assert transactions == ["BEGIN IMMEDIATE", "COMMIT"]
    assert len(rows(tmp_path / "ledger.db", "SELECT id FROM task")) == 5


def test_what_is_refused_keeps_back_no_other(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger.db", Wall())) as ledger:
        first, refused, second = handed_over(ledger, ("a", "0731-aaaa", ""), ("b", "0731-bbbb", "f" * 12), ("c", "0731-cccc", ""))
        assert (first, second) == (("0731-aaaa", True), ("0731-cccc", True)) and isinstance(refused, TokenRefused)
        one, cannot, other = handed_over(ledger, ("d", "0731-dddd", ""), ("\udc00", "0731-eeee", ""), ("g", "0731-gggg", ""))
        assert (one, other) == (("0731-dddd", True), ("0731-gggg", True)) and isinstance(cannot, LedgerError)
        with pytest.raises(NightcrewError):
            ledger.submit(submission("x", key="x", token="f" * 12), "0731-xxxx")
    names = [row["id"] for row in rows(tmp_path / "ledger.db", "SELECT id FROM run ORDER BY id")]
    assert names == ["0731-aaaa", "0731-cccc", "0731-dddd", "0731-gggg"]
    assert rows(tmp_path / "ledger.db", "SELECT * FROM task WHERE run NOT IN (SELECT id FROM run)") == []
