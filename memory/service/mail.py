"""The mail of all projects: taken, handed to one reader, and followed.

The ledger's rows are the truth: what a message says, who may still read it, and what became of it. The files in the mailboxes are a copy
for people and for agents without a sandbox; nothing but a file that somebody puts there himself is read from them. So a message is
accepted, read or sent back in one transaction, and a file that is missing or out of place is only put right.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agents.kinds import of_task
from agents.tmux import typed_text
from memory import mail as mail_rows
from memory import note
from memory.mail import OPEN, PERSON, SUPERVISOR, TERMS, UNKNOWN, Mail, Mails, MailState, MailType, Priority
from memory.note import BrokenError, quoted, stripped
from supervisor.host import files, untrusted_fs
from supervisor.host.failpoint import failpoint
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.codec import Bound
from supervisor.kernel.conversations import Delivery, DeliveryState
from supervisor.kernel.errors import HostError, NightcrewError, Refused, UsageError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.kernel.prompt import handed_over
from supervisor.kernel.states import FINAL

if TYPE_CHECKING:
    from memory.files import Layout
    from memory.service.waits import WaitDesk
    from supervisor.server.loop import Loop


# Mail
# ----


OnThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
STEP_S = 0.5
"""Seconds between two looks at what became of texts, and at which tasks have ended."""
SCAN_EVERY = 10
"""Steps between two looks for files that somebody put into a mailbox: 5 s."""
_WAITS = "not sent"
"""What `MailDesk.post` refuses with when a message may come later."""


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
        self._on_thread, self._layout = on_thread, layout
        self.open: dict[str, dict[str, Mail]] = defaultdict(dict)
        """Messages that nobody has read, by recipient and id."""
        self.waiters: dict[str, list[Waiter]] = defaultdict(list)
        self.under_way: set[asyncio.Task[None]] = set()
        """Files that are being written or moved."""
        self.ready = asyncio.Event()
        self._last_ms = 0
        self._seen: dict[tuple[str, str], int] = {}
        """When `new/` of a mailbox changed last, as of the last scan that left nothing for later."""
        self._unfinished = False
        """The last scan found files that a process is still writing."""

    @property
    def db(self) -> Any:
        """The ledger, for queries."""
        return self.loop.ledger.db

    def new_id(self) -> str:
        """Greater than the one before."""
        self._last_ms = max(int(self.loop.clock.wall() * 1000), self._last_ms + 1)
        return mail_rows.message_id(self._last_ms, os.urandom(10))

    # Taking ----------------------------------------------------------------------------------------------------------------------------

    async def post(self, letter: Letter, *, damped: bool) -> Mail:
        """Take a message; when this returns it is never lost. `damped`: refuse what is too much. A message that was sent
        before with the same key is not sent again. Raises Refused, DiskFull and LedgerError, and then nothing was taken."""
        await self.ready.wait()
        mail = letter.mail
        if (known := mail_rows.of_key(self.db, mail.sender, mail.key)) is not None:
            return self._same(letter, known)
        self._refuse(mail, damped=damped)
        state = MailState.READ if letter.in_prompt else MailState.NEW
        row = replace(mail, state=state, bytes=len(letter.body.encode()), epoch=1 if letter.in_prompt else None)
        row = replace(row, tokens=mail_rows.tokens(letter.body)) if letter.in_prompt else row
        taken = self.loop.ledger.of(Mails).accept(row, letter.body)
        failpoint("mail.accepted")
        self.look_again(taken.id)
        self._later(taken, functools.partial(self._write, taken, text_of(replace(letter, mail=taken))))
        for waiter in self.waiters.get(taken.recipient, ()):
            if waiter.wants(taken):
                waiter.woken.set()
        self.give(taken.recipient)
        return mail_rows.one(self.db, taken.id) or taken

    def _same(self, letter: Letter, known: Mail) -> Mail:
        """Return `known`, which was sent with the key of `letter`. Raises Refused when it is another message; of one whose words are not
        in the ledger only their length is compared."""
        parts = [(one.project, one.recipient, one.type, one.subject, one.in_reply_to, one.priority) for one in (letter.mail, known)]
        words = mail_rows.words(self.db, known.id)
        same = words == letter.body if words is not None else known.bytes == len(letter.body.encode())
        if parts[0] == parts[1] and same:
            return known
        why = f"message {known.id} to {known.recipient} has other words, or another recipient"
        hint = "another key for another message"
        raise Refused("this key was used for another message", on=letter.mail.key, why=why, kept=f"message {known.id}", hint=hint)

    def _refuse(self, mail: Mail, *, damped: bool) -> None:
        now = self.loop.clock.wall()
        if len(self.open.get(mail.recipient, ())) >= TERMS.unread_max:
            why = f"{TERMS.unread_max} messages wait in its mailbox"
            raise Refused(_WAITS, on=mail.recipient, why=why, kept="what was sent before", hint="later, when it has read some")
        if not damped:
            return
        longest = max(TERMS.pair_burst * TERMS.pair_every_s, TERMS.sender_burst * TERMS.sender_every_s)
        sent = mail_rows.sent_since(self.db, mail.sender, now - longest)
        pair = [at for to, at in sent if to == mail.recipient]
        why, hint = mail_rows.why_not(pair, [at for _, at in sent], mail.depth, now)
        if why:
            raise Refused(_WAITS, on=mail.recipient, why=why, kept="what was sent before", hint=hint)

    async def tell(self, project: str, to: str, subject: str, text: str, *, about: str = "", key: str = "") -> Mail | None:
        """Send a notice of the supervisor itself, as a reply to the message `about`, once for one `key`. Return None when nobody is there
        to read it, or when it could not be kept: then a line of the supervisor's says so."""
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

    def unread(self, task: str, project: str = "") -> list[Mail]:
        """What waits for a recipient, of all projects or one, in the order in which it is read."""
        found = self.open.get(task, {}).values()
        return mail_rows.by_urgency(mail for mail in found if project in ("", mail.project))

    async def take(self, mail: Mail, epoch: int | None) -> str | None:
        """Claim a message for the one who reads it: its words, or None when another reader was faster. A reader that is gone before it is
        claimed has not got it."""
        await self.ready.wait()
        withdrawn: int | None = None
        while (now := self.open[mail.recipient].get(mail.id)) is not None and now.delivery != withdrawn:
            withdrawn = now.delivery  # first: a message that is read and still waits to be typed would be given twice after a crash
            if withdrawn is not None:
                await self.loop.agents.sending.withdraw(withdrawn, "it was read by the socket")
                failpoint("mail.withdrawn")
        if now is None:
            return None
        words = self.body(mail) or ""
        self._read(mail, epoch, 0 if mail.recipient == PERSON else mail_rows.tokens(words))
        return words

    def _read(self, mail: Mail, epoch: int | None, tokens: int) -> None:
        self.loop.ledger.of(Mails).read(mail.id, epoch, tokens)
        failpoint("mail.read")
        self.look_again(mail.id)
        self._later(mail, functools.partial(self._box(mail).file, mail.id))

    def body(self, mail: Mail) -> str | None:
        """The words of a message, made harmless; None when they are gone. A release before this one kept them in the file alone."""
        words = mail_rows.words(self.db, mail.id)
        return words if words is not None else words_of(self._box(mail).text(mail.id))

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

    # What is known ---------------------------------------------------------------------------------------------------------------------

    def has_ended(self, task: str) -> bool:
        """Whether nothing of a task is to come, as far as is known now."""
        known = self.loop.crew.tasks.get(task)
        if known is not None:
            return known.state in FINAL
        try:
            return self.loop.ledger.task(task, 0.0).state in FINAL
        except KeyError:
            return True

    def project_of(self, task: str) -> str | None:
        """The repository that a task works in; None for what is no task."""
        try:
            return self.loop.ledger.launch_row(task).project
        except KeyError:
            return None

    def look_again(self, mail: str) -> None:
        """Read what the ledger says of a message that was changed."""
        found = mail_rows.one(self.db, mail)
        if found is None:
            return
        if found.state in OPEN:
            self.open[found.recipient][mail] = found
        else:
            self.open[found.recipient].pop(mail, None)

    # An agent's next turn --------------------------------------------------------------------------------------------------------------

    def give(self, task: str) -> None:
        """Hand what waits for an agent to its next turn, if its kind takes texts. A notice of the supervisor begins no turn: it goes with
        the first message of another sender, or the agent reads it at the socket or with a tool's hook."""
        waiting = [mail for mail in self.unread(task) if self._can_be_given(mail)]
        notices = [mail for mail in waiting if mail.sender == SUPERVISOR]
        if len(notices) == len(waiting) or task == PERSON or self.has_ended(task) or not self._takes_texts(task):
            return
        for mail in waiting:
            if mail.sender == SUPERVISOR:
                continue
            beside, notices = [*notices, mail], []
            text = "\n\n".join(self._notice(one, self.body(one) or "") for one in beside)
            self.loop.agents.sending.post(task, typed_text(text), [one.id for one in beside])
            failpoint("mail.given")
            for one in beside:
                self.look_again(one.id)

    def _can_be_given(self, mail: Mail) -> bool:
        """Whether nobody waits for it at the socket, who reads it then."""
        return mail.state is MailState.NEW and not any(one.wants(mail) for one in self.waiters.get(mail.recipient, ()))

    @staticmethod
    def _notice(mail: Mail, words: str) -> str:
        return mail_rows.notice(mail, quoted(words, f"{mail.sender}, message {mail.id}"))

    async def notices(self, task: str, epoch: int) -> str:
        """Claim the notices of the supervisor that wait for an agent, for a hook's answer that goes out anyway: their text, or ""."""
        found = []
        for mail in [mail for mail in self.unread(task) if mail.sender == SUPERVISOR and self._can_be_given(mail)]:
            if (words := await self.take(mail, epoch)) is not None:
                found.append(self._notice(mail, words))
        return "\n\n".join(found)

    def _takes_texts(self, task: str) -> bool:
        """Whether its agent reads what is typed or put into its inbox as a prompt. A program that owns its pane and is no agent could be a
        shell, which would run what it is told."""
        spec = self.loop.ledger.launch_row(task).spec
        kind = of_task(spec.kind)
        return kind.is_agent and (kind.takes_input or kind.owns_terminal(interactive=spec.interactive))

    # What becomes of it ----------------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Find what a supervisor before us left, then follow texts, ends and files until cancelled."""
        while not self.loop.ready:
            await asyncio.sleep(STEP_S / 10)
        while not await self._tried(self.recover):
            await asyncio.sleep(STEP_S)
        turn = 0
        while True:
            await self._tried(self.step)
            if self._unfinished or turn % SCAN_EVERY == 0:
                await self._tried(self.scan)
            turn += 1
            await asyncio.sleep(STEP_S)

    async def _tried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether it was done: a full disk, most often, and it is tried again with the next step."""
        try:
            await work()
        except NightcrewError as error:
            self.loop.alert(f"mail waits: {error.line()}")
            return False
        return True

    async def recover(self) -> None:
        """Load what nobody has read. The words that a release before this one kept in files come into the ledger, and a message whose file
        is missing gets one."""
        for mail in mail_rows.unread(self.db):
            if mail_rows.words(self.db, mail.id) is None:
                words = words_of(await self._on_thread(functools.partial(self._box(mail).text, mail.id)))
                if words is None:
                    self.loop.ledger.of(Mails).ended(mail.id, MailState.LOST, "its file is gone")
                    continue
                self.loop.ledger.of(Mails).keep(mail.id, words)
            self.look_again(mail.id)
        self.ready.set()
        for mail in [mail for mails in self.open.values() for mail in mails.values()]:
            text = text_of(Letter(mail, mail_rows.words(self.db, mail.id) or ""))
            self._later(mail, functools.partial(self._write, mail, text))

    async def step(self) -> None:
        """One look at what became of the texts of agents that live, and at who has ended."""
        for task in [name for name, mails in self.open.items() if mails and name != PERSON]:
            if task in self.loop.crew.living or self.has_ended(task):
                await self._follow(task)
        for name in [name for name, mails in self.open.items() if not mails]:
            del self.open[name]

    async def _follow(self, task: str) -> None:
        ended, living = self.has_ended(task), self.loop.crew.living.get(task)
        for mail in self.unread(task):
            if mail.state is MailState.GIVEN and mail.delivery is not None:
                self._settle(mail, self.loop.ledger.deliveries.one(mail.delivery), living.epoch if living is not None else None)
        if not ended:
            self.give(task)
            return
        for mail in self.unread(task):
            if self._is_settled(mail):
                why = f"{task} has ended and did not read it"
                if mail.epoch is not None:
                    why = f"{task} was given it and has ended; nothing says that it read it"
                await self._bounce(mail, why)

    def _is_settled(self, mail: Mail) -> bool:
        """Whether nothing more becomes known of a message to a task that has ended: what became of a text is found out after that."""
        if mail.state is MailState.GIVEN and mail.delivery is not None:
            return self.loop.ledger.deliveries.one(mail.delivery).state not in (DeliveryState.PENDING, DeliveryState.TYPING)
        return mail.state is MailState.NEW

    def _settle(self, mail: Mail, text: Delivery, epoch: int | None) -> None:
        """`epoch`: of the attempt that lives now."""
        tokens = mail_rows.tokens("x" * (mail.bytes if mail.sender == SUPERVISOR else text.size))
        if text.state is DeliveryState.CONFIRMED:
            self._read(mail, text.epoch, tokens)
            return
        if text.state is DeliveryState.DROPPED or (text.state is DeliveryState.UNCONFIRMED and epoch not in (None, text.epoch)):
            self.loop.ledger.of(Mails).hold(mail.id)
        elif text.state is DeliveryState.UNCONFIRMED and mail.epoch != text.epoch:
            self.loop.ledger.of(Mails).typed(mail.id, text.epoch, tokens)
        self.look_again(mail.id)

    async def _bounce(self, mail: Mail, why: str) -> None:
        """Nobody will read it: its sender is told, once."""
        if mail.sender != SUPERVISOR:
            subject, text = f"not read: {mail.subject}", f"Message {mail.id}: {why}."
            await self.tell(mail.project, mail.sender, subject, text, about=mail.id, key=f"over {mail.id}")
        if self.open[mail.recipient].get(mail.id) == mail:  # nobody read it while its sender was told
            self.loop.ledger.of(Mails).ended(mail.id, MailState.BOUNCED, why)
            self.look_again(mail.id)
            self._later(mail, functools.partial(self._box(mail).file, mail.id))

    # Files -----------------------------------------------------------------------------------------------------------------------------

    def _box(self, mail: Mail) -> Maildir:
        return self._mailbox(mail.project, mail.recipient)

    def _mailbox(self, project: str, owner: str) -> Maildir:
        return Maildir(self._layout(project).mail, owner)

    def _write(self, mail: Mail, text: str) -> None:
        box = self._box(mail)
        box.put(mail.id, text)
        if not mail.is_open:
            box.file(mail.id)
        failpoint("mail.filed")

    def _later(self, mail: Mail, work: Callable[[], None]) -> None:
        """Write or move the file of a message, in order and without holding up the one who asked."""

        async def done() -> None:
            try:
                await self._on_thread(work)
            except NightcrewError as error:
                self.loop.alert(f"message {mail.id} has no file: {error.line()}")

        task = asyncio.get_running_loop().create_task(done())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def scan(self) -> None:
        """Look once at the mailboxes of every project for files that somebody put there himself: a person, or an agent without a sandbox.
        Each becomes a message from `unknown`, whatever it says of its sender; what is no message is set aside where it lies, and history
        says why."""
        self._unfinished = False
        for project in [str(row[0]) for row in self.db.execute("SELECT id FROM project")]:
            for owner, changed in await self._on_thread(functools.partial(self._owners, project)):
                if self._seen.get((project, owner)) != changed:
                    await self._look(project, owner, changed)

    def _owners(self, project: str) -> list[tuple[str, int]]:
        """Whose mailboxes there are, and when each changed."""
        mail = self._layout(project).mail
        return [(owner, changed(mail, owner)) for owner in owners(mail)]

    async def _look(self, project: str, owner: str, changed: int) -> None:
        box, ours = self._mailbox(project, owner), frozenset(self.open.get(owner, ()))
        try:
            found = await self._on_thread(lambda: box.strangers(ours))
        except NightcrewError as error:
            self.loop.alert(f"a mailbox cannot be looked at: {error.line()}")
            found = []
        left = [one for one in found if one.unfinished or not await self._adopted(project, box, one)]
        self._unfinished |= any(one.unfinished for one in found)
        if not left:
            self._seen[project, owner] = changed

    async def _adopted(self, project: str, box: Maildir, found: Found) -> bool:
        """Whether it needs no further look: it is a message of ours, or was set aside."""
        if (known := mail_rows.one(self.db, id_of(found.name))) is not None:
            if not known.is_open:
                await self._on_thread(lambda: box.file(known.id))
            return True
        try:
            await self.post(self._letter(project, box.owner, found), damped=True)
        except Refused as error:
            if error.what == _WAITS:
                return False
            await self._set_aside(box, found.name, error.why)
            return True
        await self._on_thread(lambda: box.remove(found))
        return True

    def _letter(self, project: str, owner: str, found: Found) -> Letter:
        """Raises Refused for what is no message, or for nobody."""
        if found.data is None:
            raise Refused("not a message", on=found.name, why=found.why)
        if owner != PERSON and (self.project_of(owner) != project or self.has_ended(owner)):
            raise Refused("not a message", on=found.name, why=f"{owner} is no task of this project that can still read it")
        message = parse(found.data.decode("utf-8", "replace"))
        body = stripped(message.body)
        if len(body.encode()) > TERMS.body_max:
            raise Refused("not a message", on=found.name, why=f"its text is longer than {TERMS.body_max} bytes")
        made = self.new_id()
        digest = hashlib.sha256(f"{project}/{owner}/{found.name}/{found.which}\0".encode("utf-8", "replace") + found.data).hexdigest()
        kind = MailType.REQUEST if message.head.get("type") == MailType.REQUEST else MailType.INFO  # a file cannot reply or hand over
        wanted = message.head.get("priority", "")
        mail = Mail(
            made, project, made, UNKNOWN, owner, kind, subject_of(message.head.get("subject", ""), body), self.loop.clock.wall(),
            priority=Priority(wanted) if wanted in tuple(Priority) else Priority.NORMAL, key=f"file {digest}",
        )  # fmt: skip
        return Letter(mail, body, (("claims_to_be_from", stripped(message.head.get("from", ""))[: TERMS.subject_max]),))

    async def _set_aside(self, box: Maildir, name: str, why: str) -> None:
        aside = await self._on_thread(lambda: box.set_aside(name))
        task = box.owner if self.project_of(box.owner) is not None else None
        data = {"file": one_line(name)[:200], "now": one_line(aside)[:300], "why": why}
        self.loop.ledger.of(Mails).note(task, "mail set aside", data)
        self.loop.alert(f"a file in the mailbox of {one_line(box.owner)} was set aside: {one_line(name)[:100]}: {why}")


def subject_of(given: str, body: str) -> str:
    """The subject of a message, on one line: `given`, or else the first line of its text."""
    first = next((line for line in body.splitlines() if line.strip()), "")
    return one_line(stripped(given or first).strip())[: TERMS.subject_max] or "no subject"


def text_of(letter: Letter) -> str:
    """The file of a message."""
    mail = letter.mail
    head = {
        "id": mail.id, "from": mail.sender, "to": mail.recipient, "thread": mail.thread, "in_reply_to": mail.in_reply_to,
        "type": str(mail.type), "priority": str(mail.priority), "sent": rfc3339(mail.sent) or "", "subject": mail.subject,
        "needs_reply_by": rfc3339(mail.needs_reply_by) or "", **dict(letter.more),
    }  # fmt: skip
    return written(Message(head, letter.body))


def words_of(text: str | None) -> str | None:
    """The words of a message's file, made harmless; None when there is no such file, or it is no message any more."""
    if text is None:
        return None
    try:
        return stripped(parse(text).body)
    except Refused:
        return None


