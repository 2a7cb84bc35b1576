"""Files that somebody put into a mailbox himself: a person, or an agent without a sandbox. Each becomes a message from `unknown`, whatever
it says of its sender; what is no message is set aside where it lies, and history says why."""

from __future__ import annotations

import functools
import hashlib

from memory import maildir
from memory.maildir import Found, Maildir
from memory.message import Message, parse
from memory.plain_text import stripped
from supervisor.core.errors import HostError, Refused, one_line
from supervisor.core.mail import PERSON, TERMS, UNKNOWN, Mail, MailType, Priority
from supervisor.daemon.memory.mail import Letter, MailDesk

_WAITS = "not sent"
"""What `MailDesk.post` refuses with when a message may come later."""


class Adopting:
    """Takes over the files of strangers. Belongs to the loop's thread."""

    def __init__(self, desk: MailDesk) -> None:
        self._desk = desk
        self._seen: dict[tuple[str, str], int] = {}
        """When `new/` of a mailbox changed last, as it was looked at."""
        self.unfinished = False
        """The last scan found files that a process is still writing."""

    async def scan(self) -> None:
        """One look at the mailboxes of every project."""
        self.unfinished = False
        for project in [str(row[0]) for row in self._desk.db.execute("SELECT id FROM project")]:
            for owner, changed in await self._desk.on_thread(functools.partial(self._owners, project)):
                if self._seen.get((project, owner)) != changed:
                    await self._look(project, owner, changed)

    def _owners(self, project: str) -> list[tuple[str, int]]:
        """Whose mailboxes there are, and when each changed."""
        mail = self._desk.mail_root(project)
        return [(owner, maildir.changed(mail, owner)) for owner in maildir.owners(mail)]

    async def _look(self, project: str, owner: str, changed: int) -> None:
        box, ours = self._desk.mailbox(project, owner), self._desk.ours(project, owner)
        try:
            found = await self._desk.on_thread(lambda: box.strangers(ours))
        except HostError as error:
            self._desk.loop.alert(f"a mailbox cannot be looked at: {error.line()}")
            found = []
        left = [one for one in found if one.unfinished or not await self._adopted(project, box, one)]
        self.unfinished |= any(one.unfinished for one in found)
        if not left:
            self._seen[project, owner] = changed

    async def _adopted(self, project: str, box: Maildir, found: Found) -> bool:
        """Whether it needs no further look: it is a message of ours now, or was set aside."""
        if self._desk.knows(maildir.id_of(found.name)):  # it arrived since the look began
            return True
        try:
            letter = self._letter(project, box.owner, found)
            await self._desk.post(letter, damped=True)
        except Refused as error:
            if error.what == _WAITS:
                return False
            await self._set_aside(box, found.name, error.why)
            return True
        await self._desk.on_thread(lambda: box.remove(found))
        return True

    def _letter(self, project: str, owner: str, found: Found) -> Letter:
        """Raises Refused for what is no message, or for nobody."""
        if found.data is None:
            raise Refused("not a message", on=found.name, why=found.why)
        if owner != PERSON and (not self._desk.is_task_of(project, owner) or self._desk.has_ended(owner)):
            raise Refused("not a message", on=found.name, why=f"{owner} is no task of this project that can still read it")
        message = parse(found.data.decode("utf-8", "replace"))
        body = stripped(message.body)
        if len(body.encode()) > TERMS.body_max:
            raise Refused("not a message", on=found.name, why=f"its text is longer than {TERMS.body_max} bytes")
        made = self._desk.new_id()
        digest = hashlib.sha256(f"{project}/{owner}/{found.name}/{found.which}\0".encode("utf-8", "replace") + found.data).hexdigest()
        mail = Mail(
            made, project, made, UNKNOWN, owner, _type(message), _subject(message, body), self._desk.loop.clock.wall(),
            priority=_priority(message), key=f"file {digest}",
        )  # fmt: skip
        return Letter(mail, body, (("claims_to_be_from", stripped(message.head.get("from", ""))[: TERMS.subject_max]),))

    async def _set_aside(self, box: Maildir, name: str, why: str) -> None:
        aside = await self._desk.on_thread(lambda: box.set_aside(name))
        task = box.owner if "/" in box.owner and self._desk.is_task(box.owner) else None
        data = {"file": one_line(name)[:200], "now": one_line(aside)[:300], "why": why}
        self._desk.loop.ledger.mails.note(task, "mail set aside", data)
        self._desk.loop.alert(f"a file in the mailbox of {one_line(box.owner)} was set aside: {one_line(name)[:100]}: {why}")


def _type(message: Message) -> MailType:
    """What it says it is; nobody can reply or hand over by a file."""
    return MailType.REQUEST if message.head.get("type") == MailType.REQUEST else MailType.INFO


def _priority(message: Message) -> Priority:
    wanted = message.head.get("priority", "")
    return Priority(wanted) if wanted in tuple(Priority) else Priority.NORMAL


def _subject(message: Message, body: str) -> str:
    first = next((line for line in body.splitlines() if line.strip()), "")
    return one_line(stripped(message.head.get("subject") or first).strip())[: TERMS.subject_max] or "no subject"
