"""Drive a headless agent turn by turn: a client of the Agent Client Protocol (version 1), and Claude Code's stream.

A small process beside the agent, in its sandbox, gives it the prompt of its task and then, at the end of each turn, the texts that people
sent meanwhile. When a turn has ended and none waits, the agent's input is closed.

It is here, and not in the runner or in the supervisor, because the end of a turn is read from what the agent prints: the runner reads
nothing that an agent wrote, and a supervisor may be gone for hours while agents end.

Run as `python -I -m agents.turns PROTOCOL [OPTION VALUE]... -- COMMAND`, with `claude` or `acp`.

Exit status: of `claude` its own; of an ACP agent 0 when its last turn ended well, 1 when not, 130 when a person ended it; 2 for wrong
options, 126 and 127 when the agent cannot be started.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from agents import printing
from agents.printing import Account, Ending, Pane, Records
from agents.protocols.lines import MESSAGE_MAX, TEXT_MAX, amount, inner, name_of, several, short, text
from agents.typing_rules import NUMBER, Inbox
from supervisor.kernel.result import json_value

# Permissions
# -----------
# Which requests for permission of an ACP agent are granted: nobody is there to be asked, so the task's list decides. Pure.


KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
"""What the protocol calls the kinds of tools; `other` is also one that says none."""


def kind(call: Mapping[str, Any]) -> str:
    """Of the tool that a call is of."""
    said = call.get("kind")
    return said if isinstance(said, str) and said in KINDS else "other"


def answer(call: Mapping[str, Any], options: Sequence[Mapping[str, Any]], allow: Collection[str]) -> tuple[bool, dict[str, Any]]:
    """Whether the call is granted, and the outcome to answer with. Only this one call is ever granted: an option that grants more is not
    taken. A call that is not granted is refused, or cancelled where the agent offers no refusal."""
    wanted = ("allow_once",) if kind(call) in allow else ("reject_once", "reject_always")
    for sort in wanted:
        for option in options:
            if option.get("kind") == sort:
                return sort == "allow_once", {"outcome": "selected", "optionId": option.get("optionId")}
    return False, {"outcome": "cancelled"}


# Agent
# -----
# The agent's process, as who drives it sees it: JSON lines in, JSON lines out, and the signals that we get, all in one queue.


LINE_MAX = 16 * 2**20
"""Bytes. What reads the lines leaves longer ones out (`agents.protocols`)."""
Event = bytes | signal.Signals | None
"""A line of the agent's, a signal to us, or None: it has closed its output, or has ended."""
_LAST_WORDS_S = 2.0
"""Seconds to read the rest of an agent's output after its end, if another process holds that open."""
_AGENT_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Agent:
    """One agent's process. Its stderr is ours. Raises OSError when it cannot be started."""

    def __init__(self, argv: Sequence[str], *, own_group: bool) -> None:
        """With `own_group` a Ctrl-C in the pane is not for it, but for us alone."""
        self._events: SimpleQueue[Event] = SimpleQueue()
        for number in _AGENT_STOPS:
            signal.signal(number, lambda number, _: self._events.put(signal.Signals(number)))
        group = 0 if own_group else None
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=group)
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        self._input: IO[bytes] = self._process.stdin
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reader.start()
        threading.Thread(target=self._await, args=(reader,), daemon=True).start()

    def _read(self, output: IO[bytes]) -> None:
        """A line that is too long comes in pieces, which are no JSON."""
        while line := output.readline(LINE_MAX):
            self._events.put(line)
        self._events.put(None)

    def _await(self, reader: threading.Thread) -> None:
        """Tell the end of an agent that left something behind which holds its output open."""
        self._process.wait()
        reader.join(_LAST_WORDS_S)
        self._events.put(None)

    def tell(self, shape: dict[str, Any]) -> None:
        """One line to the agent; nothing when it does not read any more, which its end will tell."""
        with contextlib.suppress(OSError, ValueError):
            self._input.write(json.dumps(shape, separators=(",", ":")).encode("ascii") + b"\n")
            self._input.flush()

    def no_more(self) -> None:
        """Close its input."""
        with contextlib.suppress(OSError):
            self._input.close()

    def next(self) -> Event:
        """What comes next; waits for it."""
        return self._events.get()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def ended(self) -> int:
        """Its exit status once it has ended; 128 + n for signal n."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def whole(handle: int, data: bytes) -> None:
    """Write all of it; a reader that is gone is no error."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(handle, data) :]


