"""Messages in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from memory.mail import Mail, MailType
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, many

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


def pairs(found: Sequence[Mapping[str, Any]]) -> list[str]:
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
