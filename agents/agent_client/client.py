"""What an agent asks of nightcrew. Run as `python -I -S client.py VERB ...`, in any sandbox; standard library only.

What the agents of the project know together (the files are in $NIGHTCREW_MEMORY, to read; PATH is below it):
    mem ls [PREFIX]         path, version and title, a line each
    mem show [--raw] [--version V] PATH         a file; what another wrote is marked as data, raw it is not
    mem search [--path FILE]... [--limit N] WORDS...    notes that have these words, the best first
    mem put [--if-version V] PATH TEXT... | - | --file FILE     write a note; prints its version. V empty: only a new one
    mem append TEXT... | -  add a line to today's episodes
    mem rm PATH             to the archive; mem restore [--version V] PATH brings it back
    mem log [--limit N] [PATH]                  who changed what; mem graph: who waits for whom
    mem wait [--timeout SECONDS] [--since NUMBER] GLOB      until such a file changes; with the number of an answer (--json): after that
Mail, to an agent's task, to `person`, and from them:
    mail send [--subject S] [--type info|request|handoff] [--priority P] [--needs-reply-s SECONDS] [--key K] TO TEXT... | -
    mail send --type handoff [--question Q]... [--tried T]... TO TEXT... | -     with the commit where its branch stands
    mail send --type handoff --start KIND [--prompt P] [--id NAME] TEXT... | -   to a new task, which begins at that commit
    mail ls [--all] [--sent] [--thread ID] [--pairs]    what waits; pairs: who wrote how much to whom
    mail read [ID]          the next message, or that one
    mail reply [--subject S] [--priority P] [--needs-reply-s SECONDS] [--key K] ID TEXT... | -
    mail wait [--timeout SECONDS] [--from TASK] [--thread ID] [ID]      for the next message, or the reply to that one
Leases on files of the repository, so that nobody else works on them:
    lease take [--shared] [--wait-s SECONDS] [--ttl SECONDS] GLOB...
    lease release [GLOB...]; lease ls
    lease check PATH        whether a write there is welcome
Tasks of its own, where its task may add some:
    add [--id NAME] [--kind KIND] [--model M] [--after ID]... [--base ID] [--key KEY] [--KEY VALUE]... COMMAND-OR-PROMPT | -
                     add a task; prints its id. The same words twice are one task: what begins again finds what it added before
    list             all tasks below this one: id, state and title, a line each
    wait [--any] [--timeout SECONDS] ID...      until they have ended; prints id and state, a line each
    result ID        what it came to, as JSON
    send ID TEXT     type a text into its terminal
    kill ID...       end it, and what it added

Options of wait, mem, mail and lease may stand anywhere; words behind `--` are none. With --json mem, mail and lease print all.
Exit status: 0; 1 when a task that was waited for did not end well; 2 wrong words; 4 there is no such thing; 5 no supervisor answers, so
try again later; 6 refused, or kept aside as a conflict; 7 no budget left; 124 time ran out, wait again.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes as long to import as all the rest
    from typing import Any

REQUEST_MAX = 250 * 1024
WAIT_S = 600.0
"""Of one request; a longer wait asks again."""
LONGEST_S = 1e9
"""Of a wait: thirty years."""
PATIENCE_S = 30.0
RETRY_S = 60.0
"""How long a wait goes on without a supervisor: one that was restarted is back by then."""
USAGE, NOT_RUNNING, TIMED_OUT = 2, 5, 124
CODES = {"UsageError": 2, "ConfigError": 3, "NotFound": 4, "NotRunning": 5, "BudgetSpent": 7, "TimedOut": TIMED_OUT}
CODES |= dict.fromkeys(("Refused", "Tampered", "Deadlock", "Chosen", "StaleEpoch"), 6)
OPTIONS = {
    "mem": {
        "ls": "", "show": "raw version=", "search": "path= limit=", "put": "if-version= file=", "append": "", "rm": "",
        "restore": "version=", "log": "limit=", "wait": "timeout= since=", "graph": "",
    },
    "mail": {
        "send": "subject= type= priority= needs-reply-s= key= question= tried= start= prompt= id=", "ls": "all sent thread= pairs",
        "read": "", "reply": "subject= priority= needs-reply-s= key=", "wait": "timeout= from= thread=",
    },
    "lease": {"take": "shared wait-s= ttl=", "release": "", "ls": "", "check": ""},
}  # fmt: skip
"""Of each operation, beside --json; with `=` those that have a value."""
NEEDED = {
    "mem show": "path", "mem put": "path", "mem rm": "path", "mem restore": "path", "mem wait": "glob", "mail send": "to",
    "mail reply": "id", "lease check": "path",
}  # fmt: skip
"""The first word of an operation, by the name that the supervisor has for it."""
POSSIBLE = {"mem ls": "prefix", "mem log": "path", "mail read": "id", "mail wait": "id"}
"""The same where it may be left out."""
TEXTS = ("if_version", "version", "subject", "type", "priority", "key", "from", "thread")
NUMBERS = ("limit", "since", "needs_reply_s", "wait_s", "ttl")
FLAGS = ("all", "sent", "pairs")
MANY = {"path": "paths", "question": "questions", "tried": "tried"}
"""With the three before: the options that the supervisor is told. The others are for this program."""
LISTS = ("entries", "hits", "changes", "mails", "pairs", "leases", "released", "waits")
COLUMNS = (
    "path", "version", "action", "author", "title", "excerpt", "id", "from", "to", "type", "subject", "fence", "glob", "mode", "task",
    "expires", "kind", "what", "holders", "mails", "tokens",
)  # fmt: skip
"""Of an answer: which lists are printed a line each, and what of each."""


class Failed(Exception):
    """What to say, and the exit status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def main(words: list[str]) -> int:
    verbs = {"add": add, "list": listed, "wait": wait, "result": result, "send": send, "kill": kill}
    if not words or words[0] not in (*verbs, *OPTIONS):
        print(__doc__.partition("\n\n")[2], end="", file=sys.stdout if words[:1] in (["--help"], ["-h"]) else sys.stderr)
        return 0 if words[:1] in (["--help"], ["-h"]) else USAGE
    try:
        return shared(words[0], words[1:]) if words[0] in OPTIONS else verbs[words[0]](words[1:])
    except Failed as error:
        print(f"nightcrew: {error}", file=sys.stderr)
        return error.code