# Acp
# ---
# A client of the Agent Client Protocol, version 1: it opens a session, gives it prompts, and prints what comes of them.
#
# What it prints on standard output has the shape of Claude Code's `stream-json`, as the built-in agent's; a person reads the pane.
# The agent gets no file system and no terminal of ours: it is in the same sandbox, and works with its own.


VERSION = 1
_OFFERS = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
_CLIENT = {"name": "nightcrew", "version": "0"}
_NO_METHOD = -32601
_LOG_IN = -32000
_STOPS = {
    "end_turn": ("success", "completed", "", 0),
    "max_tokens": ("error_max_tokens", "max_tokens", "the model reached its limit of tokens", 1),
    "max_turn_requests": ("error_max_turns", "max_turns", "the agent reached its limit of requests in one turn", 1),
    "refusal": ("error_during_execution", "refusal", "the agent refused to go on", 1),
    "cancelled": ("error_during_execution", "interrupted", "interrupted by the person", 130),
}
"""Of each stop reason: subtype, reason, what it means, exit status."""


class Failed(Exception):
    """The session cannot go on; how the run ends."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a session."""

    prompt: str
    allow: tuple[str, ...]
    """Kinds of tools that it may use."""
    model: str = ""
    session: str = ""
    """The session that it continues; empty: a new one."""


@dataclass(slots=True)
class _Turn:
    """What came of the turn so far."""

    message: str = ""
    calls: dict[str, str] = field(default_factory=dict)
    """The calls that have not ended: their kind by their id."""
    ended: set[str] = field(default_factory=set)
    cancelled: bool = False
    begun: bool = False
    """The agent has said something since the prompt."""


