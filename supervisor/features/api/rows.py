"""Access tokens in the ledger, which runs were handed over with them, and whose token a request carries."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from supervisor.contract import Tables
from supervisor.features.api.rules import TOKENS_MAX, Kind, Scope, Token, is_secret_of, parse, spent, wait_s
from supervisor.kernel import codec
from supervisor.kernel.errors import BudgetSpent, LedgerError, NotFound, Refused, TokenRefused
from supervisor.kernel.format import duration
from supervisor.kernel.spec import Submission
from supervisor.store import sqlite
from supervisor.store.sqlite import WriteAccess


class Access(Tables):
    """The writer's door to them; `Ledger.access`."""

    def submitted(self, run: str, submission: Submission, first: str) -> None:  # noqa: ARG002 - the shape of `Tables`
        """Take the tasks of a run that a program submits from the quota of its token. Raises TokenRefused when the token does not hold any
        more, and BudgetSpent when its quota has no room."""
        if submission.token:
            _handed_over(self._desk, submission, run)

    def create(self, token: Token) -> None:
        """Commit a token; it holds from now on. Raises Refused when TOKENS_MAX hold, or one of that id was made."""
        with self._desk.writing():
            now = self._desk.wall()
            if self._desk.db.execute("SELECT 1 FROM access_token WHERE id = ?", (token.id,)).fetchone() is not None:
                raise Refused("there is a token of that id", on=token.id)
            if len(held(self._desk.db)) >= TOKENS_MAX:
                why = f"{TOKENS_MAX} tokens hold"
                raise Refused("no more tokens", why=why, kept="those", hint="nightcrew token ls, nightcrew token revoke")
            values = {**_to_row(token), "spent": 0.0, "spent_at": now, "created": now, "used": None, "revoked": None}
            names = ", ".join(values)
            marks = ", ".join("?" * len(values))
            self._desk.db.execute(f"INSERT INTO access_token ({names}) VALUES ({marks})", [*values.values()])  # noqa: S608 - our columns
            shown = {"token": token.id, "of": token.kind, "user": token.user, "name": token.name, "scopes": sorted(token.scopes)}
            self._desk.journal(None, None, "token created", shown)

    def revoke(self, token: str) -> bool:
        """Commit that a token opens nothing any more; whether it did before. Raises NotFound for one that was never made."""
        with self._desk.writing():
            row = self._desk.db.execute("SELECT revoked FROM access_token WHERE id = ?", (token,)).fetchone()
            if row is None:
                raise NotFound("no token", on=token, hint="nightcrew token ls --all")
            if row["revoked"] is not None:
                return False
            self._desk.db.execute("UPDATE access_token SET revoked = ? WHERE id = ?", (self._desk.wall(), token))
            self._desk.journal(None, None, "token revoked", {"token": token})
        return True

    def used(self, tokens: Collection[str]) -> None:
        """Note that these were used just now. A power cut may undo it."""
        with self._desk.writing(durable=False):
            sql = "UPDATE access_token SET used = ? WHERE id IN (SELECT value FROM json_each(?))"
            self._desk.db.execute(sql, (self._desk.wall(), json.dumps(list(tokens))))


def _handed_over(desk: WriteAccess, submission: Submission, run: str) -> None:
    now, tasks = desk.wall(), len(submission.spec.tasks)
    token = _one(desk.db, submission.token)
    if token is None or not token.holds(now):
        raise TokenRefused("the token does not hold", on=submission.token, why="it was revoked, or its time is over")
    if wait := wait_s(token, tasks, now):
        why = (
            f"{token.quota} tasks in 24 hours; there is room in {duration(wait)}" if wait < float("inf") else f"it has {token.quota} tasks"
        )
        raise BudgetSpent("the quota of the token is spent", on=token.name, why=why, kept="what was handed over")
    used_up = spent(token, now) + tasks if token.quota else 0.0
    desk.db.execute("UPDATE access_token SET spent = ?, spent_at = ?, used = ? WHERE id = ?", (used_up, now, now, token.id))
    desk.db.execute(
        "INSERT INTO token_run SELECT ?1, ?2, ?3, ?4, min(ord) FROM task WHERE run = ?1", (run, token.id, token.user, submission.digest)
    )


def held(db: sqlite3.Connection) -> dict[str, Token]:
    """Those that are not revoked, by their ids."""
    rows = db.execute("SELECT * FROM access_token WHERE revoked IS NULL ORDER BY created").fetchall()
    return {row["id"]: _token(row) for row in rows}


def every(db: sqlite3.Connection) -> list[Token]:
    """All that were ever made, oldest first."""
    return [_token(row) for row in db.execute("SELECT * FROM access_token ORDER BY created")]


def owner(db: sqlite3.Connection, run: str) -> str | None:
    """The user for whom a run was handed over; None: not with a token."""
    row = db.execute("SELECT user FROM token_run WHERE run = ?", (run,)).fetchone()
    return None if row is None else str(row["user"])


LOOKED_AT = 1000
"""Tasks of which one page is made: a page may be short, or empty, and there is more behind it."""


