"""What may be asked of the mail, by `op`: send, ls, read, reply and wait. The same for agents and for a person; who asks is never in the
request."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from memory import mail as mail_rows
from memory.mail import LISTED_MAX, OPEN, PERSON, SUPERVISOR, TERMS, UNKNOWN, Mail, Mails, MailState, MailType, Priority, listed
from memory.note import quoted, stripped
from memory.service.mail import Handoff, Letter, Lines, MailDesk, subject_of
from supervisor.kernel import names
from supervisor.kernel.codec import Bound, Handler, Word, at_most
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, TimedOut, UsageError, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.leases import WaitKind
from supervisor.server.request_table import work
from supervisor.server.wakeups import was_set
from supervisor.store import journal, queries

WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again, and misses nothing."""
REPLY_BY_MAX_S = 30 * 86_400.0
LOOK_S = 1.0
"""Between two looks at whether the one who is waited for has ended."""
_NAMES_MAX = 200


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a person, or an attempt of a task."""

    name: str
    project: str
    epoch: int | None = None
    hand_over: Callable[[Letter, Handoff], Coroutine[Any, Any, Letter]] | None = None
    """Starts the task that a handoff is for, and gives the letter as it is sent to it."""

    @property
    def is_person(self) -> bool:
        return self.name == PERSON


class Visit(NamedTuple):
    """A mail desk, and who asks there."""

    desk: MailDesk
    asker: Asker


Body = Annotated[str, at_most(TERMS.body_max)]
Subject = Annotated[str, Bound(0, 4 * TERMS.subject_max)]
Seconds = Annotated[float, Bound(0, REPLY_BY_MAX_S)]


async def ask(desk: MailDesk, asker: Asker, args: Mapping[str, Any]) -> dict[str, Any]:
    """One request. Raises UsageError, NotFound, Refused, TimedOut, HostError, DiskFull, LedgerError."""
    return dict(await work(OPS, Visit(desk, asker), args))


async def send(
    at: Visit,
    *,
    text: Body,
    to: Word | None = None,
    subject: Subject = "",
    type: MailType = MailType.INFO,
    priority: Priority = Priority.NORMAL,
    needs_reply_s: Seconds | None = None,
    key: Word = "",
    questions: Lines = (),
    tried: Lines = (),
    start: dict[str, Any] | None = None,
    branch: str = "",
    commit: str = "",
) -> dict[str, Any]:
    """Send a message; `needs_reply_s` is seconds from now. A handoff also has `questions`, `tried` and `start`: the task that begins with
    it, instead of `to`. Returns the message's shape, and `task` that was started."""
    desk, asker = at
    if type is MailType.REPLY:
        raise UsageError("not sent", why="a reply names the message that it answers", hint="nightcrew mail reply ID TEXT")
    if start is None and to is None:
        raise UsageError("not a request", on="to", why="it must be given, as text")
    mail = _mail(at, type, resolve(desk, asker, to) if start is None and to is not None else "", subject, text)
    letter = Letter(replace(mail, priority=priority, needs_reply_by=_due(desk, needs_reply_s), key=key), stripped(text))
    if type is MailType.HANDOFF or start is not None:
        if asker.hand_over is None or type is not MailType.HANDOFF:
            raise UsageError("not sent", on="start", why="only a handoff starts a task")
        letter = await asker.hand_over(letter, Handoff(questions, tried, start, branch, commit))
    _refuse_ended(desk, letter.mail.recipient)
    sent = await desk.post(letter, damped=not asker.is_person)
    return {"mail": _shape(desk, sent)}


async def reply(
    at: Visit,
    *,
    id: Word,
    text: Body,
    subject: Subject = "",
    priority: Priority = Priority.NORMAL,
    needs_reply_s: Seconds | None = None,
    key: Word = "",
) -> dict[str, Any]:
    """Answer the message `id`. The reply goes to who else is in that exchange, and what it answers counts as read."""
    desk, asker = at
    above = _mine(desk, asker, id)
    to = above.sender if above.recipient == asker.name else above.recipient
    if to in (UNKNOWN, SUPERVISOR):
        raise Refused("cannot reply to", on=above.id, why=f"it is from {to}, who reads no mail", kept="the message")
    if above.recipient == asker.name and above.state in OPEN:
        await desk.take(above, asker.epoch)
    answered = above.subject if above.subject.startswith("Re: ") else f"Re: {above.subject}"
    mail = replace(
        _mail(at, MailType.REPLY, to, subject or answered, text),
        priority=priority, needs_reply_by=_due(desk, needs_reply_s), key=key,
        thread=above.thread, in_reply_to=above.id, depth=above.depth + 1, project=above.project,
    )  # fmt: skip
    _refuse_ended(desk, to)
    return {"mail": _shape(desk, await desk.post(Letter(mail, stripped(text)), damped=not asker.is_person))}


