"""`nightcrew mail send`, `ls`, `read`, `reply` and `wait`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from memory import local
from memory.mail import MailType, Priority, mail_lines, whole
from memory.mail import pair_lines as pair_list
from supervisor.client import common
from supervisor.client.resolving import kind_name, mail_id, mail_recipient
from supervisor.kernel.errors import TimedOut, UsageError, one_line
from supervisor.views import status

ANSWER_S = 30.0
"""Beyond what it was asked to wait, a supervisor takes no longer than this to answer."""
WAIT_S = 600.0
"""Of one request; a longer wait asks again."""
_REPO = click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")
_SUBJECT = click.option("-s", "--subject", help="Any text (default: the first line).")
_PRIORITY = click.option("-p", "--priority", type=click.Choice([str(one) for one in Priority]), default="normal", show_default=True)
_REPLY_BY = click.option("--needs-reply-by", "reply_by", type=common.Duration(), help='How soon a reply is needed: "10m", "2h".')
_KEY = click.option("--key", help="The same key twice is one message.")


@click.group(name="mail")
def command() -> None:
    """Write to agents, and read what they write; docs/memory.md.

    \b
    nightcrew mail send lint "which port does the server take?" --type request
    nightcrew mail ls
    nightcrew mail reply 7Q2K "8080"
    """


@command.command()
@click.argument("words", nargs=-1, metavar="[NAME] [TEXT]", shell_complete=mail_recipient)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Read the text from a file.")
@click.option("--type", "kind", type=click.Choice(["info", "request", "handoff"]), default="info", show_default=True)
@_SUBJECT
@_PRIORITY
@_REPLY_BY
@_KEY
@click.option("--question", "questions", multiple=True, help="Of a handoff: what is open; may be repeated.")
@click.option("--tried", multiple=True, help="Of a handoff: what was tried; may be repeated.")
@click.option("--commit", help="Of a handoff: where the work stands (default: HEAD).")
@click.option("--start", metavar="KIND", shell_complete=kind_name, help="Start a task of this kind with the handoff, from that commit.")
@click.option("--prompt", help="With --start: what it is to do.")
@click.option("--id", "name", default="handoff", show_default=True, help="With --start: its name.")
@_REPO
@common.json_option
def send(words: tuple[str, ...], file: Path | None, kind: str, start: str | None, repo: Path, as_json: bool, **options: Any) -> None:
    """Send a message to an agent, by its name, or to `person`. TEXT may be - for the standard input.

    A handoff says where work stands; with --start an agent begins with it, from that commit, and no NAME is given.

    \b
    nightcrew mail send lint "the port is 8080"
    nightcrew mail send --type handoff --start claude "The parser is done."
    """
    names, texts = ((), words) if start is not None else (words[:1], words[1:])
    if start is None and not names:
        raise UsageError("say whom to write to", why="give a name", hint="nightcrew status")
    if len(texts) + (file is not None) != 1:
        raise UsageError("say what to send", why="give one text, - for the standard input, or --file", hint="nightcrew mail send --help")
    args: dict[str, Any] = {"type": kind, "text": _given(texts, file), **_common(options)}
    args |= {"to": names[0]} if names else {}
    if kind == MailType.HANDOFF:
        args |= {"questions": list(options["questions"]), "tried": list(options["tried"])}
        args |= _where(repo, options["commit"], start, options) if not local.is_agent() else _start(start, options)
    elif start is not None:
        raise UsageError("--start goes with --type handoff")
    answer = local.ask("mail", "send", args, repo=repo)
    _say_sent(answer["mail"], as_json=as_json)


@command.command(name="ls")
@click.option("-a", "--all", "everything", is_flag=True, help="With those that were read.")
@click.option("--sent", is_flag=True, help="What was sent, instead.")
@click.option("--thread", help="One thread, by the id of its first message.")
@click.option("--of", shell_complete=mail_recipient, help="The mailbox of an agent, instead of yours.")
@click.option("--pairs", is_flag=True, help="What each has written to each other, and the tokens that it took.")
@_REPO
@common.json_option
def list_all(everything: bool, sent: bool, thread: str | None, of: str | None, pairs: bool, repo: Path, as_json: bool) -> None:
    """List the messages that wait, the most urgent first.

    \b
    nightcrew mail ls --all
    nightcrew mail ls --of lint --json
    nightcrew mail ls --pairs
    """
    given = {"all": everything, "sent": sent, "thread": thread, "of": of, "pairs": pairs}
    answer = local.ask("mail", "ls", {name: value for name, value in given.items() if value}, reads=True, repo=repo)
    if as_json:
        common.print_json(**answer)
        return
    wide = common.width()
    lines = pair_list(answer["pairs"]) if pairs else [line for mail in answer["mails"] for line in mail_lines(mail, time.time(), wide)]
    for line in lines:
        common.show(status.cut(line, wide))
    if not lines:
        common.say("nobody wrote to anybody" if pairs else "no mail")


@command.command()
@click.argument("name", required=False, metavar="[ID]", shell_complete=mail_id)
@_REPO
@common.json_option
def read(name: str | None, repo: Path, as_json: bool) -> None:
    """Read the most urgent message that waits, or the one that is named. Whoever reads one first has it; it can be read again by its ID.

    \b
    nightcrew mail read
    nightcrew mail read 7Q2K
    """
    answer = local.ask("mail", "read", {"id": name}, repo=repo)
    _show(answer, as_json=as_json)


@command.command()
@click.argument("name", metavar="ID", shell_complete=mail_id)
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Read the text from a file.")
@_PRIORITY
@_REPLY_BY
@_KEY
@_REPO
@common.json_option
def reply(name: str, text: str | None, file: Path | None, repo: Path, as_json: bool, **options: Any) -> None:
    """Answer a message. TEXT may be - for the standard input.

    \b
    nightcrew mail reply 7Q2K "8080"
    """
    if (text is not None) + (file is not None) != 1:
        raise UsageError("say what to reply", why="give one text, - for the standard input, or --file")
    given = _given((text,) if text is not None else (), file)
    answer = local.ask("mail", "reply", {"id": name, "text": given, **_common(options)}, repo=repo)
    _say_sent(answer["mail"], as_json=as_json)


@command.command()
@click.argument("name", required=False, metavar="[ID]", shell_complete=mail_id)
@click.option("--from", "sender", shell_complete=mail_recipient, help="Only from this agent.")
@click.option("--thread", help="Only of this thread.")
@click.option("--timeout", type=common.Duration(), help='Give up after this long ("90s", "10m"), with exit code 124.')
@_REPO
@common.json_option
def wait(name: str | None, sender: str | None, thread: str | None, timeout: float | None, repo: Path, as_json: bool) -> None:
    """Wait for a message and read it; with ID for the reply to that one.

    \b
    nightcrew mail wait 7Q2K --timeout 10m
    """
    args = {"id": name, "from": sender, "thread": thread}
    ends_at = time.monotonic() + timeout if timeout is not None else None
    while True:
        left = WAIT_S if ends_at is None else max(0.0, min(WAIT_S, ends_at - time.monotonic()))
        try:
            answer = local.ask("mail", "wait", {**args, "timeout_s": left}, timeout_s=left + ANSWER_S, repo=repo)
            break
        except TimedOut as error:
            if "needed by now" in error.why or (ends_at is not None and time.monotonic() >= ends_at):
                raise
    _show(answer, as_json=as_json)


def _given(texts: tuple[str, ...], file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_text(encoding="utf-8", errors="replace")
        text = sys.stdin.buffer.read(common.TEXT_MAX).decode("utf-8", "replace") if texts[0] == "-" else texts[0]
    except OSError as error:
        hint = "--file FILE, or - for the standard input"
        raise UsageError("cannot read", on=str(file), why=error.strerror or str(error), hint=hint) from error
    return text.encode("utf-8", "replace").decode()


def _common(options: dict[str, Any]) -> dict[str, Any]:
    given = {"subject": options.get("subject"), "needs_reply_s": options["reply_by"], "key": options["key"]}
    return {"priority": options["priority"], **{name: value for name, value in given.items() if value is not None}}


def _start(start: str | None, options: dict[str, Any]) -> dict[str, Any]:
    if start is None:
        return {}
    return {"start": {"prompt": options["prompt"] or "", "options": {"kind": start, "id": options["name"]}}}


def _where(repo: Path, commit: str | None, start: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Where a person's work stands, and the task that begins there."""
    from supervisor.client import submit
    from worktrees.repository import current_branch, resolve

    place = submit.workplace(repo)
    oid = resolve(place.repository, commit or "HEAD")
    branch = "" if commit else current_branch(place.repository.git, place.repository.checkout) or ""
    found: dict[str, Any] = {"branch": branch, "commit": oid}
    if start is not None:
        chosen = {"kind": start, "id": options["name"]}
        key = f"handoff:{options['key']}" if options["key"] else None
        submission, notes = submit.from_words((options["prompt"] or "",), chosen, repo, oid, key, os.environ)
        for note in notes:
            common.say(note)
        found["start"] = submission
    return found


def _say_sent(mail: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        common.print_json(mail=mail)
    else:
        common.say(f"to {mail['to']}: {mail['state']}")
        click.echo(mail["id"])


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        common.print_json(**answer)
    elif answer["mail"] is None:
        common.say("no mail")
    else:
        if not answer["claimed"]:
            common.say("it was read before")
        for line in whole(answer["mail"], time.time(), answer.get("quoted")):
            click.echo(one_line(line) if line.strip() else "")
