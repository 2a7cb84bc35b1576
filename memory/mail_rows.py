"""Messages between agents in the ledger, with their words; the journal has neither words nor subjects."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from memory.mail import PERSON, Mail, MailState, MailType, Pair, Priority, by_urgency
from supervisor.contract import Tables

_OPEN = "state IN ('accepted', 'new', 'given')"
"""Spelled out, since SQLite uses the partial index for exactly these words."""
_COLUMNS = tuple(name for name in Mail.__dataclass_fields__)


class Mails(Tables):
    """The writer's door to messages; `Ledger.mails`."""

    def accept(self, mail: Mail, words: str) -> Mail:
        """Commit that a message with these words was taken. The same key of the same sender twice gives the first one."""
        with self._desk.writing():
            if (known := of_key(self._desk.db, mail.sender, mail.key)) is not None:
                return known
            made = replace(mail, changed=self._desk.wall())
            marks = ", ".join("?" * (len(_COLUMNS) + 1))
            names = ", ".join((*_COLUMNS, "words"))
            values = [*(getattr(made, name) for name in _COLUMNS), words]
            self._desk.db.execute(f"INSERT INTO mail ({names}) VALUES ({marks})", values)  # noqa: S608 - our own columns
            data = {"mail": made.id, "to": made.recipient, "type": str(made.type), "bytes": made.bytes}
            self._desk.journal(made.sender if "/" in made.sender else None, None, "mail sent", data)
        return made

    def keep(self, mail: str, words: str) -> None:
        """Commit the words of a message that a release before this one kept in its file alone."""
        with self._desk.writing():
            self._desk.db.execute("UPDATE mail SET words = ? WHERE id = ?", (words, mail))
            self._desk.db.execute("UPDATE mail SET state = 'new' WHERE id = ? AND state = 'accepted'", (mail,))

    def hold(self, mail: str) -> None:
        """Its text comes to nothing: it waits again to be given or read."""
        with self._desk.writing():
            self._desk.db.execute(
                "UPDATE mail SET state = ?, delivery = NULL, changed = ? WHERE id = ? AND state = 'given'",
                (MailState.NEW, self._desk.wall(), mail),
            )

    def typed(self, mail: str, epoch: int | None, tokens: int) -> None:
        """Its text was given to an attempt, and nothing confirms that it was read."""
        with self._desk.writing():
            self._desk.db.execute(
                "UPDATE mail SET epoch = ?, tokens = tokens + ?, changed = ? WHERE id = ?", (epoch, tokens, self._desk.wall(), mail)
            )

    def read(self, mail: str, epoch: int | None, tokens: int) -> None:
        """Commit that its one reader has it. `tokens`: estimated, of what that was given now."""
        self._end(mail, MailState.READ, epoch, tokens, "")

    def ended(self, mail: str, state: MailState, why: str) -> None:
        """Commit that nobody will read it."""
        self._end(mail, state, None, 0, why)

    def _end(self, mail: str, state: MailState, epoch: int | None, tokens: int, why: str) -> None:
        """Nothing is changed for a message that was read before."""
        with self._desk.writing():
            known = one(self._desk.db, mail)
            if known is None or not known.is_open:
                return
            self._desk.db.execute(
                "UPDATE mail SET state = ?, epoch = coalesce(?, epoch), tokens = tokens + ?, why = ?, changed = ? WHERE id = ?",
                (state, epoch, tokens, why, self._desk.wall(), mail),
            )
            task = known.recipient if "/" in known.recipient else None
            self._desk.journal(task, epoch, f"mail {state}", {"mail": mail, **({"why": why} if why else {})})

    def again(self, mail: str, tokens: int) -> None:
        """Count that its reader was given it once more."""
        with self._desk.writing(durable=False):
            self._desk.db.execute("UPDATE mail SET tokens = tokens + ? WHERE id = ?", (tokens, mail))

    def note(self, task: str | None, event: str, data: dict[str, Any]) -> None:
        """A line of history about the mailbox of a task."""
        with self._desk.writing(durable=False):
            self._desk.journal(task, None, event, data)


def one(db: sqlite3.Connection, mail: str) -> Mail | None:
    """One message."""
    return next(iter(_mails(db, "WHERE id = ?", mail)), None)


def words(db: sqlite3.Connection, mail: str) -> str | None:
    """What a message says; None where only its file has that: a release before this one kept it there."""
    row = db.execute("SELECT words FROM mail WHERE id = ?", (mail,)).fetchone()
    return row[0] if row is not None else None


def of_key(db: sqlite3.Connection, sender: str, key: str) -> Mail | None:
    """The message that a sender sent with this key; none for an empty one."""
    return next(iter(_mails(db, "WHERE sender = ? AND key = ? AND key <> ''", sender, key)), None) if key else None


def unread(db: sqlite3.Connection) -> list[Mail]:
    """All that wait, of the whole ledger, oldest first."""
    return _mails(db, f"WHERE {_OPEN} ORDER BY id")


