"""The first page: the crew in its groups, as `nightcrew top` has it, and what a person does there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from aiohttp import web

from supervisor.core.errors import UsageError
from supervisor.faces.crew import LETTERS
from supervisor.faces.doors import Acts, Watched
from supervisor.faces.web import acting, wire
from supervisor.faces.web.feature import Feature, Page, Route, State
from supervisor.faces.web.guard import Access
from supervisor.faces.web.sessions import Who

REST_S, TICK_S = 1.0, 0.05
"""Seconds without a look at most, and between two looks whether anything was committed."""


class _All(Collection[str]):
    """Every task: nobody knows what browsers have in sight."""

    def __contains__(self, task: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class CrewTopic:
    """The crew, at once when something was committed."""

    pause_s = 0.1

    def __init__(self, reading: Watched) -> None:
        self._reading = reading
        self._looked = False

    def look(self) -> State:
        """As `Topic.look`."""
        until = time.monotonic() + REST_S
        while self._looked and time.monotonic() < until and not self._reading.stirred():
            time.sleep(TICK_S)
        self._looked = True
        return wire.crew(self._reading.crew(_All()))

    def close(self) -> None:
        """As `Topic.close`."""
        self._reading.close()


class CrewPage:
    """The page, and what others have to say when something was changed."""

    def __init__(self, reading: Callable[[], Watched], acts: Acts) -> None:
        """`reading` makes one for a topic, which belongs to that."""
        self._reading, self._acts = reading, acts
        self._now: Watched | None = None

    def acted(self) -> None:
        """Look at everything anew: a person just changed something."""
        if self._now is not None:
            self._now.forget()

    def _topic(self, rest: str) -> CrewTopic:
        if rest:
            raise UsageError("the topic crew has no parts", on=rest)
        self._now = self._reading()
        return CrewTopic(self._now)

    def feature(self) -> Feature:
        """For the application."""
        return Feature(
            pages=(Page("/", "", "crew.js", "Crew"),),
            routes=(Route("GET", "/data/letters", Access.DATA, _letters), *acting.routes(self._acts, self.acted)),
            topics={"crew": self._topic},
        )


async def _letters(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
    return web.json_response(LETTERS)