# Handoff
# -------
# A handoff: what its sender says of the work, and the commit at which the next agent goes on.


LISTED_MAX = 1000
"""Open questions, or things that were tried, of one handoff."""
Lines = Annotated[tuple[Annotated[str, Bound(1, TERMS.body_max)], ...], Bound(0, LISTED_MAX)]


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a handoff says beside its text."""

    questions: Lines
    tried: Lines
    start: dict[str, Any] | None
    """The task that begins with it: of an agent its `prompt` and `options`, of a person a submission."""
    branch: str
    commit: str
    """Where a person's work stands; nothing that an agent says of it is asked for."""


def described(letter: Letter, said: Handoff, branch: str, commit: str) -> Letter:
    """The letter with where the work stands, and with the open questions and what was tried. Raises UsageError."""
    pieces = [letter.body.rstrip("\n"), f"Branch: {branch or '-'}\nCommit: {commit}"]
    for given, title in ((said.questions, "Open questions"), (said.tried, "What was tried")):
        plain = [" ".join(stripped(one).split()) for one in given]
        if any(plain):
            pieces.append("\n".join([f"{title}:", *(f"- {one}" for one in plain if one)]))
    body = "\n\n".join(pieces)
    if len(body.encode()) > TERMS.body_max:
        raise UsageError("the text is too long", why=f"with its lists more than {TERMS.body_max} bytes", hint="commit a file and name it")
    return replace(letter, body=body, more=(("branch", branch), ("commit", commit)))


