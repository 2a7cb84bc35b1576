"""Access tokens in the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.doctor import state_directory as state
from supervisor.features.api import rows as api_rows
from supervisor.features.api.rows import Access
from supervisor.features.api.rules import Kind, Scope, Token
from supervisor.features.retention.archiving import Archive
from supervisor.host.paths import Home
from supervisor.kernel.decision import SetState
from supervisor.kernel.errors import BudgetSpent, KeyTaken, NotFound, Refused, TokenRefused
from supervisor.kernel.states import TaskState
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, spec, submission, submit, whole

ID = "0123456789ab"


@pytest.fixture
def ledger(path: Path, wall: Wall) -> Iterator[Ledger]:
    with closing(Ledger(path, wall)) as ledger:
        yield ledger


def token(**facts: object) -> Token:
    shape = {"others": False, "confined": True, "rate": 5.0, "quota": 0, **facts}
    return Token(**{"id": ID, "digest": "d", "kind": Kind.API, "user": "anna", "name": "ci", "scopes": frozenset({Scope.SUBMIT}),
                    "projects": frozenset({"p"}), **shape})  # type: ignore[arg-type]  # fmt: skip


def hand_over(ledger: Ledger, key: str, run: str, digest: str = "r", tasks: int = 1) -> tuple[str, bool]:
    return ledger.submit(submission(*(f"t{n}" for n in range(tasks)), key=key, token=ID, digest=digest), run)


def test_a_token_is_kept_as_it_was_made_and_revoked_once(ledger: Ledger, path: Path, wall: Wall) -> None:
    ledger.of(Access).create(token(expires=wall.now + 60))
    with pytest.raises(Refused, match="there is a token"):
        ledger.of(Access).create(token())
    with closing(sqlite.connect_readonly(path)) as db:
        (kept,) = api_rows.held(db).values()
        assert (kept.scopes, kept.projects, kept.created, kept.expires) == (
            frozenset({Scope.SUBMIT}), frozenset({"p"}), wall.now, wall.now + 60)  # fmt: skip
        assert ledger.of(Access).revoke(ID) and not ledger.of(Access).revoke(ID)
        assert api_rows.held(db) == {} and [one.revoked for one in api_rows.every(db)] == [wall.now]
    with pytest.raises(NotFound):
        ledger.of(Access).revoke("f" * 12)
    events = [row["event"] for row in rows(path, "SELECT event FROM journal")]
    assert events == ["token created", "token revoked"]


def test_the_same_key_is_one_run_and_another_request_is_refused(ledger: Ledger, path: Path) -> None:
    ledger.of(Access).create(token())
    assert hand_over(ledger, "k", "0731-aaaa") == ("0731-aaaa", True)
    assert hand_over(ledger, "k", "0731-bbbb") == ("0731-aaaa", False)
    with pytest.raises(KeyTaken):
        hand_over(ledger, "k", "0731-bbbb", digest="other")
    assert rows(path, "SELECT run, user FROM token_run") == [{"run": "0731-aaaa", "user": "anna"}]
    ledger.of(Access).revoke(ID)
    with pytest.raises(TokenRefused):
        hand_over(ledger, "new", "0731-cccc")
    assert rows(path, "SELECT id FROM run") == [{"id": "0731-aaaa"}]


def test_a_quota_is_counted_with_the_run(ledger: Ledger, wall: Wall) -> None:
    ledger.of(Access).create(token(quota=2))
    hand_over(ledger, "one", "0731-aaaa", tasks=2)
    assert hand_over(ledger, "one", "0731-bbbb", tasks=2) == ("0731-aaaa", False)
    with pytest.raises(BudgetSpent, match="room in 12h"):
        hand_over(ledger, "two", "0731-bbbb")
    wall.now += 43_200
    assert hand_over(ledger, "two", "0731-bbbb")[1]
    with pytest.raises(BudgetSpent, match="it has 2 tasks"):
        hand_over(ledger, "three", "0731-cccc", tasks=3)


def test_an_archived_run_keeps_its_owner_and_its_request(ledger: Ledger, path: Path, wall: Wall) -> None:
    ledger.of(Access).create(token())
    hand_over(ledger, "k", "0731-aaaa")
    ledger.commit([SetState("0731-aaaa/t0", TaskState.READY, ""), *whole("0731-aaaa/t0")])
    ledger.release("0731-aaaa/t0", 1)
    submit(ledger, spec("newer"), run="0731-zzzz")
    with closing(Archive(path, path.with_name("archive.db"), wall)) as moving:
        assert moving.mark("0731-aaaa", 1 << 40)
        while moving.move("0731-aaaa"):
            pass
    assert rows(path, "SELECT * FROM token_run") == []
    with closing(sqlite.connect_readonly(path.with_name("archive.db"))) as db:
        assert api_rows.owner(db, "0731-aaaa") == "anna"
    assert hand_over(ledger, "k", "0731-bbbb") == ("0731-aaaa", False)
    with pytest.raises(KeyTaken):
        hand_over(ledger, "k", "0731-bbbb", digest="other")


def test_a_recovered_ledger_has_no_token_that_holds(ledger: Ledger, path: Path) -> None:
    ledger.of(Access).create(token())
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert any("token ci of anna (0123456789ab): revoked" in line for line in state._mend(db, Home(path.parent)))
        db.row_factory = sqlite3.Row
        assert api_rows.held(db) == {} and len(api_rows.every(db)) == 1