class Client:
    """One agent and its session."""

    def __init__(self, agent: Agent, records: Records, pane: Pane, wanted: Wanted) -> None:
        self._agent = agent
        self._records = records
        self._pane = pane
        self._wanted = wanted
        self._session = ""
        self._replays = False
        self._next = 0
        self._turn = _Turn()
        self._denials: list[dict[str, Any]] = []
        self._cost: float | None = None

    def run(self, inbox: Inbox) -> int:
        """All turns; says the last line, and gives the exit status."""
        try:
            self._open()
            ending = self._prompt(self._wanted.prompt)
            while (waiting := inbox.next()) is not None:
                self._pane.line(f"< {waiting[1]}")
                ending = self._prompt(waiting[1], waiting[0])
        except Failed as failed:
            ending = failed.ending
        self._pane.line(f"{'! ' if ending.is_error else ''}{ending.reason}: {ending.message if ending.is_error else ''}".rstrip(": "))
        self._records.result(ending, Account(counted=False, cost_usd=self._cost, denials=tuple(self._denials)))
        self._agent.no_more()
        return ending.exit_code

    # The session ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        about = self._ask("initialize", protocolVersion=VERSION, clientCapabilities=_OFFERS, clientInfo=_CLIENT)
        if about.get("protocolVersion") != VERSION:
            raise _failed("protocol", f"it speaks version {short(str(about.get('protocolVersion')))} of the protocol, not {VERSION}")
        where = {"cwd": str(Path.cwd()), "mcpServers": []}
        if self._wanted.session:
            if inner(about, "agentCapabilities").get("loadSession") is not True:
                raise _failed("protocol", "it cannot continue a session")
            self._session, self._replays = self._wanted.session, True
            opened = self._ask("session/load", sessionId=self._session, **where)
            self._replays = False
        else:
            opened = self._ask("session/new", **where)
            self._session = text(opened, "sessionId")
        self._records.session = name_of({"id": self._session}, "id") or self._records.session
        model = self._choose(opened)
        self._records.init(model, (), mode="default")
        self._pane.line(
            f"-- {text(inner(about, 'agentInfo'), 'name') or 'the agent'} {text(inner(about, 'agentInfo'), 'version')}".rstrip()
        )

    def _choose(self, opened: Mapping[str, Any]) -> str:
        """The model that the session has then."""
        options = [one for one in several(opened, "configOptions") if one.get("category") == "model"]
        known = text(options[0], "currentValue") if options else text(inner(opened, "models"), "currentModelId")
        if not self._wanted.model or self._wanted.model == known:
            return known
        if options:
            self._ask("session/set_config_option", sessionId=self._session, configId=options[0].get("id"), value=self._wanted.model)
        elif "models" in opened:  # before the options of a session there was this
            self._ask("session/set_model", sessionId=self._session, modelId=self._wanted.model)
        else:
            raise _failed("bad_settings", f"it lets nobody choose a model, and {short(self._wanted.model)} was asked for")
        return self._wanted.model

    def _prompt(self, words: str, sent: int | None = None) -> Ending:
        self._turn = _Turn()
        self._records.message("user", {"role": "user", "content": [{"type": "text", "text": words}]}, sent)
        answer = self._ask("session/prompt", sessionId=self._session, prompt=[{"type": "text", "text": words}])
        message = self._turn.message
        self._flush()
        said = text(answer, "stopReason")
        subtype, reason, meaning, code = _STOPS.get(said, ("error_during_execution", "stop_reason", f"it stopped: {short(said)}", 1))
        return Ending(subtype, reason, (meaning or message)[:MESSAGE_MAX], code)

    # Requests and answers ---------------------------------------------------------------------------------------------------------

    def _ask(self, method: str, **params: Any) -> Mapping[str, Any]:
        """The agent's answer; what it says and asks meanwhile is served. Raises Failed for an error, a signal, and its end."""
        self._next += 1
        number = self._next
        self._agent.tell({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            shape = self._heard(in_turn=method == "session/prompt")
            if "method" in shape:
                self._serve(shape)
            elif shape.get("id") == number:
                if "error" in shape:
                    raise _refused(method, inner(shape, "error"))
                return inner(shape, "result")

    def _heard(self, *, in_turn: bool) -> Mapping[str, Any]:
        """The next message of the agent's; an empty one for what is none."""
        event = self._agent.next()
        if event is None:
            raise _failed("ended", f"the agent ended with exit status {self._agent.ended()} before its turn was over")
        if not isinstance(event, bytes):
            self._signalled(event, in_turn=in_turn)
            return {}
        found = json_value(event)
        if isinstance(found, dict):
            return found
        self._pane.line(f"? {event[:200].decode('utf-8', 'replace')}")  # some programs greet before they speak the protocol
        return {}

    def _signalled(self, number: signal.Signals, *, in_turn: bool) -> None:
        """The first Ctrl-C cancels the turn; another one, or any other signal, ends the run."""
        if number is signal.SIGINT and in_turn and not self._turn.cancelled:
            self._turn.cancelled = True
            self._pane.line("-- interrupted; Ctrl-C once more ends the agent")
            self._agent.tell({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self._session}})
            return
        self._agent.kill()
        raise Failed(Ending("error_during_execution", "terminated", f"stopped by {number.name}", 128 + number))

    def _serve(self, shape: Mapping[str, Any]) -> None:
        """What the agent says (no id) or asks (an id)."""
        method, params = text(shape, "method"), inner(shape, "params")
        if "id" not in shape:
            if method == "session/update" and text(params, "sessionId") == self._session and not self._replays:
                self._update(inner(params, "update"))
            return
        reply: dict[str, Any] = {"error": {"code": _NO_METHOD, "message": "nightcrew offers no such method"}}
        if method == "session/request_permission":
            reply = {"result": {"outcome": self._permission(params)}}
        self._agent.tell({"jsonrpc": "2.0", "id": shape["id"], **reply})

    def _permission(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        call = inner(params, "toolCall")
        if self._turn.cancelled:
            return {"outcome": "cancelled"}
        self._called(call)
        said = {name: value for name, value in call.items() if value is not None}
        known = {"kind": self._turn.calls.get(text(call, "toolCallId")), **said}
        granted, outcome = answer(known, several(params, "options"), self._wanted.allow)
        if not granted:
            self._denied(call, kind(known))
        return outcome

    def _denied(self, call: Mapping[str, Any], name: str) -> None:
        number, title = text(call, "toolCallId"), text(call, "title")
        self._denials.append({"tool_name": name, "tool_use_id": number, "tool_input": call.get("rawInput") or title})
        self._pane.line(f"  ! not allowed: {name} {title}")
        self._records.denied(number)
        self._came_to(number, "this task does not allow it", is_error=True)

    # What it says of its turn ------------------------------------------------------------------------------------------------------

    def _update(self, update: Mapping[str, Any]) -> None:
        if not self._turn.begun:
            self._turn.begun = True
            self._records.state("running")
        match text(update, "sessionUpdate"):
            case "agent_message_chunk":
                piece = text(inner(update, "content"), "text")
                self._turn.message = (self._turn.message + piece)[:TEXT_MAX]
                self._pane.text(piece)
            case "tool_call" | "tool_call_update":
                self._called(update)
                self._went_on(update)
            case "usage_update" if text(inner(update, "cost"), "currency") == "USD":
                self._cost = amount(inner(update, "cost"), "amount")

    def _flush(self) -> None:
        """What it said before a call, or at the end, is one message."""
        if self._turn.message:
            content = [{"type": "text", "text": self._turn.message}]
            self._records.message("assistant", {"role": "assistant", "content": content})
            self._turn.message = ""

    def _called(self, update: Mapping[str, Any]) -> None:
        """The first time that a call is spoken of: some agents ask for it before they tell of it."""
        call, name = text(update, "toolCallId"), kind(update)
        if call in self._turn.calls or call in self._turn.ended:
            return
        self._flush()
        self._turn.calls[call] = name
        given = update.get("rawInput") or {"query": text(update, "title")}
        content = [{"type": "tool_use", "id": call, "name": name, "input": given}]
        self._records.message("assistant", {"role": "assistant", "content": content})
        self._pane.line(f"> {name} {text(update, 'title')}")

    def _went_on(self, update: Mapping[str, Any]) -> None:
        call, status = text(update, "toolCallId"), text(update, "status")
        if status not in ("completed", "failed") or call not in self._turn.calls:
            return
        name, said = self._turn.calls[call], _output(update)
        self._came_to(call, said, is_error=status == "failed")
        self._pane.outcome(name, said, is_error=status == "failed")

    def _came_to(self, call: str, said: str, *, is_error: bool) -> None:
        self._turn.calls.pop(call, None)
        self._turn.ended.add(call)
        result = {"type": "tool_result", "tool_use_id": call, "content": said, "is_error": is_error}
        self._records.message("user", {"role": "user", "content": [result]})


def _output(update: Mapping[str, Any]) -> str:
    """What came of a call, in words: its texts, and the files that it changed."""
    parts = []
    for one in several(update, "content"):
        parts += [text(inner(one, "content"), "text")] if text(one, "type") == "content" else []
        parts += [f"changed {text(one, 'path')}"] if text(one, "type") == "diff" else []
    return "\n".join(filter(None, parts))[:TEXT_MAX]


def _refused(method: str, error: Mapping[str, Any]) -> Failed:
    details = error.get("data")
    more = details if isinstance(details, str) else text(inner(error, "data"), "details") or text(inner(error, "data"), "message")
    why = short(": ".join(filter(None, (text(error, "message"), more))))
    if error.get("code") == _LOG_IN:
        return _failed("log_in", f"it is not logged in: {why}")
    return _failed("api_error", f"{method}: {why}")


def _failed(reason: str, message: str) -> Failed:
    return Failed(Ending("error_during_execution", reason, message))


# Streaming
# ---------
# Claude Code with `--input-format stream-json`: messages of a user in, its `stream-json` out, which is passed on as it is.
#
# One of these runs beside each agent, so it imports little: our modules for JSON and times would double what it takes.


def run(agent: Agent, prompt: str, inbox: Inbox, handle: int) -> int:
    """Give it the prompt, and each text that waits as a turn ends; its exit status. Signals are its own: it is in our process group."""
    agent.tell(_message(prompt))
    open_ = True
    while (event := agent.next()) is not None:
        if not isinstance(event, bytes):
            continue
        shape = _shape(event)
        if NUMBER in shape:
            continue  # only we say that
        whole(handle, event)
        if shape.get("type") == "result" and open_:
            open_ = _next_turn(agent, inbox, handle)
    return agent.ended()


def _next_turn(agent: Agent, inbox: Inbox, handle: int) -> bool:
    """Whether there is one; else it is told that nothing more comes. What it has in the background may still bring further results."""
    text = inbox.next()
    if text is None:
        agent.no_more()
        return False
    # First a line that is short whatever the text: a reader may leave out long ones.
    whole(handle, json.dumps({"type": "system", "subtype": "input", NUMBER: text[0]}).encode("ascii") + b"\n")
    line = {**_message(text[1]), NUMBER: text[0], "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    whole(handle, json.dumps(line).encode("ascii") + b"\n")
    agent.tell(_message(text[1]))
    return True


def _shape(line: bytes) -> dict[str, Any]:
    """The object in a line that is a result, or that says to be one of ours; others are not looked into."""
    if b'"result"' not in line and NUMBER.encode() not in line:
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _message(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


# The process
# -----------


CRASHES = (4, 6, 7, 8, 9, 11)
"""ILL, ABRT, BUS, FPE, KILL, SEGV, as `supervisor.kernel.retry` has them; that is not imported here, beside each agent."""

OPTIONS = ("--prompt-file", "--inbox", "--allow", "--model", "--resume")


def main(words: list[str], line_out: int) -> int:
    """Run one agent to its end."""
    try:
        protocol, options, argv = _read(words)
        prompt = Path(options.get("--prompt-file", "")).read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        return _say(f"bad options: {error}", 2)
    inbox = Inbox(options.get("--inbox", ""))
    if unknown := [name for name in filter(None, options.get("--allow", "").split(",")) if not _is_kind(name)]:
        return _say(f"bad options: allow: {unknown[0]} is no kind of tool of an ACP agent", 2)
    try:
        agent = Agent(argv, own_group=protocol == "acp")
    except OSError as error:
        return _say(f"{argv[0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126)
    if protocol == "claude":
        return run(agent, prompt, inbox, line_out)
    return _acp(agent, prompt, inbox, options, line_out)


def _acp(agent: Agent, prompt: str, inbox: Inbox, options: dict[str, str], line_out: int) -> int:
    allow = tuple(filter(None, options.get("--allow", "").split(",")))
    wanted = Wanted(prompt, allow, options.get("--model", ""), options.get("--resume", ""))
    return Client(agent, Records(line_out, os.environ.get("NIGHTCREW_OUT")), Pane(sys.stderr), wanted).run(inbox)


def _is_kind(name: str) -> bool:
    return name in KINDS


def _read(words: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """The protocol, the options, and the agent's command. Raises ValueError."""
    if not words or words[0] not in ("claude", "acp") or "--" not in words:
        raise ValueError("want claude or acp, options, -- and a command")
    end = words.index("--")
    given = dict(zip(words[1:end:2], words[2:end:2], strict=True))
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise ValueError(f"{unknown[0]} is not an option")
    if not words[end + 1 :]:
        raise ValueError("no command")
    return words[0], given, words[end + 1 :]


def _say(what: str, status: int) -> int:
    print(f"nightcrew: {what}", file=sys.stderr, flush=True)
    return status


def _die_of(number: int) -> None:
    """End as the agent ended, by a signal that nobody at its terminal sends: who looks at us must see that it crashed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the agent's own core says more
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    handle = printing.claim()  # whatever prints from here on prints on stderr
    status = main(sys.argv[1:], handle)
    if status - 128 in CRASHES:
        _die_of(status - 128)
    sys.exit(status)
