"""Which ids of conversations the ledger believes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, spec, submit

ODD = ["", "--dangerously-skip-permissions", "../../other/1/out/talk", "a/b", "a..b", ".hidden", "a b", "x" * 129, "é", "a\nb"]


@pytest.mark.parametrize("session", ODD)
def test_an_id_that_an_agent_tells_names_no_option_and_leads_nowhere(tmp_path: Path, session: str) -> None:
    """It becomes an argument of its command line, and a part of the path of a file that we copy."""
    with contextlib.closing(Ledger(tmp_path / "ledger.db", Wall())) as ledger:
        submit(ledger, spec("a"), run="0930-zzzz")
        task = "0930-zzzz/a"
        ledger.conversations.begin(task, 1, "", None)
        ledger.conversations.learned(task, 1, session)
        assert _session(tmp_path, task) == ""
        ledger.conversations.learned(task, 1, "ses_2f-1.b")
        assert _session(tmp_path, task) == "ses_2f-1.b"


def _session(tmp_path: Path, task: str) -> str:
    (row,) = rows(tmp_path / "ledger.db", "SELECT session FROM conversation WHERE task = ?", task)
    return str(row["session"])
