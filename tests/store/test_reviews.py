"""Comments and verdicts in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.kernel.conversations import DeliveryState
from supervisor.kernel.errors import Refused
from supervisor.results import verdicts
from supervisor.results.verdicts import COMMENTS_MAX, Comment, Reviews
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, submission, submit

SAID = Comment(0, "0731-aaaa/a", "c0ffee", "a.py", 1, 1, "x = 1", "Why?")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.db", Wall())) as made:
        submit(made, "a", "b")
        yield made


def waiting(tmp_path: Path) -> list[int]:
    with closing(sqlite.connect_readonly(tmp_path / "ledger.db")) as db:
        return [one.number for one in verdicts.unsent(db, SAID.task)]


def test_the_same_words_to_the_same_place_wait_once(ledger: Ledger, tmp_path: Path) -> None:
    first, second = ledger.of(Reviews).comment([SAID, replace(SAID, text="How?")])
    assert ledger.of(Reviews).comment([SAID]) == [first] and waiting(tmp_path) == [first, second]
    with pytest.raises(Refused, match="wait"):
        ledger.of(Reviews).comment([replace(SAID, text=str(number)) for number in range(COMMENTS_MAX)])
    assert waiting(tmp_path) == [first, second], "none of them was kept"


def test_comments_are_sent_with_the_run_that_holds_them_or_there_is_none(ledger: Ledger, tmp_path: Path) -> None:
    one, two = ledger.of(Reviews).comment([SAID, replace(SAID, text="How?")])
    ledger.submit(submission("more", key="1", reviewed=SAID.task, comments=[one]), "0731-bbbb")
    assert waiting(tmp_path) == [two]
    with pytest.raises(Refused, match="meanwhile"):
        ledger.submit(submission("more", key="2", reviewed=SAID.task, comments=[one, two]), "0731-cccc")
    assert waiting(tmp_path) == [two] and not ledger.run_exists("0731-cccc")


def test_a_text_that_was_dropped_gives_its_comments_back(ledger: Ledger, tmp_path: Path) -> None:
    one, two = ledger.of(Reviews).comment([SAID, replace(SAID, text="How?")])
    kept = ledger.deliveries.keep([SAID.task], "both", comments=[one])[0]
    other = ledger.deliveries.keep([SAID.task], "two", comments=[two])[0]
    with pytest.raises(Refused, match="meanwhile"):
        ledger.deliveries.keep([SAID.task], "again", comments=[one])
    assert waiting(tmp_path) == [] and len(ledger.deliveries.unfinished()) == 2
    ledger.deliveries.ended(other.id, DeliveryState.CONFIRMED)
    ledger.deliveries.ended(kept.id, DeliveryState.DROPPED, "its task ended first")
    assert waiting(tmp_path) == [one]