async def ls(
    at: Visit, *, all: bool = False, sent: bool = False, pairs: bool = False, thread: Word | None = None, of: Word | None = None
) -> dict[str, Any]:
    """`mails` that wait, the most urgent first; with `all` those that were read too, with `sent` what was sent, with `thread` one thread.
    With `pairs` instead: `pairs`, what each wrote to each other. A person may name another mailbox, `of`."""
    desk, asker = at
    owner = resolve(desk, asker, of) if asker.is_person and of else asker.name
    wanted = {"all": all, "sent": sent, "pairs": pairs, "thread": thread}
    return listed(desk.db, asker.project, asker.name, owner, wanted, desk.loop.clock.wall())


async def read(at: Visit, *, id: Word | None = None) -> dict[str, Any]:
    """`id`, or the most urgent that waits. Returns `mail` with its `text`, and whether it is `claimed`: true for exactly one reader. One
    that was read before can be read again by its id. `mail` is null when nothing waits. An agent gets what others wrote also as data,
    `quoted`, with who wrote it: that is what it should be shown."""
    desk, asker = at
    if id is None:
        return await _taken(desk, asker, lambda _: True) or {"mail": None, "claimed": False}
    mail = _mine(desk, asker, id)
    if mail.recipient == asker.name and mail.state in OPEN and (text := await desk.take(mail, asker.epoch)) is not None:
        return _given(desk, asker, mail.id, text, claimed=True)
    text = desk.body(mail)
    if text is None:
        raise NotFound("no text of", on=mail.id, why="its file is gone")
    if mail.recipient == asker.name and not asker.is_person:
        desk.loop.ledger.of(Mails).again(mail.id, mail_rows.tokens(text))
    return _given(desk, asker, mail.id, text, claimed=False)


async def wait(
    at: Visit,
    *,
    id: Word | None = None,
    thread: Word | None = None,
    timeout_s: Annotated[float, Bound(0, WAIT_MAX_S)] = WAIT_MAX_S,
    **of: Any,
) -> dict[str, Any]:
    """The next message, as `read` gives it: any, or one `from` somebody, of a `thread`, or the reply to `id`. `timeout_s`: at most
    WAIT_MAX_S. Raises TimedOut, also when the reply was needed by a moment that is over, Refused when the one who is waited for has ended,
    NightcrewError ("not read") when the message came back unread, and Deadlock when that one waits for the asker."""
    desk, asker = at
    about = _mine(desk, asker, id) if id is not None else None
    whom = resolve(desk, asker, str(of["from"])[:200]) if of.get("from") else ""
    if about is not None and not whom:
        whom = about.recipient if about.sender == asker.name else about.sender
    timeout_s, why = _patience(desk, timeout_s, about)

    def wants(mail: Mail) -> bool:
        if mail.project != asker.project or mail.recipient != asker.name:
            return False
        if about is not None:
            return mail.in_reply_to == about.id and mail.type is MailType.REPLY
        return (not whom or mail.sender == whom) and (not thread or mail.thread == thread)

    what = f"the reply to {about.id}" if about is not None else f"mail from {whom}" if whom else "mail"
    if (found := await _taken(desk, asker, wants)) is not None:
        if asker.epoch is not None:
            desk.waits.answered(asker.name, asker.epoch, WaitKind.MAIL, what)
        return found
    _check_read(desk, about)
    try:
        async with desk.waiting(asker.name, wants) as woken, _parked(desk, asker, what, whom, timeout_s):
            return await _first(desk, asker, wants, woken, whom, about)
    except (TimeoutError, TimedOut):
        raise TimedOut(
            f"no {what.removeprefix('the ')}", why=why, kept="what comes later, in the mailbox", hint="nightcrew mail ls"
        ) from None


@contextlib.asynccontextmanager
async def _parked(desk: MailDesk, asker: Asker, what: str, whom: str, timeout_s: float) -> AsyncIterator[None]:
    """Within the time, and for an agent in the graph of waits: `whom` it waits for must act first."""
    if asker.epoch is None:
        async with asyncio.timeout(timeout_s):
            yield
    else:
        holders = (whom,) if whom else ()
        async with desk.waits.waiting(asker.project, asker.name, asker.epoch, WaitKind.MAIL, what, holders, timeout_s):
            yield


async def _taken(desk: MailDesk, asker: Asker, wants: Callable[[Mail], bool]) -> dict[str, Any] | None:
    for letter in desk.unread(asker.name, asker.project):
        if wants(letter) and (text := await desk.take(letter, asker.epoch)) is not None:
            return _given(desk, asker, letter.id, text, claimed=True)
    return None


def _check_read(desk: MailDesk, about: Mail | None) -> bool:
    """Whether the message that a reply is waited for can still be read for the first time. Raises NightcrewError when nobody will."""
    now = mail_rows.one(desk.db, about.id) if about is not None else None
    if now is not None and now.state in (MailState.BOUNCED, MailState.LOST):
        hint = "nightcrew mail ls: the notice that it came back"
        raise NightcrewError(f"not read: message {now.id} to {now.recipient}", why=now.why, kept="its text", hint=hint)
    return now is not None and now.state in OPEN


