"""The page of one agent: its live screen, its log, transcript, history and resources as lines, its diff with comments by line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from aiohttp import web

from supervisor.core.errors import NightcrewError, UsageError, one_line
from supervisor.faces import status
from supervisor.faces.doors import Looking, Reviewing, Text
from supervisor.faces.doors import Page as Shown
from supervisor.faces.web import acting, diff, wire
from supervisor.faces.web.acting import task_id
from supervisor.faces.web.feature import Feature, Page, Route, State
from supervisor.faces.web.guard import Access
from supervisor.faces.web.sessions import Who
from supervisor.ledger.queries import TaskView

FAST_S = 0.2
"""Between two looks at what changes: nobody reads faster."""
SLOW_S = {Shown.SCREEN: 0.5, Shown.DIFF: 3.0, Shown.LOG: 1.0, Shown.TALK: 1.0, Shown.HISTORY: 2.0, Shown.USE: 2.0}
"""The same when it does not change."""
SHIFTS = 100
"""Lines at the top of a log that may go at once and yet be known as gone."""
Look = Callable[[], Looking]


class PageTopic:
    """Lines of one task. They have numbers that stay when others above them go, so that what is new is all that is sent."""

    def __init__(self, looking: Looking, task: str, page: Shown) -> None:
        self._looking, self._task, self._page = looking, task, page
        self._mark, self._first, self._lines = "", 0, list[str]()
        self._of = ""
        self.pause_s = FAST_S

    def look(self) -> State | None:
        """As `Topic.look`."""
        try:
            view = self._looking.view(self._task)
        except NightcrewError as error:
            return self._shape(Text((one_line(error.line()),)))
        if (of := f"{view.epoch} {view.state}") != self._of:
            self._of, self._mark = of, ""
        text = self._looking.page(view, self._page, self._mark)
        self.pause_s = SLOW_S[self._page] if text is None else FAST_S
        if text is None:
            return None
        self._mark = text.mark
        return self._shape(text)

    def _shape(self, text: Text) -> State:
        lines = list(text.lines)
        self._first += _gone(self._lines, lines)
        self._lines = lines
        said: dict[str, Any] = {f"l:{self._first + at}": _spans(line) for at, line in enumerate(lines)}
        said["lines"] = {"first": self._first, "count": len(lines), "ends": text.ends}
        return said

    def close(self) -> None:
        """As `Topic.close`."""


def _gone(before: Sequence[str], lines: Sequence[str]) -> int:
    """How many of the lines of before are no longer at the top. The last one may have become longer."""
    kept = before[:-1]
    for at in range(min(len(before), SHIFTS)):
        if kept[at:] == lines[: len(kept) - at]:
            return at
    return 0


@lru_cache(maxsize=8192)
def _spans(line: str) -> list[wire.Span]:
    return wire.lines((line,))[0]


class DiffTopic:
    """What a task changed, file by file."""

    pause_s = SLOW_S[Shown.DIFF]

    def __init__(self, looking: Looking, task: str) -> None:
        self._looking, self._task = looking, task
        self._mark = ""

    def look(self) -> State | None:
        """As `Topic.look`."""
        try:
            seen = self._looking.result(self._looking.view(self._task), self._mark)
        except NightcrewError as error:
            self._mark = ""
            return {"order": [], "why": one_line(error.line())}
        if seen is None:
            return None
        self._mark = seen[1]
        return diff.shape(seen[0])

    def close(self) -> None:
        """As `Topic.close`."""


def feature(looking: Look, reviewing: Reviewing, acted: Callable[[], None]) -> Feature:
    """`looking` makes one for each topic, which belongs to its thread."""

    def lines(rest: str) -> PageTopic:
        name, _, task = rest.partition(":")
        if name not in set(Shown) - {Shown.DIFF}:
            raise UsageError("no such page", on=name)
        return PageTopic(looking(), task_id(task), Shown(name))

    return Feature(
        pages=(Page("/agent/{task:.+}", "Agent", "agent.js"),),
        routes=(Route("GET", "/data/task/{task:.+}", Access.DATA, _facts(looking)), *_acts(reviewing, acted)),
        topics={"page": lines, "diff": lambda rest: DiffTopic(looking(), task_id(rest))},
    )


def _acts(reviewing: Reviewing, acted: Callable[[], None]) -> Sequence[Route]:
    return (
        acting.act(
            "/act/comment",
            lambda body: reviewing.comment(body.task(), body.text("tip"), body.text("path"), body.number("line"), body.text("text")),
            acted,
        ),
        acting.act("/act/drop-comment", lambda body: reviewing.drop(body.task(), body.number("number")), acted),
        acting.act("/act/send-comments", lambda body: reviewing.send(body.task(), body.text("text")), acted),
        acting.act(
            "/act/verdict",
            lambda body: reviewing.decide(body.task(), body.text("tip"), body.text("verdict"), body.text("text")),
            acted,
        ),
    )


def _facts(looking: Look) -> Callable[[web.Request, Who | None], Any]:
    async def facts(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        task = task_id(request.match_info["task"])
        return web.json_response(_shape(await asyncio.to_thread(lambda: looking().view(task))))

    return facts


def _shape(view: TaskView) -> dict[str, Any]:
    """Of a task that may be too old for the crew's groups."""
    return {
        "id": view.id,
        "name": one_line(view.name),
        "title": one_line(view.title),
        "kind": view.kind,
        "state": view.state,
        "why": one_line(status.why(view)),
        "branch": view.branch or "",
        "epoch": view.epoch,
        "since": view.started or view.created,
        "ended": (view.ended or view.changed) if view.final else None,
    }
