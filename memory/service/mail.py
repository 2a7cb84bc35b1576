"""The mail of all projects: taken, handed to one reader, and followed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agents.kinds import of_task
from agents.tmux import typed_text
from memory import mail as rules
from memory import mail_rows, maildir
from memory.mail import OPEN, PERSON, SUPERVISOR, TERMS, UNKNOWN, Mail, MailState, MailType, Priority
from memory.maildir import Box, Maildir, Message, parse, written
from memory.note import quoted, stripped
from supervisor.host.failpoint import failpoint
from supervisor.kernel.conversations import Delivery, DeliveryState
from supervisor.kernel.errors import HostError, NightcrewError, Refused, UsageError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.kernel.states import FINAL
from supervisor.server.wakeups import was_set

if TYPE_CHECKING:
    from memory.files import Layout
    from memory.maildir import Found, Maildir
    from memory.service.waits import WaitDesk
    from supervisor.server.loop import Loop


# Mail
# ----
# The mail of all projects: takes messages, hands each to one reader, and says what became of those that nobody read.
#
# A message is on the disk as a draft before its row says that it was taken, and lies in its mailbox after that; whoever moves it
# from `new/` to `cur/` has claimed it, and gets it once the row says so. So the next supervisor finds out at every step what is
# left to do: `recover`. Rows are changed on the loop's thread, files on the memory's.


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
        if (known := mail_rows.of_key(self.db, mail.sender, mail.key)) is not None:
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
        sent = mail_rows.sent_since(self.db, mail.sender, now - longest)
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
        return mail_rows.one(self.db, taken.id) or taken

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
        above, made = mail_rows.one(self.db, about) if about else None, self.new_id()
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
            await self.loop.agents.sending.withdraw(mail.delivery, "it was read by the socket")
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
        found = mail_rows.one(self.db, mail)
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
        found = mail_rows.one(self.db, mail)
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


# Adopting
# --------
# Files that somebody put into a mailbox himself: a person, or an agent without a sandbox. Each becomes a message from `unknown`,
# whatever it says of its sender; what is no message is set aside where it lies, and history says why.


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


# Handoff
# -------
# A handoff: what its sender says of the work, and the commit at which the next agent goes on.


_PARTS = (("questions", "Open questions"), ("tried", "What was tried"))


def described(letter: Letter, args: Mapping[str, Any], branch: str, commit: str) -> Letter:
    """The letter with where the work stands, and with the `questions` and what was `tried`, lists of text. Raises UsageError."""
    pieces = [letter.body.rstrip("\n"), f"Branch: {branch or '-'}\nCommit: {commit}"]
    for key, title in _PARTS:
        if given := _list(args, key):
            pieces.append("\n".join([f"{title}:", *(f"- {one}" for one in given)]))
    body = "\n\n".join(pieces)
    if len(body.encode()) > TERMS.body_max:
        raise UsageError("the text is too long", why=f"with its lists more than {TERMS.body_max} bytes", hint="commit a file and name it")
    return replace(letter, body=body, more=(("branch", branch), ("commit", commit)))


def prompt(letter: Letter, prompt_text: str) -> str:
    """What the next agent is told: the handoff as quoted data, then what it is to do."""
    mail = letter.mail
    head = f"[nightcrew mail {mail.id}] handoff from {mail.sender}: {mail.subject}"
    return "\n".join([head, quoted(letter.body, f"{mail.sender}, message {mail.id}"), "", prompt_text])


def to(letter: Letter, task: str, *, in_prompt: bool) -> Letter:
    """The letter for the task that begins with it."""
    return replace(letter, mail=replace(letter.mail, recipient=task), in_prompt=in_prompt)


def _list(args: Mapping[str, Any], key: str) -> list[str]:
    given = args.get(key) or []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise UsageError("not a request", on=key, why="a list of texts")
    plain = [" ".join(stripped(one.encode("utf-8", "backslashreplace").decode()).split()) for one in given]
    return [one for one in plain if one]


# Mail keeping
# ------------
# What becomes of mail after it was taken: handed to agents at their next turn, followed until it is read, sent back where nobody
# will read it; and what a supervisor before us left undone.


STEP_S = 0.5
"""Between two looks at what became of texts, and at who has ended."""
SCAN_EVERY = 10
"""Steps between two looks for files that came by no door and that no event told of."""
_LOST = "somebody removed its file, or made something else of it"


class MailKeeper:
    """Follows the mail of a desk. Belongs to the loop's thread; `keep` runs it."""

    def __init__(self, desk: MailDesk) -> None:
        self._desk = desk
        self._loop = desk.loop
        self._adopting = Adopting(desk)
        self.scan = self._adopting.scan
        self._came = asyncio.Event()
        desk.give = self.give

    async def keep(self) -> None:
        """Find what a supervisor before us left, then follow texts, ends and files until cancelled."""
        while not self._loop.ready:
            await asyncio.sleep(STEP_S / 10)
        while not await self._tried(self.recover):
            await asyncio.sleep(STEP_S)
        turn = 0
        while True:
            came = self._came.is_set()
            self._came.clear()
            await self._tried(self.step)
            if came or self._adopting.unfinished or turn % SCAN_EVERY == 0:
                await self._tried(self.scan)
            turn += 1
            if came:  # a flood of files costs a look each step, and no more
                await asyncio.sleep(STEP_S)
            else:
                await was_set(self._came, STEP_S)

    def found(self, paths: Iterable[str]) -> None:
        """Files of mailboxes changed, by their paths: look at once for those that came by no door."""
        if any(mail_rows.one(self._desk.db, maildir.id_of(path.rpartition("/")[2])) is None for path in paths):
            self._came.set()

    async def _tried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether it was done: a full disk, most often, and it is tried again with the next step."""
        try:
            await work()
        except NightcrewError as error:
            self._loop.alert(f"mail waits: {error.line()}")
            return False
        return True

    async def recover(self) -> None:
        """Each message that nobody has read lies in `new/` again. A draft without a row was never accepted: nobody was told so."""
        for mail in mail_rows.unread(self._desk.db):
            self._desk.open[mail.recipient][mail.id] = mail
            await self._desk.on_thread(functools.partial(self._put_back, mail))
        for (project,) in self._desk.db.execute("SELECT id FROM project").fetchall():
            await self._desk.on_thread(functools.partial(self._forget_drafts, str(project)))
        accepted = [mail.id for mails in self._desk.open.values() for mail in mails.values() if mail.state is MailState.ACCEPTED]
        self._loop.ledger.mails.filed(accepted)
        for name in accepted:
            self._desk.look_again(name)
        self._desk.ready.set()

    def _put_back(self, mail: Mail) -> None:
        box = self._desk.box(mail)
        match box.where(mail.id):
            case Box.CUR:  # it was claimed, and who claimed it did not get it
                box.give_back(mail.id)
            case Box.TMP:
                box.deliver(mail.id)

    def _forget_drafts(self, project: str) -> None:
        for owner in maildir.owners(self._desk.mail_root(project)):
            box, ours = self._desk.mailbox(project, owner), self._desk.ours(project, owner)
            for name in box.drafts():
                if name not in ours:
                    box.forget(name)

    async def step(self) -> None:
        """One look at what became of the texts of agents that live, and at who has ended."""
        for task in [name for name, mails in self._desk.open.items() if mails and name != PERSON]:
            if task in self._loop.crew.living or self._desk.has_ended(task):
                await self._follow(task)
        for name in [name for name, mails in self._desk.open.items() if not mails]:
            del self._desk.open[name]

    # An agent's next turn --------------------------------------------------------------------------------------------------------------

    async def give(self, task: str) -> None:
        """Hand what waits for an agent to its next turn, if its kind takes texts. A notice of the supervisor begins no turn: it goes with
        the first message of another sender, or the agent reads it at the socket or with a tool's hook."""
        if task == PERSON or self._desk.has_ended(task) or not self._takes_texts(task):
            return
        if all(mail.sender == SUPERVISOR or not self._can_be_given(mail) for mail in self._desk.unread_of(task)):
            return
        notices = [mail for mail in self._desk.unread_of(task) if mail.sender == SUPERVISOR]
        beside: list[tuple[Mail, str]] = []
        for mail in [*notices, *(mail for mail in self._desk.unread_of(task) if mail.sender != SUPERVISOR)]:
            if not self._can_be_given(mail):
                continue
            body = await self._desk.body(mail)
            now = self._desk.open[task].get(mail.id)
            if now is None or now.state is not MailState.NEW:
                continue
            if body is None:
                await self._over(mail, MailState.LOST, _LOST)
                continue
            beside.append((mail, rules.notice(mail, quoted(body, f"{mail.sender}, message {mail.id}"))))
            if mail.sender != SUPERVISOR:
                self._post(task, beside)
                beside = []

    def _can_be_given(self, mail: Mail) -> bool:
        return mail.state is MailState.NEW and not self._desk.is_awaited(mail)

    def _post(self, task: str, beside: list[tuple[Mail, str]]) -> None:
        """Keep one text with these messages, of which the last begins the turn; those that another reader took meanwhile are left out."""
        waiting = self._desk.open[task]
        still = [(mail, text) for mail, text in beside if mail.id in waiting and waiting[mail.id].state is MailState.NEW]
        if beside[-1] not in still:
            return
        self._loop.agents.sending.post(task, typed_text("\n\n".join(text for _, text in still)), [mail.id for mail, _ in still])
        failpoint("mail.given")
        for mail, _ in still:
            self._desk.look_again(mail.id)

    async def notices(self, task: str, epoch: int) -> str:
        """Claim the notices of the supervisor that wait for an agent, for a hook's answer that goes out anyway: their text, or ""."""
        found = []
        for mail in [mail for mail in self._desk.unread_of(task) if mail.sender == SUPERVISOR and self._can_be_given(mail)]:
            if (body := await self._desk.take(mail, epoch)) is not None:
                found.append(rules.notice(mail, quoted(body, f"{mail.sender}, message {mail.id}")))
        return "\n\n".join(found)

    def _takes_texts(self, task: str) -> bool:
        """Whether its agent reads what is typed or put into its inbox as a prompt. A program that owns its pane and is no agent could be a
        shell, which would run what it is told."""
        spec = self._loop.ledger.launch_row(task).spec
        kind = of_task(spec.kind)
        return kind.is_agent and (kind.takes_input or kind.owns_terminal(interactive=spec.interactive))

    async def _follow(self, task: str) -> None:
        """What became of the texts of an agent that lives, or has ended."""
        ended, living = self._desk.has_ended(task), self._loop.crew.living.get(task)
        for mail in self._desk.unread_of(task):
            if mail.state is MailState.GIVEN and mail.delivery is not None:
                await self._settle(mail, self._loop.ledger.deliveries.one(mail.delivery), living.epoch if living is not None else None)
        if not ended:
            await self.give(task)
            return
        for mail in self._desk.unread_of(task):
            if self._is_settled(mail) and await self._desk.on_thread(functools.partial(self._claimed, mail)):
                why = f"{task} has ended and did not read it"
                if mail.epoch is not None:
                    why = f"{task} was given it and has ended; nothing says that it read it"
                await self._over(mail, MailState.BOUNCED, why)

    def _is_settled(self, mail: Mail) -> bool:
        """Whether nothing more becomes known of a message to a task that has ended: what became of a text is found out after that."""
        if mail.state is MailState.GIVEN and mail.delivery is not None:
            return self._loop.ledger.deliveries.one(mail.delivery).state not in (DeliveryState.PENDING, DeliveryState.TYPING)
        return mail.state is MailState.NEW

    async def _settle(self, mail: Mail, text: Delivery, epoch: int | None) -> None:
        """`epoch`: of the attempt that lives now."""
        tokens = rules.tokens("x" * (mail.bytes if mail.sender == SUPERVISOR else text.size))
        if text.state is DeliveryState.CONFIRMED:
            if not await self._desk.on_thread(functools.partial(self._claimed, mail)):
                return
            failpoint("mail.claimed")
            self._loop.ledger.mails.read(mail.id, text.epoch, tokens)
        elif text.state is DeliveryState.DROPPED or (text.state is DeliveryState.UNCONFIRMED and epoch not in (None, text.epoch)):
            self._loop.ledger.mails.hold(mail.id)
        elif text.state is DeliveryState.UNCONFIRMED and mail.epoch != text.epoch:
            self._loop.ledger.mails.typed(mail.id, text.epoch, tokens)
        else:
            return
        self._desk.look_again(mail.id)

    def _claimed(self, mail: Mail) -> bool:
        """Whether it is ours to end: nobody who reads it was faster. One whose file is gone is."""
        box = self._desk.box(mail)
        return box.claim(mail.id) or box.where(mail.id) is None

    async def _over(self, mail: Mail, state: MailState, why: str) -> None:
        """Nobody will read it: whoever sent it is told, once."""
        if mail.sender != SUPERVISOR:
            subject, text = f"not read: {mail.subject}", f"Message {mail.id}: {why}."
            await self._desk.tell(mail.project, mail.sender, subject, text, about=mail.id, key=f"over {mail.id}")
        self._loop.ledger.mails.ended(mail.id, state, why)
        self._desk.look_again(mail.id)