def prompt(letter: Letter, prompt_text: str) -> str:
    """What the next agent is told: the handoff as quoted data, then what it is to do."""
    mail = letter.mail
    return handed_over(mail.id, mail.sender, mail.subject, quoted(letter.body, f"{mail.sender}, message {mail.id}"), prompt_text)


def to(letter: Letter, task: str, *, in_prompt: bool) -> Letter:
    """The letter for the task that begins with it."""
    return replace(letter, mail=replace(letter.mail, recipient=task), in_prompt=in_prompt)


# Message
# -------
# One message as text: front matter (`memory.note`), then its words. People can read it and write one by hand.
#
#     ---
#     id: 01J...
#     from: 1123-k3f9/planner
#     to: 1123-k3f9/builder
#     subject: which port?
#     ---
#     The words.


FILE_MAX = 64 * 2**10
"""Bytes of a message's file."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a file says. Nothing of `head` is to be believed: who sent it and when is in the ledger."""

    head: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def written(message: Message) -> str:
    """The text of the file; `parse` gives the same message back. Empty values are left out."""
    return note.written(message.head, message.body.rstrip("\n") + "\n")


def parse(text: str) -> Message:
    """Read a message; one without front matter is all words. Raises Refused for front matter that is broken."""
    try:
        front, body = note.split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
        head = note.read_head(front) if front is not None else {}
    except BrokenError as error:
        raise Refused("not a message", why=str(error), kept="the file, set aside") from None
    if unread := next((key for key, value in head.items() if value is None), ""):
        raise Refused("not a message", why=f"cannot read {unread}", kept="the file, set aside")
    return Message({key.lower(): value for key, value in head.items() if isinstance(value, str)}, body)


