"""Who wrote to whom: the messages of a project, the newest first, and one thread with its words. To look claims nothing: a message that
waits for its recipient goes on waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from memory.layout import Layout
from memory.maildir import Maildir
from memory.message import parse
from memory.plain_text import cleaned
from supervisor.core.errors import NightcrewError, NotFound
from supervisor.core.mail import PERSON, Mail
from supervisor.faces import mail as face
from supervisor.faces.web.models.asked import ROWS, Asked, opened
from supervisor.faces.web.models.projects import chosen
from supervisor.host.paths import Home
from supervisor.ledger import mail as rows

THREAD = 50
"""Messages of a thread, the newest."""
Shape = dict[str, Any]


def mails(home: Home, asked: Asked, now: float) -> Shape:
    """`mails` of a project, the newest first, those before the message `before`; with `box=person` what waits for a person alone.
    `older`: the message before which the next page begins."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
        for_person = asked.get("box") == PERSON
        found = rows.newest(db, project, asked.get("before", ""), ROWS + 1, recipient=PERSON if for_person else "")
        answered = rows.answered(db, [one.id for one in found]) if found else set()
    shown = found[:ROWS]
    return {
        "project": project,
        "projects": projects,
        "box": PERSON if for_person else "",
        "mails": [{**_shape(one, now, answered), "type_in": _commands(one)} for one in shown],
        "older": shown[-1].id if len(found) > ROWS else None,
    }


def _shape(one: Mail, now: float, answered: set[str]) -> Shape:
    return one.shape(now, answered=one.id in answered)


def _commands(one: Mail) -> list[str]:
    """What a person can do about a message to them."""
    name = quote(one.id[-face.SHORT :])
    return [f"nightcrew mail read {name}", f"nightcrew mail reply {name} TEXT"] if one.recipient == PERSON and one.is_open else []


def thread(home: Home, asked: Asked, now: float) -> Shape:
    """The newest messages of a thread, oldest first, each with its `text`; empty where its file is gone. Raises NotFound."""
    with opened(home.ledger) as db:
        found = rows.of_thread(db, asked.get("thread", ""), THREAD) if rows.is_there(db) else []
        answered = rows.answered(db, [one.id for one in found]) if found else set()
    if not found:
        raise NotFound("no such thread", on=asked.get("thread", "")[:40], hint="nightcrew mail ls --all")
    texts = _texts(Layout(home.project(found[0].project)).mail, found)
    shapes = [{**_shape(one, now, answered), "text": text} for one, text in zip(found, texts, strict=True)]
    return {"thread": found[0].thread, "mails": shapes, "cut": len(found) == THREAD}


def _texts(mail: Path, found: Sequence[Mail]) -> list[str]:
    return [_text(mail, one) for one in found]


def _text(mail: Path, one: Mail) -> str:
    with contextlib.suppress(NightcrewError):  # a mailbox that cannot be used says so to who reads it
        if (text := Maildir(mail, one.recipient).text(one.id)) is not None:
            return cleaned(parse(text).body)
    return ""