def of_mailbox(db: sqlite3.Connection, project: str, owner: str, *, everything: bool, sent: bool, at_most: int) -> list[Mail]:
    """The newest that its owner got, or with `sent` those that it sent; oldest first. Without `everything` those that it has not read."""
    which = f"WHERE project = ? AND {'sender' if sent else 'recipient'} = ?" + ("" if everything or sent else f" AND {_OPEN}")
    return _mails(db, f"{which} ORDER BY id DESC LIMIT ?", project, owner, at_most)[::-1]


def newest(db: sqlite3.Connection, project: str, before: str, at_most: int, *, recipient: str = "") -> list[Mail]:
    """The messages of a project, newest first, those before the message of this id; with a `recipient` those to it that it has not read.
    None in an older ledger."""
    which, values = (f"AND {_OPEN} AND recipient = ?", (recipient,)) if recipient else ("", ())
    return _mails(db, f"WHERE project = ? AND id < ? {which} ORDER BY id DESC LIMIT ?", project, before or "~", *values, at_most)


def of_thread(db: sqlite3.Connection, thread: str, at_most: int) -> list[Mail]:
    """The newest of a thread, oldest first."""
    return _mails(db, "WHERE thread = ? ORDER BY id DESC LIMIT ?", thread, at_most)[::-1]


def answered(db: sqlite3.Connection, mails: Collection[str]) -> set[str]:
    """Those of them that somebody replied to."""
    marks = ", ".join("?" * len(mails))
    return {
        str(row[0])
        for row in db.execute(f"SELECT DISTINCT in_reply_to FROM mail WHERE in_reply_to IN ({marks})", tuple(mails))  # noqa: S608 - marks
    }


def sent_since(db: sqlite3.Connection, sender: str, since: float) -> list[tuple[str, float]]:
    """To whom a sender wrote, and when; oldest first."""
    sql = "SELECT recipient, sent FROM mail WHERE sender = ? AND sent > ? ORDER BY sent"
    return [(str(row[0]), float(row[1])) for row in db.execute(sql, (sender, since))]


def asked_of_person(db: sqlite3.Connection) -> list[Mail]:
    """The requests and handoffs that a person has neither read nor answered, oldest first. None in an older ledger."""
    return _mails(db, f"WHERE {_OPEN} AND recipient = ? AND type IN ('request', 'handoff') ORDER BY id", PERSON)


def pairs(db: sqlite3.Connection, project: str = "", tasks: Collection[str] = ()) -> list[Pair]:
    """What each has written to each other, of a project, or with `tasks` those between two of which one is among them; the most tokens
    first. None in an older ledger."""
    found = db.execute(
        f"""SELECT sender, recipient, count(*), sum({_OPEN}), sum(bytes), sum(tokens) FROM mail
            WHERE (? = '' OR project = ?) GROUP BY sender, recipient ORDER BY sum(tokens) DESC, sender, recipient""",  # noqa: S608 - ours
        (project, project),
    )
    made = [Pair(str(row[0]), str(row[1]), *(int(value) for value in tuple(row)[2:])) for row in found]
    return [pair for pair in made if not tasks or pair.sender in tasks or pair.recipient in tasks]


def _mails(db: sqlite3.Connection, which: str, *values: object) -> list[Mail]:
    names = ", ".join(_COLUMNS)
    return [_mail(row) for row in db.execute(f"SELECT {names} FROM mail {which}", values)]  # noqa: S608 - our own columns


def _mail(row: sqlite3.Row) -> Mail:
    shape = dict(row)
    state, kind, priority = MailState(shape["state"]), MailType(shape["type"]), Priority(shape["priority"])
    return Mail(**{**shape, "state": state, "type": kind, "priority": priority})


LISTED_MAX = 1000


def listed(db: sqlite3.Connection, project: str, reader: str, owner: str, args: Mapping[str, Any], now: float) -> dict[str, Any]:
    """As `mail_requests.ls` returns it, of the mailbox of `owner` for `reader`: a person sees whole threads, an agent what it sent or got.
    `now`: seconds since 1970."""
    is_person = reader == PERSON
    if args.get("pairs"):
        tasks = () if is_person and owner == PERSON else (owner,)
        return {"pairs": [one.shape() for one in pairs(db, project, tasks)]}
    if args.get("thread"):
        found = of_thread(db, str(args["thread"]), LISTED_MAX)
        found = [one for one in found if is_person or reader in (one.sender, one.recipient)]
    else:
        everything, sent = bool(args.get("all")), bool(args.get("sent"))
        found = of_mailbox(db, project, owner, everything=everything, sent=sent, at_most=LISTED_MAX)
        found = found if everything or sent else by_urgency(found)
    replied = answered(db, [one.id for one in found]) if found else set()
    return {"mails": [one.shape(now, answered=one.id in replied) for one in found]}
