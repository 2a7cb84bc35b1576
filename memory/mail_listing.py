"""The messages of a mailbox, as `ls` answers: read from the ledger alone, so that a command can do it too when no supervisor runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from memory import mail, mail_rows
from memory.mail import PERSON

LISTED_MAX = 1000


def listed(db: sqlite3.Connection, project: str, reader: str, owner: str, args: Mapping[str, Any], now: float) -> dict[str, Any]:
    """As `mail_verbs.ls` returns it, of the mailbox of `owner` for `reader`: a person sees whole threads, an agent what it sent or got.
    `now`: seconds since 1970."""
    is_person = reader == PERSON
    if args.get("pairs"):
        tasks = () if is_person and owner == PERSON else (owner,)
        return {"pairs": [one.shape() for one in mail_rows.pairs(db, project, tasks)]}
    if args.get("thread"):
        found = mail_rows.of_thread(db, str(args["thread"]), LISTED_MAX)
        found = [one for one in found if is_person or reader in (one.sender, one.recipient)]
    else:
        everything, sent = bool(args.get("all")), bool(args.get("sent"))
        found = mail_rows.of_mailbox(db, project, owner, everything=everything, sent=sent, at_most=LISTED_MAX)
        found = found if everything or sent else mail.by_urgency(found)
    answered = mail_rows.answered(db, [one.id for one in found]) if found else set()
    return {"mails": [one.shape(now, answered=one.id in answered) for one in found]}