# Maildir
# -------
# One mailbox: `tmp/`, `new/` and `cur/` of its owner, with a copy of each message: in `new/` until it is read, then in `cur/`. What the
# ledger says of a message is the truth; a copy that is missing or changed tells nothing.
#
# A person, and an agent without a sandbox, can write here, so everything is reached through the door for files of others. A file in
# `new/` that is no copy becomes a message. All functions read and write files: call them on the memory's thread. They raise HostError
# when the directory cannot be used.


SUFFIX = ".md"
STILL_S, EMPTY_S = 2.0, 10.0
"""Seconds without a change before a file is taken: one whose writers the kernel cannot name, and an empty one."""
LOOKED_MAX = 1000
"""Files of a mailbox that one look takes."""
NEW, CUR, TMP = "new", "cur", "tmp"


@dataclass(frozen=True, slots=True)
class Found:
    """A file in `new/` that is not one of ours."""

    name: str
    data: bytes | None
    """None when it is no plain file of at most FILE_MAX bytes, which `why` explains."""
    why: str = ""
    which: str = ""
    """Tells it from another file that has its name, and the same words, later."""
    unfinished: bool = False
    """A process is still writing it."""


class Maildir:
    """The mailbox of one owner. It is made with its first message."""

    def __init__(self, mail: Path, owner: str) -> None:
        """`mail`: the directory of all mailboxes of a project. `owner`: a task's id or `person`."""
        self._mail = mail
        self.owner = owner

    def put(self, name: str, text: str) -> None:
        """Write the copy of a message to `new/`, in place of whatever has its name. `tmp/` is made too: people write a file there
        and move it to `new/` when it is whole."""
        with self._box(TMP), self._box(NEW) as new:
            new.replace(name + SUFFIX, text.encode())

    def file(self, name: str) -> None:
        """Move the copy of a message to `cur/`, if there is one in `new/`."""
        with self._box(NEW) as new, self._box(CUR) as cur:
            new.move(name + SUFFIX, cur)

    def text(self, name: str) -> str | None:
        """The text of a message whose words a release before this one kept in its file alone; None when there is none."""
        for box in (NEW, CUR, TMP):
            data = None
            with contextlib.suppress(FileNotFoundError), self._box(box, make=False) as place:
                data = place.read(name + SUFFIX, FILE_MAX)
            if data is not None:
                return data.decode("utf-8", "replace")
        return None

    def strangers(self, ours: frozenset[str]) -> list[Found]:
        """What lies in `new/` beside our own messages, oldest name first. What begins with a dot is somebody's draft, or was set aside."""
        with self._box(NEW) as new:
            names = sorted(name for name in new.names() if not name.startswith(".") and name.removesuffix(SUFFIX) not in ours)
            return [_found(new, name) for name in names[:LOOKED_MAX]]

    def set_aside(self, name: str) -> str:
        """Take a file of `new/` out of the way, by a name that is hidden there; returns it."""
        with self._box(NEW) as new:
            return new.set_aside(name)

    def remove(self, found: Found) -> None:
        """Remove a file of `new/` that was taken over, and not one that has been put there since under its name."""
        with self._box(NEW) as new:
            seen = new.look(found.name)
            if seen is not None and _which(seen) == found.which:
                new.remove(found.name)

    @contextlib.contextmanager
    def _box(self, box: str, *, make: bool = True) -> Iterator[Folder]:
        try:
            with untrusted_fs.folder(self._mail, f"{self.owner}/{box}", make=make) as place:
                yield place
        except OSError as error:
            if not make and isinstance(error, FileNotFoundError):
                raise
            on = f"{self._mail}/{self.owner}/{box}"
            if files.is_no_space(error):
                raise files.disk_full("cannot write the message", Path(on), "the disk is full") from error
            why = "it is a link or no directory" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror or str(error)
            raise HostError("cannot use the mailbox", on=on, why=why) from error


