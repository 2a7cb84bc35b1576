"""What an agent asks of nightcrew for tasks of its own. Run as `python -I -S client.py VERB ...`, in any sandbox; standard library only.

    add [--id NAME] [--kind KIND] [--model M] [--after ID]... [--base ID] [--key KEY] [--KEY VALUE]... COMMAND-OR-PROMPT | -
                     add a task; prints its id. The same words twice are one task: what begins again finds what it added before
    list             all tasks below this one: id, state and title, a line each
    wait [--any] [--timeout SECONDS] ID...      until they have ended; prints id and state, a line each
    result ID        what it came to, as JSON
    send ID TEXT     type a text into its terminal
    kill ID...       end it, and what it added

Exit status: 0; 1 when a task that was waited for did not end well; 2 wrong words; 4 none of its tasks; 5 no supervisor answers, so try
again later; 6 refused; 7 no budget left; 124 time ran out, wait again.
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
PATIENCE_S = 30.0
RETRY_S = 60.0
"""How long a wait goes on without a supervisor: one that was restarted is back by then."""
USAGE, NOT_RUNNING, TIMED_OUT = 2, 5, 124
CODES = {"UsageError": 2, "ConfigError": 3, "NotFound": 4, "NotRunning": 5, "Refused": 6, "Tampered": 6, "StaleEpoch": 6, "BudgetSpent": 7}
NUMBERS = (
    "steps_max",
    "priority",
    "retries",
    "weight",
    "tpm_max",
    "cost_max",
    "tokens_max",
    "sandbox",
    "processes_max",
    "children_max",
    "depth_max",
)


class Failed(Exception):
    """What to say, and the exit status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def main(words: list[str]) -> int:
    verbs = {"add": add, "list": listed, "wait": wait, "result": result, "send": send, "kill": kill}
    if not words or words[0] not in verbs:
        print(__doc__.partition("\n\n")[2], end="", file=sys.stdout if words[:1] in (["--help"], ["-h"]) else sys.stderr)
        return 0 if words[:1] in (["--help"], ["-h"]) else USAGE
    try:
        return verbs[words[0]](words[1:])
    except Failed as error:
        print(f"nightcrew: {error}", file=sys.stderr)
        return error.code


def add(words: list[str]) -> int:
    given, rest = options(words)
    args: dict[str, Any] = {name: given.pop(name)[-1] for name in ("base", "key", "on") if name in given}
    args["after"] = given.pop("after", [])
    text = sys.stdin.buffer.read(REQUEST_MAX + 1).decode("utf-8", "replace") if rest == ["-"] else " ".join(rest)
    args["text"] = text
    args["options"] = {name: values if name == "allow" else value(name, values[-1]) for name, values in given.items()}
    print(ask("add", args)["task"])
    return 0


def listed(_: list[str]) -> int:
    for task in ask("list", {})["tasks"]:
        print(f"{task['task']}\t{task['state']}\t{shown(task['title'])}")
    return 0


def wait(words: list[str]) -> int:
    given, names = options(words, flags=("any",))
    deadline = time.monotonic() + float(given["timeout"][-1]) if "timeout" in given else None
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


def options(words: list[str], flags: tuple[str, ...] = ()) -> tuple[dict[str, list[str]], list[str]]:
    """The options as lists of texts, by name, and the other words. The first word that is no option ends them."""
    given: dict[str, list[str]] = {}
    at = 0
    while at < len(words) and words[at].startswith("--"):
        name, has_value, text = words[at][2:].partition("=")
        at += 1
        if not name:
            break
        if name in flags:
            given[name] = [""]
            continue
        if not has_value:
            if at == len(words):
                raise Failed(USAGE, f"--{name} needs a value")
            text, at = words[at], at + 1
        given.setdefault(name.replace("-", "_"), []).append(text)
    return given, words[at:]


def value(name: str, text: str) -> object:
    """As a plan would hold it."""
    if text in ("true", "false"):
        return text == "true"
    if name in ("network", "gpus"):
        return [int(word) if name == "gpus" else word for word in text.split(",")]
    if name in NUMBERS:
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            raise Failed(USAGE, f"--{name.replace('_', '-')}: {text!r} is no number") from None
    return text


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


def shown(text: str) -> str:
    """On one line, without what would drive a terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
