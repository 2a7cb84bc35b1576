"""The loop of the built-in agent: a request, the tool calls of its answer, the next request."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from agents import conversation
from agents.conversation import (
    CACHED,
    LEAST_TOKENS,
    WRAP_UP_TOKENS,
    Conversation,
    Model,
    Settings,
    Spent,
    find,
    output_room,
    reached,
)
from agents.model_api import Api, Failure, Reply
from agents.printing import Account, Ending, Pane, Records, Terminal, read_back, usage_shape
from agents.typing_rules import Inbox
from nightcrew.plugins.builtin.tools import Place, Result, Tools
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import SystemClock
from supervisor.kernel.errors import ConfigError, NightcrewError, UsageError
from supervisor.kernel.format import duration

# Agent
# -----
# The loop: a request, the tool calls that its answer asks for, the next request, until the model is done or something ends it.


OUTPUT_TOKENS = 16_000
"""`max_tokens` of a request, but at most a quarter of the model's context."""
MARGIN_TOKENS = 8_000
"""Of the context, for the system prompt and the tools, but at most an eighth."""
WRAP_UP_BYTES = 1_000
"""For the message that asks for the last words, and for how the client library writes the same request."""
CUT_MAX = 3
"""Answers in a row that `max_tokens` may cut off."""
_BUDGETS = {
    "steps": Ending("error_max_turns", "max_turns", ""),
    "tokens": Ending("error_max_tokens", "max_tokens", ""),
    "cost": Ending("error_max_budget_usd", "max_budget_usd", ""),
}


@dataclass(frozen=True, slots=True)
class Doors:
    """What an agent acts through."""

    api: Api
    tools: Tools
    records: Records
    pane: Pane


