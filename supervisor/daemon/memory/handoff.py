"""A handoff: what its sender says of the work, and the commit at which the next agent goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memory.plain_text import quoted, stripped
from supervisor.core.errors import UsageError
from supervisor.core.mail import TERMS
from supervisor.daemon.memory.mail import Letter

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
