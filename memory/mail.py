"""Messages between agents, and between agents and a person: what each is, who may send when, and what a recipient is given. Pure.

A message is a row of the ledger; its file (`memory.service.mail`) is a copy. The row says how far it has come:

    new        nobody has read it
    given      its text waits for the recipient's next turn, or was typed and nothing confirms it; it can still be read by the socket
    read       one reader has it
    bounced    its recipient ended before it read it

Releases before kept the words in the file alone. They also had `accepted`, before the file lay in its mailbox, and `lost`, of a message
whose file somebody removed.

Two agents that write to each other for nothing are damped in two ways: a token bucket for each pair of sender and recipient, and one for
each sender, and a bound for how deep a thread of replies may go.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from supervisor.contract import Tables
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, duration, many, rfc3339

# Mail
# ----


# Mail
# ----


PERSON = "person"
"""The mailbox of whoever uses the command line."""
UNKNOWN = "unknown"
"""Who wrote a file that came by no door."""
SUPERVISOR = "supervisor"
"""Who sends notices about what became of messages, leases and files."""
BYTES_A_TOKEN = 3.6
"""As `core.gateway.estimate.FIRST_RATIO`."""
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID = re.compile(rf"[{_ALPHABET}]{{26}}\Z")


class MailType(StrEnum):
    """What a message is for."""

    INFO = "info"
    REQUEST = "request"
    """Its sender wants a reply."""
    REPLY = "reply"
    HANDOFF = "handoff"
    """Work goes on elsewhere: it names a branch and a commit."""


class Priority(StrEnum):
    """Which of several messages is read first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class MailState(StrEnum):
    """How far a message has come."""

    ACCEPTED = "accepted"
    NEW = "new"
    GIVEN = "given"
    READ = "read"
    BOUNCED = "bounced"
    LOST = "lost"


OPEN = (MailState.ACCEPTED, MailState.NEW, MailState.GIVEN)
"""Of a message that can still be read for the first time."""


@dataclass(frozen=True, slots=True)
class MailTerms:
    """What a message and its sender may be."""

    body_max: int = 32 * 2**10
    subject_max: int = 200
    """Bytes of the text, and characters of the subject."""
    depth_max: int = 8
    """Replies that may stand above one another in a thread."""
    pair_burst: int = 10
    pair_every_s: float = 20.0
    """Messages that one may send another at once, and the seconds after which there is room for one more."""
    sender_burst: int = 40
    sender_every_s: float = 2.0
    """The same for all that one sends."""
    unread_max: int = 200
    """Messages that wait in one mailbox."""


TERMS = MailTerms()


@dataclass(frozen=True, slots=True)
class Mail:
    """One message as the ledger has it. Moments are seconds since 1970."""

    id: str
    project: str
    thread: str
    """Id of its first message."""
    sender: str
    """A task, `person`, `supervisor` or `unknown`."""
    recipient: str
    """A task, or `person`."""
    type: MailType
    subject: str
    sent: float
    priority: Priority = Priority.NORMAL
    in_reply_to: str = ""
    depth: int = 0
    """Replies above it."""
    needs_reply_by: float | None = None
    bytes: int = 0
    tokens: int = 0
    """Estimated, of what its recipient was given so far."""
    state: MailState = MailState.NEW
    epoch: int | None = None
    """The attempt of the recipient that it was given to."""
    changed: float = 0.0
    why: str = ""
    key: str = ""
    """The same key twice of one sender is one message."""
    delivery: int | None = None
    """The text for its recipient's next turn."""

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def shape(self, now: float, *, answered: bool = False) -> dict[str, Any]:
        """As `--json` prints it: without its words."""
        due = self.needs_reply_by
        return {
            "id": self.id, "thread": self.thread, "in_reply_to": self.in_reply_to or None, "from": self.sender, "to": self.recipient,
            "type": str(self.type), "priority": str(self.priority), "subject": self.subject, "sent": rfc3339(self.sent),
            "state": str(self.state), "needs_reply_by": rfc3339(due) if due is not None else None, "answered": answered,
            "overdue": due is not None and now > due and not answered, "bytes": self.bytes, "tokens": self.tokens, "epoch": self.epoch,
            "why": self.why,
        }  # fmt: skip


