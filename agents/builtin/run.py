"""One run of the built-in agent: signals, the person at the terminal, and the one last line, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from agents.builtin import prompt, settings
from agents.builtin.agent import Agent, Doors
from agents.builtin.api import Api
from agents.builtin.models import find
from agents.builtin.pane import Pane
from agents.builtin.records import Account, Ending, Records, read_back
from agents.builtin.settings import Settings
from agents.builtin.terminal import Terminal
from agents.builtin.tools import Tools
from agents.builtin.tools.given import Place
from agents.inbox import Inbox
from supervisor.core.errors import ConfigError, NightcrewError, UsageError
from supervisor.host.clock import SystemClock

T = TypeVar("T")
_LEFT = Ending("error_during_execution", "interrupted", "interrupted by the person", 130)
_QUESTION = "-- interrupted. Say what to do, press Enter to go on, or Ctrl-C or Ctrl-D to end: "
_NEXT = "-- what next? (Ctrl-D ends) "


def main(records: Records, environ: Mapping[str, str]) -> int:
    """Run to the end, say the last line, and give the exit code."""
    try:
        told = settings.read(environ, sys.argv[1:])
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
        look = asyncio.create_task(asyncio.to_thread(prompt.surroundings, self._root, datetime.now(UTC)))
        await asyncio.sleep(0)  # git works from here on, while we get ready
        api = Api(self._told, SystemClock())
        agent = Agent(Doors(api, self._tools, self._records, self._pane), self._model, self._told)
        agent.recall(self._earlier)
        self._listen()
        self._records.init(self._model.name, prompt.NAMES)
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