def visible(db: sqlite3.Connection, token: Token, before: int, limit: int, state: str = "") -> tuple[list[str], int]:
    """Ids of tasks of the ledger that a token may know of, the newest first, and the number to go on `before`; 0 begins, and is given when
    these were the last. `state`: only those that are so."""
    before = before or 1 << 62
    if token.others:
        sql = "SELECT t.ord, t.id, t.project, t.state FROM task t WHERE t.ord < ? ORDER BY t.ord DESC LIMIT ?"
        rows = db.execute(sql, (before, LOOKED_AT)).fetchall()
    else:
        sql = """SELECT t.ord, t.id, t.project, t.state FROM token_run k JOIN task t ON t.ord = k.first
                 WHERE k.user = ? AND k.first < ? ORDER BY k.first DESC LIMIT ?"""
        rows = db.execute(sql, (token.user, before, LOOKED_AT)).fetchall()
    found = [row for row in rows if token.reaches(row["project"]) and state in ("", row["state"])]
    if len(found) > limit:
        return [str(row["id"]) for row in found[:limit]], int(found[limit - 1]["ord"])
    return [str(row["id"]) for row in found], int(rows[-1]["ord"]) if len(rows) == LOOKED_AT else 0


def run_of_key(db: sqlite3.Connection, key: str) -> str | None:
    """The run of this ledger that was handed over with an idempotency key."""
    row = db.execute("SELECT id FROM run WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row["id"])


def places(db: sqlite3.Connection, token: Token) -> dict[str, str]:
    """The repositories that a token reaches: the root of each by its id."""
    return {str(row["id"]): str(row["root"]) for row in db.execute("SELECT id, root FROM project ORDER BY id") if token.reaches(row["id"])}


def _one(db: sqlite3.Connection, token: str) -> Token | None:
    row = db.execute("SELECT * FROM access_token WHERE id = ?", (token,)).fetchone()
    return None if row is None else _token(row)


def reads(kind: str, scopes: str, projects: str) -> bool:
    """Whether these columns of a row are what `Access.create` writes."""
    with contextlib.suppress(ValueError, TypeError):
        lists = json.loads(scopes), json.loads(projects)
        return bool(Kind(kind)) and all(isinstance(one, list) for one in lists) and {*lists[0]} <= {*Scope}
    return False


def _to_row(token: Token) -> dict[str, Any]:
    return {**codec.shape(token), "scopes": codec.dumps(token.scopes), "projects": codec.dumps(token.projects)}


def _token(row: sqlite3.Row) -> Token:
    shape = dict(row)
    lists = {name: json.loads(shape[name]) for name in ("scopes", "projects")}
    return codec.load(Token, {**shape, **lists, "others": bool(shape["others"]), "confined": bool(shape["confined"])})


FRESH_S = 0.5
"""What was read is believed for so long: a token opens nothing at most this much after it was revoked."""


class TokenBook:
    """All tokens that hold. Any thread may ask; `close` it."""

    def __init__(self, ledger: Path, now: Callable[[], float], wall: Callable[[], float]) -> None:
        """`now` gives monotonic seconds, `wall` seconds since 1970."""
        self._path, self._now, self._wall = ledger, now, wall
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0)
        self._held: Mapping[str, Token] = {}
        self._read_at = -2 * FRESH_S

    def knows(self, text: str) -> bool:
        """Whether `verify` answers without a look at the ledger."""
        words = parse(text)
        return words is None or (self._is_fresh and words.id in self._held)

    @property
    def _is_fresh(self) -> bool:
        return self._now() - self._read_at < FRESH_S

    def verify(self, text: str, kind: Kind) -> Token | None:
        """The token of this kind that `text` is; None for a text that opens nothing, in the same time whatever is wrong with it. Raises
        LedgerError when nobody can tell."""
        words = parse(text)
        token = None if words is None else self._known().get(words.id) or self._known(since=self._now()).get(words.id)
        right = is_secret_of(token, words.secret if words is not None else "")
        return token if token is not None and right and token.kind is kind and token.holds(self._wall()) else None

    def holder(self, token: str, kind: Kind) -> Token | None:
        """The token of this id and kind, while it holds. Raises LedgerError."""
        known = self._known().get(token)
        return known if known is not None and known.kind is kind and known.holds(self._wall()) else None

    def _known(self, since: float = -1.0) -> Mapping[str, Token]:
        """Those that were read lately, and not before `since`: one that nobody knows may have been made just now."""
        if self._is_fresh and self._read_at >= since:
            return self._held
        with self._lock:  # however many ask at once, one reads
            if not self._is_fresh or self._read_at < since:
                began = self._now()
                self._held = self._look()
                self._read_at = began
        return self._held

    def _look(self) -> Mapping[str, Token]:
        try:
            return self._tokens()
        except LedgerError:  # the file may have been replaced, or migrated by a newer supervisor: look at it afresh, once
            self.close()
            return self._tokens()

    def _tokens(self) -> Mapping[str, Token]:
        if self._db is None:
            if not self._path.exists():
                return {}
            self._db = sqlite.connect_readonly(self._path, one_thread=False)
            self._opened = sqlite.file_identity(self._path)
        sqlite.check_same_file(self._path, self._opened)
        return held(self._db)

    def close(self) -> None:
        """Give the ledger back."""
        if self._db is not None:
            with contextlib.suppress(LedgerError):
                self._db.close()
            self._db = None