def message_id(at_ms: int, random: bytes) -> str:
    """26 characters that sort by their moment: 48 bits of milliseconds since 1970, and 10 bytes of randomness (a ULID)."""
    number = ((at_ms & (1 << 48) - 1) << 80) | int.from_bytes(random[:10].rjust(10, b"\0"), "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def is_id(text: str) -> bool:
    """Whether a message can be called so; it is then also a plain name of a file."""
    return _ID.match(text) is not None


def tokens(text: str) -> int:
    """How many tokens a text takes of whoever reads it, estimated as the gateway does before it knows an agent."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


def again_in_s(sent: Iterable[float], now: float, burst: int, every_s: float) -> float:
    """Seconds until a token bucket of `burst`, which gains one token each `every_s`, has one; 0 when it does now. `sent`: when one was
    taken, oldest first; what is older than `burst * every_s` tells nothing. A moment that is yet to come counts as now."""
    level, at = float(burst), None
    for moment in sent:
        moment = min(moment, now)
        if at is not None:
            level = min(float(burst), level + max(0.0, moment - at) / every_s)
        at, level = moment, level - 1.0
    if at is not None:
        level = min(float(burst), level + max(0.0, now - at) / every_s)
    return max(0.0, (1.0 - level) * every_s) if level < 1.0 else 0.0


def why_not(pair: Iterable[float], all_sent: Iterable[float], depth: int, now: float, terms: MailTerms = TERMS) -> tuple[str, str]:
    """Why a message may not be sent now, and what to do instead; two empty texts when it may. `pair`: when its sender wrote to its
    recipient before, `all_sent`: to anybody; oldest first."""
    if depth > terms.depth_max:
        why = f"its thread would be {depth} replies deep, and {terms.depth_max} is the most"
        return why, "end it, or begin a new thread with what is settled; a person can reply at any depth"
    wait_s = again_in_s(pair, now, terms.pair_burst, terms.pair_every_s)
    if wait_s:
        why = f"{terms.pair_burst} messages to the same recipient, and then one each {duration(terms.pair_every_s)}"
        return why, f"again in {age(math.ceil(wait_s))}, with all that is to be said in one"
    wait_s = again_in_s(all_sent, now, terms.sender_burst, terms.sender_every_s)
    if wait_s:
        return f"{terms.sender_burst} messages, and then one each {duration(terms.sender_every_s)}", f"again in {age(math.ceil(wait_s))}"
    return "", ""


_URGENCY = tuple(Priority)


def by_urgency(found: Iterable[Mail]) -> list[Mail]:
    """In the order in which they are read: by priority, then the oldest first."""
    return sorted(found, key=lambda one: (_URGENCY.index(one.priority), one.id))


def notice(mail: Mail, body: str) -> str:
    """What the recipient is given at its next turn: a line of ours that says where it comes from, then the message as quoted data, as
    `body`, then how to answer. The id is in it: who is given it twice knows it again."""
    due = f"; a reply is needed by {rfc3339(mail.needs_reply_by)}" if mail.needs_reply_by is not None else ""
    head = f"[nightcrew mail {mail.id}] {mail.type} from {mail.sender}: {one_line(mail.subject)}{due}"
    lines = [head, body]
    if mail.sender not in (UNKNOWN, SUPERVISOR):
        lines.append(f'Reply, if one is needed: "$NIGHTCREW_AGENT" mail reply {mail.id} TEXT')
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Pair:
    """What one agent has written to another."""

    sender: str
    recipient: str
    mails: int
    unread: int
    bytes: int
    tokens: int
    """Estimated, of what the recipient was given."""

    def shape(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "from": self.sender, "to": self.recipient, "mails": self.mails, "unread": self.unread, "bytes": self.bytes,
            "tokens": self.tokens,
        }  # fmt: skip


# Mail rows
# ---------
# Messages between agents in the ledger, with their words; the journal has neither words nor subjects.


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


# Views
# -----
# Messages in lines of text.


SHORT = 6
"""Characters at the end of an id that a person types: those at its beginning say only when it was sent."""


def mail_lines(mail: Mapping[str, Any], now: float, wide: int) -> list[str]:
    """`7Q2KX0  new   request     5m  1123-k3f9/lint -> person  (reply overdue for 2m)  which port?`: one message as `Mail.shape` has it.
    Where `wide` columns are too few its subject stands below it."""
    marks = [str(mail["priority"])] if mail["priority"] != "normal" else []
    marks += [f"reply {_due(mail, now)}"] if mail["needs_reply_by"] and not mail["answered"] else []
    marks += [one_line(mail["why"])] if mail["why"] else []
    head = f"{mail['id'][-SHORT:]}  {mail['state']:<6}  {mail['type']:<7}  {_age(mail['sent'], now):>6}  {mail['from']} -> {mail['to']}"
    head, subject = "  ".join([head, *([f"({', '.join(marks)})"] if marks else [])]), one_line(mail["subject"])
    return [f"{head}  {subject}"] if len(head) + 2 + len(subject) <= wide else [head, f"        {subject}"]


def pair_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """`1123-k3f9/planner -> 1123-k3f9/builder  12 messages, 1 unread, ~3400 tokens`, one of each pair."""
    names = [f"{one['from']} -> {one['to']}" for one in found]
    wide = max(map(len, names), default=0)
    return [f"{name:<{wide}}  {_written(one)}" for name, one in zip(names, found, strict=True)]


def _written(pair: Mapping[str, Any]) -> str:
    mails = many(pair["mails"], "message")
    return f"{mails}, {pair['unread']} unread, ~{pair['tokens']} tokens"


def whole(mail: Mapping[str, Any], now: float, quoted: str | None = None) -> Iterator[str]:
    """A message that is read: what is known of it, then its words, or these as an agent is given them."""
    yield f"id       {mail['id']}"
    yield f"from     {mail['from']}"
    yield f"to       {mail['to']}"
    yield f"type     {mail['type']}, {mail['priority']}"
    yield f"sent     {_age(mail['sent'], now)} ago"
    if mail["in_reply_to"]:
        yield f"thread   {mail['thread']}"
        yield f"answers  {mail['in_reply_to']}"
    if mail["needs_reply_by"] and not mail["answered"]:
        yield f"reply    {_due(mail, now)}"
    yield f"subject  {mail['subject']}"
    yield ""
    yield from (str(mail["text"]) if quoted is None else quoted).split("\n")


def _due(mail: Mapping[str, Any], now: float) -> str:
    by = datetime.fromisoformat(mail["needs_reply_by"]).timestamp()
    return f"overdue for {age(now - by)}" if mail["overdue"] else f"needed in {age(by - now)}"


def _age(at: str, now: float) -> str:
    return age(max(0.0, now - datetime.fromisoformat(at).timestamp()))


def all_asked(mails: Sequence[Mail], now: float) -> list[str]:
    """What a person is asked by mail, a line for each sender, who asked first above: of one that asks more the oldest and how many."""
    by_sender: dict[str, list[Mail]] = {}
    for mail in sorted(mails, key=lambda one: one.sent):
        by_sender.setdefault(mail.sender, []).append(mail)
    return [_asked(*found) if len(found) == 1 else _asked_more(found, now) for found in by_sender.values()]


def _asked_more(mails: Sequence[Mail], now: float) -> str:
    """`? mail      3 requests of 1123-k3f9/lint, the oldest 5m ago: which port?`."""
    words = "requests" if all(mail.type is MailType.REQUEST for mail in mails) else "requests and handoffs"
    head = f"? mail      {len(mails)} {words} of {mails[0].sender}, the oldest {age(max(0.0, now - mails[0].sent))}"
    return f"{head}: {one_line(mails[0].subject)}; nightcrew mail ls"


def _asked(mail: Mail) -> str:
    """`? mail      7Q2KX0  from 1123-k3f9/lint  which port?`."""
    return f"? mail      {mail.id[-SHORT:]}  from {mail.sender}  {one_line(mail.subject)}; nightcrew mail reply {mail.id[-SHORT:]} TEXT"