def add(words: list[str]) -> int:
    given, rest = options(words)
    args: dict[str, Any] = {name: given.pop(name)[-1] for name in ("base", "key", "on") if name in given}
    args["after"] = given.pop("after", [])
    args["text"] = sys.stdin.buffer.read(REQUEST_MAX + 1).decode("utf-8", "replace") if rest == ["-"] else " ".join(rest)
    args["options"] = {name: values if name == "allow" else value(name, values[-1]) for name, values in given.items()}
    print(ask("add", args)["task"])
    return 0


def listed(_: list[str]) -> int:
    for task in ask("list", {})["tasks"]:
        print(f"{task['task']}\t{task['state']}\t{shown(task['title'])}")
    return 0


def wait(words: list[str]) -> int:
    given, names = options(words, flags=("any",), known=["any", "timeout="])
    deadline = time.monotonic() + seconds(given["timeout"][-1]) if "timeout" in given else None
    while True:
        left = WAIT_S if deadline is None else max(0.0, min(WAIT_S, deadline - time.monotonic()))
        args = {"tasks": names, "timeout_s": left, "any": "any" in given}
        found = ask("wait", args, patience_s=left + PATIENCE_S, retry_s=RETRY_S)
        if not found["unfinished"] or ("any" in given and found["ended"]):
            break
        if deadline is not None and time.monotonic() >= deadline:
            break
    for task in found["ended"] + found["unfinished"]:
        print(f"{task['task']}\t{task['state']}")
    if found["unfinished"] and not ("any" in given and found["ended"]):
        return TIMED_OUT
    return 0 if all(task["state"] == "done" for task in found["ended"]) else 1


def result(words: list[str]) -> int:
    print(json.dumps(ask("result", {"tasks": words})))
    return 0


def send(words: list[str]) -> int:
    for one in ask("send", {"tasks": words[:1], "text": " ".join(words[1:])})["deliveries"]:
        print(f"{one['task']}\t{one['state']}")
    return 0


def kill(words: list[str]) -> int:
    print("\n".join(ask("kill", {"tasks": words})["asked"]))
    return 0


def shared(verb: str, words: list[str]) -> int:
    """An operation on what agents share: `mem`, `mail` or `lease`."""
    op, given, rest = operation(verb, words)
    args: dict[str, Any] = {"op": op}
    for name, values in given.items():
        if name in TEXTS:
            args[name] = values[-1]
        elif name in NUMBERS:
            args[name] = number(name, values[-1])
        elif name in FLAGS:
            args[name] = True
        elif name in MANY:
            args[MANY[name]] = values
    place = f"{verb} {op}"
    if "start" in given:
        args["start"] = started(given)
    elif place in NEEDED:
        args[NEEDED[place]] = needed(rest, NEEDED[place]).pop(0)
    elif place in POSSIBLE and rest:
        args[POSSIBLE[place]] = rest[0]
    match op:
        case "put":
            args["text"] = note(given, rest)
        case "append" | "send" | "reply":
            args["text"] = spoken(rest)
        case "search":
            args["query"] = " ".join(needed(rest, "words"))
        case "take":
            args |= {"globs": needed(rest, "a pattern"), "mode": "shared" if "shared" in given else "exclusive"}
        case "release" if rest:
            args["globs"] = rest
        case "check":
            args["cwd"] = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
    longest_s = PATIENCE_S + float(args.get("wait_s", 0))
    found = patient(verb, args, given) if op == "wait" else ask(verb, args, patience_s=longest_s)
    print_answer(given, found)
    return 6 if found.get("conflict") else 0


