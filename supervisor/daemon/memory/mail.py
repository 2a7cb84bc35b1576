"""The mail of all projects: takes messages, hands each to one reader, and says what became of those that nobody read.

A message is on the disk as a draft before its row says that it was taken, and lies in its mailbox after that; whoever moves it from `new/`
to `cur/` has claimed it, and gets it once the row says so. So the next supervisor finds out at every step what is left to do: `recover`.
Rows are changed on the loop's thread, files on the memory's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from memory.layout import Layout
from memory.maildir import Maildir
from memory.message import Message, parse, written
from memory.plain_text import stripped
from supervisor.core import mail as rules
from supervisor.core.errors import NightcrewError, Refused, one_line
from supervisor.core.mail import OPEN, PERSON, SUPERVISOR, TERMS, Mail, MailState, MailType
from supervisor.core.states import FINAL
from supervisor.core.units import rfc3339
from supervisor.daemon.loop import Loop
from supervisor.daemon.memory.waits import WaitDesk
from supervisor.host.failpoint import failpoint
from supervisor.ledger import mail as rows

T = TypeVar("T")
OnThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Letter:
    """What a message says: its row, its words, and what else stands at the head of its file."""

    mail: Mail
    body: str
    more: tuple[tuple[str, str], ...] = ()
    in_prompt: bool = False
    """Its recipient begins with it, so nothing is left to be given."""


@dataclass(eq=False, slots=True)
class Waiter:
    """Somebody who waits for a message."""

    wants: Callable[[Mail], bool]
    woken: asyncio.Event


class MailDesk:
    """One supervisor's. It belongs to one event loop; `keep` runs beside it."""

    def __init__(self, loop: Loop, waits: WaitDesk, on_thread: OnThread, layout: Callable[[str], Layout]) -> None:
        """`on_thread` does work on the memory's thread; `layout` says where the memory of a project lies."""
        self.loop, self.waits = loop, waits
        self.on_thread = on_thread
        self._layout = layout
        self.open: dict[str, dict[str, Mail]] = defaultdict(dict)
        """Messages that nobody has read, by recipient and id."""
        self.waiters: dict[str, list[Waiter]] = defaultdict(list)
        self._sending: list[tuple[str, str, float]] = []
        """Sender, recipient and moment of those that have no row yet."""
        self.under_way: set[asyncio.Task[Any]] = set()
        self._last_ms = 0
        self.ready = asyncio.Event()
        self.give: Callable[[str], Coroutine[Any, Any, None]]
        """Hands what waits for an agent to its next turn."""

    @property
    def db(self) -> Any:
        """The ledger, for queries."""
        return self.loop.ledger.db

    def new_id(self) -> str:
        """Greater than the one before."""
        self._last_ms = max(int(self.loop.clock.wall() * 1000), self._last_ms + 1)
        return rules.message_id(self._last_ms, os.urandom(10))

    def box(self, mail: Mail) -> Maildir:
        """The mailbox that a message is in."""
        return self.mailbox(mail.project, mail.recipient)

    def mailbox(self, project: str, owner: str) -> Maildir:
        return Maildir(self.mail_root(project), owner)

    def mail_root(self, project: str) -> Path:
        """The directory of all mailboxes of a project; it is made."""
        return self._layout(project).mail

    # Taking ----------------------------------------------------------------------------------------------------------------------------

    async def post(self, letter: Letter, *, damped: bool) -> Mail:
        """Take a message; when this returns it is never lost. `damped`: refuse what is too much. One that was sent
        before with the same key is not sent again. Raises Refused, HostError, DiskFull, LedgerError, and then nothing was taken."""
        await self.ready.wait()
        mail = letter.mail
        if (known := rows.of_key(self.db, mail.sender, mail.key)) is not None:
            return await self._same(letter, known)
        self._refuse(mail, damped=damped)
        under_way = (mail.sender, mail.recipient, mail.sent)
        self._sending.append(under_way)  # now: those that come at the same moment are too many, too
        return await self._finished(self._post(letter, under_way))

    async def _same(self, letter: Letter, known: Mail) -> Mail:
        """`known`, which was sent with the key of `letter`. Raises Refused when it is not that message; of one whose file is gone only the
        length of its words is compared."""
        parts = [(one.project, one.recipient, one.type, one.subject, one.in_reply_to, one.priority) for one in (letter.mail, known)]
        words = await self.body(known)
        same = words == stripped(parse(text_of(letter)).body) if words is not None else known.bytes == len(letter.body.encode())
        if parts[0] == parts[1] and same:
            return known
        why = f"message {known.id} to {known.recipient} has other words, or another recipient"
        hint = "another key for another message"
        raise Refused("this key was used for another message", on=letter.mail.key, why=why, kept=f"message {known.id}", hint=hint)

    def _refuse(self, mail: Mail, *, damped: bool) -> None:
        now = self.loop.clock.wall()
        coming = sum(to == mail.recipient for _, to, _ in self._sending)
        if len(self.open.get(mail.recipient, ())) + coming >= TERMS.unread_max:
            why = f"{TERMS.unread_max} messages wait in its mailbox"
            raise Refused("not sent", on=mail.recipient, why=why, kept="what was sent before", hint="later, when it has read some")
        if not damped:
            return
        longest = max(TERMS.pair_burst * TERMS.pair_every_s, TERMS.sender_burst * TERMS.sender_every_s)
        sent = rows.sent_since(self.db, mail.sender, now - longest)
        sent += [(to, at) for sender, to, at in self._sending if sender == mail.sender]
        pair = [at for to, at in sent if to == mail.recipient]
        why, hint = rules.why_not(pair, [at for _, at in sent], mail.depth, now)
        if why:
            raise Refused("not sent", on=mail.recipient, why=why, kept="what was sent before", hint=hint)

    async def _post(self, letter: Letter, under_way: tuple[str, str, float]) -> Mail:
        mail = letter.mail
        try:
            text = text_of(letter)
            box = self.box(mail)
            await self.on_thread(lambda: box.draft(mail.id, text.encode()))
            failpoint("mail.drafted")
            taken = self.loop.ledger.mails.accept(replace(mail, bytes=len(letter.body.encode())))
        finally:
            self._sending.remove(under_way)
        failpoint("mail.accepted")
        if taken.id != mail.id:
            await self.on_thread(lambda: box.forget(mail.id))
            return await self._same(letter, taken)
        await self._file(taken, give=not letter.in_prompt)
        if letter.in_prompt:
            await self._take(taken, 1)
        return rows.one(self.db, taken.id) or taken

    async def _file(self, mail: Mail, *, give: bool) -> None:
        """Put an accepted message into its mailbox, and hand it over."""
        await self.on_thread(lambda: self.box(mail).deliver(mail.id))
        failpoint("mail.filed")
        self.loop.ledger.mails.filed([mail.id])
        self.look_again(mail.id)
        self._wake(mail)
        if give:
            await self.give(mail.recipient)

    async def tell(self, project: str, to: str, subject: str, text: str, *, about: str = "", key: str = "") -> Mail | None:
        """A notice by the supervisor itself, as a reply to the message `about`, once for one `key`; None when nobody is there who could
        read it, or it could not be kept: then a line of the supervisor's says so."""
        if to != PERSON and ("/" not in to or self.has_ended(to)):
            return None
        above, made = rows.one(self.db, about) if about else None, self.new_id()
        thread, depth = (above.thread, above.depth + 1) if above is not None else (made, 0)
        subject, now = one_line(subject)[: TERMS.subject_max], self.loop.clock.wall()
        mail = Mail(made, project, thread, SUPERVISOR, to, MailType.INFO, subject, now, in_reply_to=about, depth=depth, key=key)
        try:
            return await self.post(Letter(mail, text), damped=False)
        except NightcrewError as error:
            self.loop.alert(f"a notice for {to} could not be kept: {error.line()}")
            return None

    # Reading ---------------------------------------------------------------------------------------------------------------------------

    def unread(self, project: str, owner: str) -> list[Mail]:
        """What waits in a mailbox, in the order in which it is read."""
        found = self.open.get(owner, {}).values()
        return rules.by_urgency(mail for mail in found if mail.project == project and mail.state is not MailState.ACCEPTED)

    async def take(self, mail: Mail, epoch: int | None) -> str | None:
        """Claim a message for the one who reads it: its words, or None when another reader was faster. Raises HostError."""
        await self.ready.wait()
        work = self.started(self._take(mail, epoch))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # who asked is gone, and has not got it
            self.started(self._untaken(work, mail))
            raise

    async def _take(self, mail: Mail, epoch: int | None) -> str | None:
        box = self.box(mail)
        claimed = await self.on_thread(lambda: box.claim(mail.id))
        if not claimed:
            return None
        failpoint("mail.claimed")
        body = await self.body(mail) or ""
        if mail.delivery is not None:  # first: one that is read and still waits to be typed would be given twice after a crash
            await self.loop.sending.withdraw(mail.delivery, "it was read by the socket")
        self.loop.ledger.mails.read(mail.id, epoch, 0 if mail.recipient == PERSON else rules.tokens(body))
        self.look_again(mail.id)
        failpoint("mail.read")
        return body

    async def _untaken(self, work: asyncio.Task[str | None], mail: Mail) -> None:
        if await work is None:
            return
        self.loop.ledger.mails.hold(mail.id)
        await self.on_thread(lambda: self.box(mail).give_back(mail.id))
        self.look_again(mail.id)

    async def body(self, mail: Mail) -> str | None:
        """The words of a message, made harmless; None when its file is gone or is no message any more."""
        text = await self.on_thread(lambda: self.box(mail).text(mail.id))
        if text is None:
            return None
        try:
            return stripped(parse(text).body)
        except Refused:
            return None

    @contextlib.asynccontextmanager
    async def waiting(self, owner: str, wants: Callable[[Mail], bool]) -> AsyncIterator[asyncio.Event]:
        """Inside, the event is set when a message comes that `wants`; it is not given to the agent's next turn meanwhile."""
        waiter = Waiter(wants, asyncio.Event())
        self.waiters[owner].append(waiter)
        try:
            yield waiter.woken
        finally:
            self.waiters[owner].remove(waiter)
            if not self.waiters[owner]:
                del self.waiters[owner]

    def is_awaited(self, mail: Mail) -> bool:
        """Whether somebody waits for it, who reads it then."""
        return any(one.wants(mail) for one in self.waiters.get(mail.recipient, ()))

    def _wake(self, mail: Mail) -> None:
        for waiter in self.waiters.get(mail.recipient, ()):
            if waiter.wants(mail):
                waiter.woken.set()

    # What is known ---------------------------------------------------------------------------------------------------------------------

    def unread_of(self, task: str) -> list[Mail]:
        """What waits for one recipient, in the order in which it is read."""
        return rules.by_urgency(self.open.get(task, {}).values())

    def has_ended(self, task: str) -> bool:
        """Whether nothing of a task is to come, as far as is known now."""
        known = self.loop.crew.tasks.get(task)
        if known is not None:
            return known.state in FINAL
        try:
            return self.loop.ledger.task(task, 0.0).state in FINAL
        except KeyError:
            return True

    def knows(self, mail: str) -> bool:
        """Whether a message of ours is called so that may lie in `new/`."""
        found = rows.one(self.db, mail)
        return found is not None and found.is_open

    def is_task(self, task: str) -> bool:
        return self.project_of(task) is not None

    def is_task_of(self, project: str, task: str) -> bool:
        return self.project_of(task) == project

    def project_of(self, task: str) -> str | None:
        """The repository that a task works in; None for what is no task."""
        try:
            return self.loop.ledger.launch_row(task).project
        except KeyError:
            return None

    def ours(self, project: str, owner: str) -> frozenset[str]:
        """Ids of the messages that we put into a mailbox and that nobody has read."""
        return frozenset(name for name, mail in self.open.get(owner, {}).items() if mail.project == project)

    def look_again(self, mail: str) -> None:
        """Read what the ledger says of a message that was changed."""
        found = rows.one(self.db, mail)
        if found is None:
            return
        if found.state in OPEN:
            self.open[found.recipient][mail] = found
        else:
            self.open[found.recipient].pop(mail, None)

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to; it goes on when whoever asked is gone."""
        return await asyncio.shield(self.started(work))

    def started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin `work`, and hold it until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task


def text_of(letter: Letter) -> str:
    """The file of a message."""
    mail = letter.mail
    head = {
        "id": mail.id, "from": mail.sender, "to": mail.recipient, "thread": mail.thread, "in_reply_to": mail.in_reply_to,
        "type": str(mail.type), "priority": str(mail.priority), "sent": rfc3339(mail.sent) or "", "subject": mail.subject,
        "needs_reply_by": rfc3339(mail.needs_reply_by) or "", **dict(letter.more),
    }  # fmt: skip
    return written(Message(head, letter.body))