async def _first(
    desk: MailDesk, asker: Asker, wants: Callable[[Mail], bool], woken: asyncio.Event, whom: str, about: Mail | None
) -> dict[str, Any]:
    while True:
        woken.clear()
        if (found := await _taken(desk, asker, wants)) is not None:
            return found
        is_unread = _check_read(desk, about)  # and its recipient has ended: it comes back at once
        if "/" in whom and not is_unread and desk.has_ended(whom) and not any(map(wants, desk.unread(asker.name, asker.project))):
            raise Refused("nothing will come from", on=whom, why="it has ended", kept="what it sent before", hint="nightcrew mail ls")
        await was_set(woken, LOOK_S)


def _patience(desk: MailDesk, timeout_s: float, about: Mail | None) -> tuple[float, str]:
    """How long to wait, and why it ends then."""
    due_s = about.needs_reply_by - desk.loop.clock.wall() if about is not None and about.needs_reply_by is not None else math.inf
    if due_s < timeout_s:
        return max(0.0, due_s), "the reply was needed by now"
    return timeout_s, f"none came in {duration(round(timeout_s, 1))}"


OPS: Mapping[str, Handler] = {
    "send": send, "ls": ls, "read": read, "reply": reply, "wait": wait,
}  # fmt: skip


# What a request names ------------------------------------------------------------------------------------------------------------------


def resolve(desk: MailDesk, asker: Asker, name: str) -> str:
    """The recipient that a name means: `person`, or a task of the same project: by its id, its name in the asker's own run, the name of one
    that its agent added, or as a person would name it. Raises NotFound with the nearest names."""
    if name == PERSON:
        return name
    run = asker.name.partition("/")[0]
    known = () if asker.is_person else (f"{run}/{name}", *_children(desk, asker, name))
    found = next((one for one in (name, *known) if desk.project_of(one) == asker.project), None)
    if found is None:
        with contextlib.suppress(NotFound, UsageError):
            found = queries.match_task(desk.db, name, asker.project)
    if found is None or desk.project_of(found) != asker.project:
        raise NotFound("nobody is called", on=one_line(name), why="it is no task of this project", hint=_nearest(desk, asker, name))
    return found


def _children(desk: MailDesk, asker: Asker, name: str) -> tuple[str, ...]:
    return tuple(one for one in reversed(journal.children(desk.db, asker.name)) if one.partition("/")[2] == name)


def _nearest(desk: MailDesk, asker: Asker, name: str) -> str:
    found = desk.db.execute("SELECT id, name FROM task WHERE project = ? ORDER BY ord DESC LIMIT ?", (asker.project, _NAMES_MAX))
    ids = {text for row in found for text in (str(row[0]), str(row[1]))}
    return names.nearest(name, sorted({PERSON, *ids}))


def _mine(desk: MailDesk, asker: Asker, name: str) -> Mail:
    """The message that `name` means; an agent's own, a person's any of the project. Raises NotFound."""
    name = name.upper()
    mail = mail_rows.one(desk.db, name) if mail_rows.is_id(name) else _by_prefix(desk, asker, name)
    if mail is None or not (asker.is_person or asker.name in (mail.sender, mail.recipient)):
        raise NotFound("no message", on=one_line(name), hint="nightcrew mail ls --all")
    return mail


def _by_prefix(desk: MailDesk, asker: Asker, name: str) -> Mail | None:
    """The one message whose id ends so: ids of one moment begin alike."""
    lists = [
        mail_rows.of_mailbox(desk.db, asker.project, asker.name, everything=True, sent=sent, at_most=LISTED_MAX) for sent in (False, True)
    ]
    found = {one.id: one for mails in lists for one in mails if len(name) >= 4 and one.id.endswith(name)}
    return next(iter(found.values())) if len(found) == 1 else None


def _refuse_ended(desk: MailDesk, to: str) -> None:
    if to != PERSON and desk.has_ended(to):
        raise Refused("not sent", on=to, why="it has ended, so nobody would read it", kept="nothing was sent", hint="nightcrew status")


def _mail(at: Visit, kind: MailType, to: str, subject: str, text: str) -> Mail:
    desk, asker = at
    if to == asker.name:
        raise Refused("not sent", on=to, why="it is its own sender", hint="its notes are the place for that")
    made = desk.new_id()
    return Mail(made, asker.project, made, asker.name, to, kind, subject_of(subject.strip(), stripped(text)), desk.loop.clock.wall())


def _due(desk: MailDesk, seconds: float | None) -> float | None:
    return desk.loop.clock.wall() + seconds if seconds is not None else None


def _shape(desk: MailDesk, mail: Mail) -> dict[str, Any]:
    return (mail_rows.one(desk.db, mail.id) or mail).shape(desk.loop.clock.wall())


def _given(desk: MailDesk, asker: Asker, mail: str, text: str, *, claimed: bool) -> dict[str, Any]:
    """What a reader gets. An agent is given the words of others as data as well: `quoted`."""
    found = mail_rows.one(desk.db, mail)
    answered = bool(mail_rows.answered(desk.db, [mail]))
    shape = found.shape(desk.loop.clock.wall(), answered=answered) if found is not None else {"id": mail}
    answer = {"mail": {**shape, "text": text}, "claimed": claimed}
    if not asker.is_person and found is not None and found.sender != asker.name:
        answer["quoted"] = quoted(text, f"message {mail} from {found.sender}")
    return answer