def started(given: dict[str, list[str]]) -> dict[str, Any]:
    """The task that a handoff begins."""
    name = {"id": given["id"][-1]} if "id" in given else {}
    return {"prompt": given.get("prompt", [""])[-1], "options": {"kind": given["start"][-1], **name}}


def operation(verb: str, words: list[str]) -> tuple[str, dict[str, list[str]], list[str]]:
    """The operation, its options by name, and the other words. Raises Failed for an operation or option that there is not."""
    known = OPTIONS[verb]
    at = first_word(words, [one for names in known.values() for one in names.split()])
    if at == len(words) or words[at] not in known:
        raise Failed(USAGE, f'{verb}: it is one of {", ".join(known)}; next: "$NIGHTCREW_AGENT" --help')
    here = ["json", *known[words[at]].split()]
    return words[at], *options(words[:at] + words[at + 1 :], flags=tuple(one for one in here if one[-1] != "="), known=here)


def first_word(words: list[str], known: list[str]) -> int:
    """Where the first word stands that is neither an option nor the value of one; behind the last when there is none."""
    at = 0
    while at < len(words) and words[at].startswith("--"):
        at += 2 if f"{words[at][2:]}=" in known else 1
    return min(at, len(words))


def unknown(name: str, known: list[str]) -> Failed:
    """What to say of an option that there is not, with those that may be meant."""
    from difflib import get_close_matches  # takes long to import

    names = [one.rstrip("=") for one in known]
    near = get_close_matches(name, names) or [one for one in names if name[:2] == one[:2]] or names
    return Failed(USAGE, f"there is no option --{shown(name)}; next: {' or '.join(f'--{one}' for one in near)}, or -- before a text")


def needed(rest: list[str], what: str) -> list[str]:
    """The same. Raises Failed when there is none."""
    if not rest:
        raise Failed(USAGE, f'{what} is missing; next: "$NIGHTCREW_AGENT" --help')
    return rest


