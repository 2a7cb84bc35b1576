"""Messages between agents, and between agents and a person: what each is, who may send when, and what a recipient is given. Pure.

A message is a row of the ledger; its file (`memory.maildir`) is a copy. The row says how far it has come:

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
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, duration, rfc3339

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
