"""A client of the Agent Client Protocol, version 1: it opens a session, gives it prompts, and prints what comes of them.

What it prints on standard output has the shape of Claude Code's `stream-json`, as the built-in agent's; a person reads the pane. The agent
gets no file system and no terminal of ours: it is in the same sandbox, and works with its own.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.builtin.pane import Pane
from agents.builtin.records import Account, Ending, Records
from agents.inbox import Inbox
from agents.protocols.lines import amount, inner, name_of, several, short, text
from agents.protocols.outcome import MESSAGE_MAX, TEXT_MAX
from agents.turns import permissions
from agents.turns.agent import Agent
from supervisor.core.result import json_value

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
        granted, outcome = permissions.answer(known, several(params, "options"), self._wanted.allow)
        if not granted:
            self._denied(call, permissions.kind(known))
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
        call, name = text(update, "toolCallId"), permissions.kind(update)
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