def content(file: str) -> str:
    """Of a file, or of stdin. Raises Failed."""
    try:
        with open(0 if file == "-" else file, "rb", closefd=file != "-") as opened:
            return opened.read(REQUEST_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(USAGE, f"cannot read {file}: {error}") from None


def note(given: dict[str, list[str]], rest: list[str]) -> str:
    """What is to be written: of --file, the words, or of stdin. Raises Failed for none, two, or what looks like the name of a file."""
    if "file" in given and rest:
        raise Failed(USAGE, "mem put: a text or --file FILE, not both")
    if "file" in given:
        return content(given["file"][-1])
    if not rest and os.isatty(0):
        raise Failed(USAGE, "a text is missing; next: mem put PATH TEXT, or --file FILE")
    if len(rest) == 1 and rest != ["-"] and os.path.isfile(rest[0]):  # noqa: PTH113 - pathlib takes as long to import as all the rest
        raise Failed(USAGE, f"mem put: {rest[0]} is a file; next: --file {rest[0]}")
    return spoken(rest or ["-"])


def spoken(rest: list[str]) -> str:
    """The words, or stdin for a single `-`."""
    return content("-") if needed(rest, "a text") == ["-"] else " ".join(rest)


def patient(verb: str, args: dict[str, Any], given: dict[str, list[str]]) -> dict[str, Any]:
    """The answer to a wait, which is asked for again until it has one. Raises Failed when the time is over."""
    deadline = time.monotonic() + (seconds(given["timeout"][-1]) if "timeout" in given else LONGEST_S)
    while True:
        left = max(0.0, min(WAIT_S, deadline - time.monotonic()))
        try:
            found = ask(verb, {**args, "timeout_s": left}, patience_s=left + PATIENCE_S, retry_s=RETRY_S)
        except Failed as error:
            if error.code != TIMED_OUT or time.monotonic() >= deadline:
                raise
            continue
        if not found.get("timed_out"):
            return found
        if time.monotonic() >= deadline:
            raise Failed(TIMED_OUT, f"{verb} wait: nothing came in time; next: wait again")
        args = {**args, "since": found["number"]}


def print_answer(given: dict[str, list[str]], found: dict[str, Any]) -> None:
    """For who reads it: a text as it is, lists a line each."""
    if "json" in given:
        print(json.dumps(found))
        return
    letter = found.get("mail")
    if isinstance(letter, dict):
        head = [f"{name}: {shown(str(letter[name]))}" for name in ("id", "from", "to", "type", "subject") if letter.get(name)]
        print(*head, *([""] if "text" in letter else []), sep="\n")
    text = found["quoted"] if "quoted" in found and "raw" not in given else found.get("text", (letter or {}).get("text"))
    if isinstance(text, str):
        print(text, end="" if text.endswith("\n") else "\n")
    elif rows := next((found[name] for name in LISTS if isinstance(found.get(name), list)), None):
        columns = [name for name in COLUMNS if name not in ("to", "tokens") or given.keys() & {"sent", "thread", "pairs"}]
        print("\n".join("\t".join(shown(row[name]) for name in columns if row.get(name) not in (None, "")) for row in rows))
    elif letter is None:
        print(*(f"{name}: {shown(str(value))}" for name, value in found.items() if value not in (None, "", False, [])), sep="\n")


def options(words: list[str], flags: tuple[str, ...] = (), known: list[str] | None = None) -> tuple[dict[str, list[str]], list[str]]:
    """The options as lists of texts, by name, and the other words. `--` ends them, and so does the first word that is none; with `known`
    (those with a value end in `=`) they may stand anywhere, no other is taken, and what has a space in its name is a text."""
    given: dict[str, list[str]] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, has_value, text = word[2:].partition("=")
        if word == "--":
            break
        if not word.startswith("--") or (known is not None and any(map(str.isspace, name))):
            rest.append(word)
            if known is None:
                break
        elif name in flags:
            given[name] = [""]
        elif known is not None and f"{name}=" not in known:
            raise unknown(name, known)
        elif not has_value and (text := next(left, "\0")) == "\0":
            raise Failed(USAGE, f"--{name} needs a value")
        else:
            given.setdefault(name.replace("-", "_"), []).append(text)
    return given, [*rest, *left]


def value(name: str, text: str) -> object:
    """As a plan would hold it; the supervisor reads numbers from text."""
    if text in ("true", "false"):
        return text == "true"
    if name in ("network", "gpus"):
        return [number(name, word) if name == "gpus" else word for word in text.split(",")]
    return text


def number(name: str, text: str) -> int | float:
    """Raises Failed for what is none."""
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise Failed(USAGE, f"--{name.replace('_', '-')}: {text!r} is no number") from None


def seconds(text: str) -> float:
    """A time to wait. Raises Failed for what is none."""
    found = number("timeout", text)
    if not 0 <= found < LONGEST_S:
        raise Failed(USAGE, f"--timeout: {text} is no number of seconds from 0 to {LONGEST_S:.0f}")
    return found


def ask(verb: str, args: dict[str, Any], patience_s: float = PATIENCE_S, retry_s: float = 0.0) -> dict[str, Any]:
    """The supervisor's answer; without one it is asked again for `retry_s`."""
    line = json.dumps({"version": "", "verb": verb, "args": args, "token": os.environ.get("NIGHTCREW_TOKEN", "")}).encode() + b"\n"
    if len(line) > REQUEST_MAX:
        raise Failed(USAGE, f"{verb}: the request is longer than {REQUEST_MAX} bytes; write long text into a file and commit it")
    until = time.monotonic() + retry_s
    while True:
        try:
            return answer(line, patience_s)
        except OSError as error:
            if time.monotonic() >= until:
                raise Failed(
                    NOT_RUNNING, f"{verb}: no supervisor answers ({error}); kept: what was added before; next: try again"
                ) from None
            time.sleep(0.5)


def answer(line: bytes, patience_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(patience_s)
        door.connect(os.environ.get("NIGHTCREW_AGENTS_SOCKET", ""))
        door.sendall(line)
        with door.makefile("rb") as reader:
            said = reader.readline()
    if not said:
        raise ConnectionResetError("it went away while answering")
    found = json.loads(said)
    if found["ok"]:
        value: dict[str, Any] = found["value"]
        return value
    error = found["error"]
    text = error["what"] + "".join(
        f"{mark}{error[key]}" for key, mark in (("on", " "), ("why", ": "), ("hint", "; next: ")) if error.get(key)
    )
    raise Failed(CODES.get(error["error"], 1), shown(text))


def shown(what: object) -> str:
    """On one line, without what would drive a terminal; a list by its members."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in (", ".join(what) if isinstance(what, list) else str(what)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