def _found(new: Folder, name: str) -> Found:
    seen = new.look(name)
    if seen is None:
        return Found(name, None, "it is gone")
    if not name.endswith(SUFFIX):
        return Found(name, None, f"its name does not end with {SUFFIX}")
    data = new.read(name, FILE_MAX + 1)
    if data is None:
        what = untrusted_fs.kind(seen)
        return Found(name, None, f"it is {what}" if what != "a file" else "it is a file with several names")
    if _is_unfinished(new, name, seen):
        return Found(name, None, "it is being written", unfinished=True)
    if len(data) > FILE_MAX:
        return Found(name, None, f"it is larger than {FILE_MAX} bytes")
    return Found(name, data, which=_which(seen))


def _is_unfinished(new: Folder, name: str, seen: os.stat_result) -> bool:
    """Return whether a file is still being written: a process has it open for writing, or it is empty and new. Where the kernel cannot
    say whether a process has it open, a file that changed less than STILL_S ago counts as unfinished."""
    open_now, still_s = new.is_being_written(name), time.time() - seen.st_mtime
    if open_now is None:
        return 0 <= still_s < STILL_S
    return open_now or (not seen.st_size and 0 <= still_s < EMPTY_S)


def _which(seen: os.stat_result) -> str:
    return f"{seen.st_ino} {seen.st_mtime_ns}"


def owners(mail: Path) -> list[str]:
    """Who has a mailbox: `person`, and tasks as RUN/TASK. Names that can be neither are left out."""
    found = []
    with untrusted_fs.folder(mail) as top:
        runs = [name for name in top.names() if _is_folder(top, name)]
    for run in sorted(runs):
        with contextlib.suppress(OSError), untrusted_fs.folder(mail, run) as below:
            names = [name for name in below.names() if _is_folder(below, name)]
            found += [run] if run == "person" else [f"{run}/{name}" for name in sorted(names)]
    return found


def _is_folder(place: Folder, name: str) -> bool:
    seen = place.look(name)
    return not name.startswith(".") and seen is not None and untrusted_fs.kind(seen) == "a directory"


def changed(mail: Path, owner: str) -> int:
    """When `new/` of a mailbox changed last, as the file system says; 0 when there is none."""
    try:
        with untrusted_fs.folder(mail, owner) as box:
            seen = box.look(NEW)
    except OSError:
        return 0
    return seen.st_mtime_ns if seen is not None else 0


def id_of(name: str) -> str:
    """The id of the message that a file is called after."""
    return name.removesuffix(SUFFIX)