class Agent:
    """One conversation with a model. `work` may be cancelled; after `interrupted` it can be called again."""

    def __init__(self, doors: Doors, model: Model, told: Settings) -> None:
        self._doors = doors
        self._model = model
        self._told = told
        self._context = told.context
        """Of an engine's slot: a request whose input and `max_tokens` are more together is refused. 0: nobody says."""
        context = told.context or model.context
        self._max_tokens = min(OUTPUT_TOKENS, context // 4)
        if self._context:
            self._conversation = Conversation(context - self._max_tokens, len(json.dumps([conversation.SYSTEM, conversation.TOOLS])))
        else:
            self._conversation = Conversation(context - self._max_tokens - min(MARGIN_TOKENS, context // 8))
        self._results: dict[str, dict[str, Any]] = {}
        self._spent = self._newest = Spent()
        self._asking, self._asked = 0.0, False
        """When the newest request was sent (monotonic seconds), and whether its answer is still to be counted."""
        self.account = Account(model.name, cost_usd=0.0 if model.has_price else None)

    def recall(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """What was said before, by this agent in another process. Tool calls that were under way then were interrupted."""
        for message in messages:
            self._conversation.add(message["role"], message["content"])
        self.interrupted()

    def tell(self, *texts: str, sent: int | None = None) -> None:
        """What the person, or the task, says; `sent` is the number of a text that a person sent meanwhile."""
        self._add_user([{"type": "text", "text": text} for text in texts], sent)

    async def work(self) -> Ending:
        """Go on until the model ends its turn, or cannot."""
        cut = 0
        while True:
            self._say_shortened(self._conversation.fit())
            while min(room := self._room(), self._fitting()) < LEAST_TOKENS and (saved := self._conversation.shrink()):
                self._say_shortened(saved)
            last = reached(self._told.budget, self._spent, self._newest)
            if not last and room < min(WRAP_UP_TOKENS, self._max_tokens):
                last = "tokens" if self._told.budget.tokens else "cost"
            most = max(LEAST_TOKENS, min(room, self._fitting()))
            answer = await self._ask(last, most)
            if isinstance(answer, Failure):
                if answer.too_long and (saved := self._conversation.shrink()):
                    self._say_shortened(saved)
                    continue
                if answer.too_long and self._context and most > LEAST_TOKENS:
                    self._max_tokens = most // 2
                    continue
                return Ending("error_during_execution", "api_error", answer.message, api_status=answer.status)
            calls = [block for block in answer.content if block["type"] == "tool_use"]
            cut = cut + 1 if answer.stop_reason == "max_tokens" else 0
            if last:
                return replace(_BUDGETS[last], message=f"the budget of {last} is spent. {_text(answer)}".strip())
            if cut > CUT_MAX:
                return Ending("error_during_execution", "max_output_tokens", f"{cut} answers in a row were too long")
            ending = await self._after(answer, calls)
            if ending is not None:
                return ending

    async def _after(self, answer: Reply, calls: list[dict[str, Any]]) -> Ending | None:
        """What an answer's stop reason asks for; None: the next request."""
        match answer.stop_reason:
            case "tool_use" | "end_turn" | "" if calls:  # servers other than Anthropic's do not always say which
                await self._use_tools(calls)
            case "end_turn" | "stop_sequence":
                return Ending("success", "completed", _text(answer), 0)
            case "pause_turn":
                self._doors.pane.line("the provider paused the turn; asking it to go on")
            case "max_tokens":
                self._doors.pane.line(f"the answer was cut off at {self._max_tokens} tokens; asking for smaller steps")
                self.tell(conversation.GO_ON)
            case "model_context_window_exceeded" if saved := self._conversation.shrink():
                self._say_shortened(saved)
                self.tell(conversation.GO_ON)
            case "refusal":
                return Ending("error_during_execution", "refusal", f"the model refused. {_text(answer)}".strip())
            case reason:
                return Ending("error_during_execution", "stop_reason", f"the model stopped with {reason or 'no reason'!r}")
        return None

    def interrupted(self) -> None:
        """To be called once `work` was cancelled: count what the request took, and give open tool calls what they came to."""
        if self._asked:
            self._count(self._doors.api.draft.usage)
        calls = self._conversation.unanswered()
        if calls:
            self._answer(calls)

    # Requests ---------------------------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """How long the next answer may be. No text has more tokens than bytes, and a cache that is written for an hour costs 1.6 times one
        that is written for minutes."""
        budget = self._told.budget
        if not (budget.tokens or budget.cost_usd):
            return self._max_tokens
        size = len(json.dumps(self._body(self._max_tokens, without_tools=False))) + WRAP_UP_BYTES
        dearest, output = self._model.cost(Usage(cache_write=size)) or 0.0, self._model.cost(Usage(output=1000)) or 0.0
        room = output_room(budget, self._spent, size, 1.6 * dearest, output / 1000)
        return self._max_tokens if room is None else room

    def _fitting(self) -> int:
        """How long the next answer may be so that it fits into the context beside its input."""
        return min(self._max_tokens, self._context - int(1.05 * self._conversation.input_tokens)) if self._context else self._max_tokens

    async def _ask(self, last: str, most: int) -> Reply | Failure:
        if last:
            self.tell(conversation.WRAP_UP.format(what={"steps": "step", "tokens": "token", "cost": "cost"}[last]))
            self._doors.pane.line(f"the budget of {last} is spent: one last message")
        self._asking = time.monotonic()
        self._asked = True
        answer = await self._doors.api.ask(self._body(most, without_tools=bool(last)), self._doors.pane.text, self._retry)
        self._count(answer.usage)
        if isinstance(answer, Reply):
            self._keep(answer)
        return answer

    def _body(self, most: int, *, without_tools: bool) -> dict[str, Any]:
        """One request. System prompt and tools are the same bytes always; the breakpoint behind them serves every run."""
        shape = {
            "model": self._model.name,
            "max_tokens": most,
            "system": [{"type": "text", "text": conversation.SYSTEM, "cache_control": CACHED}],
            "tools": conversation.TOOLS,
            "messages": self._conversation.for_request(),
        }
        return shape | ({"tool_choice": {"type": "none"}} if without_tools else {})

    def _keep(self, answer: Reply) -> None:
        """Into the conversation and the records. Of an answer that was cut off, tool calls are left out: they may be incomplete."""
        cut = answer.stop_reason in ("max_tokens", "model_context_window_exceeded", "refusal")
        kept = [block for block in answer.content if not (cut and block["type"] == "tool_use")]
        answer = replace(answer, content=kept or [{"type": "text", "text": "(nothing)"}])
        self._conversation.add("assistant", answer.content)
        self._conversation.learn(answer.usage.limited_input + answer.usage.cache_read)
        self._doors.records.message("assistant", answer.message(usage_shape(answer.usage)))

    def _count(self, usage: Usage) -> None:
        """A request is over, whatever came of it."""
        self._newest = Spent(1, usage.limited_input + usage.output, self._model.cost(usage) or 0.0)
        self._spent += self._newest
        self._pay(usage)
        passed, self._asked = time.monotonic() - self._asking, False
        self.account = replace(self.account, steps=self.account.steps + 1, api_s=self.account.api_s + passed)

    def _pay(self, usage: Usage) -> None:
        before, cost = self.account, self._model.cost(usage)
        total = Usage(*(getattr(before.usage, kind) + getattr(usage, kind) for kind in Usage.__dataclass_fields__))
        paid = None if cost is None or before.cost_usd is None else before.cost_usd + cost
        self.account = replace(before, usage=total, cost_usd=paid)

    def _retry(self, failure: Failure, wait_s: float) -> None:
        """It is sent again. What the provider had counted by then is paid for all the same."""
        self._spent += Spent(0, failure.usage.limited_input + failure.usage.output, self._model.cost(failure.usage) or 0.0)
        self._pay(failure.usage)
        self._doors.pane.line(f"! {failure.message}; again in {duration(wait_s)}")
        self._doors.records.retry(failure.message, wait_s)

    # Tools ------------------------------------------------------------------------------------------------------------------------

    async def _use_tools(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            self._doors.pane.call(call["name"], call["input"] if isinstance(call["input"], dict) else {})
        await self._doors.tools.run([call for call in calls if not self._denied(call)], self._seen)
        self._answer(calls)

    def _denied(self, call: dict[str, Any]) -> bool:
        """Whether the task does not allow this tool. The model is told, and so is who reads the result."""
        if call["name"] in self._told.allow or call["name"] not in conversation.NAMES:
            return False
        self._seen(call, Result(f"this task does not allow {call['name']}, only {', '.join(self._told.allow)}", is_error=True))
        denial = {"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]}
        self.account = replace(self.account, denials=(*self.account.denials, denial))
        return True

    def _seen(self, call: Mapping[str, Any], result: Result) -> None:
        self._results[call["id"]] = result.block(call)
        self._doors.pane.outcome(call["name"], result.text, is_error=result.is_error)

    def _answer(self, calls: list[dict[str, Any]]) -> None:
        """The results of `calls`, in their order; one that has none was interrupted."""
        stopped = Result("interrupted; it did not finish", is_error=True)
        self._add_user([self._results.pop(call["id"]) if call["id"] in self._results else stopped.block(call) for call in calls])

    def _add_user(self, content: list[dict[str, Any]], sent: int | None = None) -> None:
        self._conversation.add("user", content)
        self._doors.records.message("user", {"role": "user", "content": content}, sent)

    def _say_shortened(self, saved: int) -> None:
        if saved:
            self._doors.pane.line(f"the conversation had grown long: {saved:,} bytes of its older part were left out")


def _text(answer: Reply) -> str:
    return "\n".join(block["text"] for block in answer.content if block["type"] == "text")


# Run
# ---
# One run of the built-in agent: signals, the person at the terminal, and the one last line, however it ends.


T = TypeVar("T")
_LEFT = Ending("error_during_execution", "interrupted", "interrupted by the person", 130)
_QUESTION = "-- interrupted. Say what to do, press Enter to go on, or Ctrl-C or Ctrl-D to end: "
_NEXT = "-- what next? (Ctrl-D ends) "


def main(records: Records, environ: Mapping[str, str]) -> int:
    """Run to the end, say the last line, and give the exit code."""
    try:
        told = conversation.read(environ, sys.argv[1:])
        run = Run(records, told, environ)
    except NightcrewError as error:
        print(error.line(), file=sys.stderr, flush=True)
        records.result(Ending("error_during_execution", "bad_settings", error.line(), error.exit_code), Account())
        return error.exit_code
    return asyncio.run(run.main())


def _nothing_runs() -> None:
    """What an interrupt ends then."""


def _earlier(transcript: str) -> list[dict[str, Any]]:
    """The messages of the conversation that goes on."""
    try:
        found = read_back(Path(transcript)) if transcript else []
        if transcript and not found:
            raise ValueError("it holds no message")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("cannot go on with the conversation", on=transcript, why=str(error) or type(error).__name__) from None
    return found


class Run:
    """Everything that one run has. Raises UsageError for a cost limit on a model of unknown price, ConfigError for a conversation
    that cannot be read."""

    def __init__(self, records: Records, told: Settings, environ: Mapping[str, str]) -> None:
        self._records = records
        self._told = told
        self._pane = Pane(sys.stderr)
        self._inbox = Inbox(told.inbox)
        self._terminal = Terminal()
        self._model = find(told.model, datetime.now(UTC))
        if told.budget.cost_usd and not self._model.has_price:
            raise UsageError("a limit of cost cannot be held", on=told.model, why="nobody knows its price", hint="limit its tokens instead")
        root = Path(os.path.realpath(Path.cwd()))
        others = [Path(os.path.realpath(environ[name])) for name in ("NIGHTCREW_OUT", "TMPDIR") if environ.get(name)]
        records.session = told.session or records.session
        self._earlier = _earlier(told.resume)
        self._tools = Tools(Place(root, tuple(others)))
        self._root = root
        self._interrupt: Callable[[], object] = _nothing_runs
        self._stopped = 0
        """The signal that ends the process."""

    async def main(self) -> int:
        """Until the last line is written."""
        look = asyncio.create_task(asyncio.to_thread(conversation.surroundings, self._root, datetime.now(UTC)))
        await asyncio.sleep(0)  # git works from here on, while we get ready
        api = Api(self._told, SystemClock())
        agent = Agent(Doors(api, self._tools, self._records, self._pane), self._model, self._told)
        agent.recall(self._earlier)
        self._listen()
        self._records.init(self._model.name, conversation.NAMES)
        ending = await self._converse(agent, look)
        if self._stopped:
            words = f"stopped by {signal.Signals(self._stopped).name}"
            ending = Ending("error_during_execution", "terminated", words, 128 + self._stopped)
        self._pane.line(f"{'! ' if ending.is_error else ''}{ending.reason}: {ending.message if ending.is_error else ''}".rstrip(": "))
        self._records.result(ending, agent.account)
        await api.close()
        self._tools.close()
        return ending.exit_code

    # Signals ----------------------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: self._interrupt())
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        self._stopped = self._stopped or number
        self._interrupt()

    # The conversation -------------------------------------------------------------------------------------------------------------

    async def _converse(self, agent: Agent, surroundings: asyncio.Task[str]) -> Ending:
        """Work, and where somebody is there, ask and work again."""
        first = self._told.prompt or await self._asked(_NEXT)
        if not first:
            return _LEFT
        agent.tell(first, await surroundings)
        while True:
            ending = await self._cancellable(agent.work())
            if ending is None:
                agent.interrupted()
            if ending is not None and not self._stopped and (waiting := self._inbox.next()) is not None:
                self._pane.line(f"< {waiting[1]}")
                agent.tell(waiting[1], sent=waiting[0])
                continue
            if self._stopped or (ending is not None and not self._terminal.attended):
                return ending or _LEFT
            if ending is not None and ending.is_error:
                self._pane.line(f"! {ending.message}")
            words = await self._asked(_NEXT if ending is not None else _QUESTION)
            if words is None:
                return ending or _LEFT
            agent.tell(words or "Go on.")

    async def _asked(self, question: str) -> str | None:
        """What the person types; None when nobody is there, or wants no more."""
        if not self._terminal or self._stopped:
            return None
        self._records.state("idle")
        self._pane.line(question)
        words = await self._cancellable(self._terminal.line())
        self._records.state("running")
        return words

    async def _cancellable(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it; None when a signal came first."""
        if self._stopped:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._interrupt = task.cancel
        try:
            return await task
        except asyncio.CancelledError:
            return None
        finally:
            self._interrupt = _nothing_runs
