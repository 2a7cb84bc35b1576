"""The pages of the crew and of one agent, and what a person does there."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aiohttp import web

from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.kernel.gate_files import FileDiff
from supervisor.results import reviews
from supervisor.results.reviews import Review
from supervisor.results.verdicts import Comment, named
from supervisor.store.queries import TaskView
from supervisor.views import diff_lines, status
from supervisor.views.crew import Page as Shown
from supervisor.views.crew import Text, task_id
from supervisor.views.web import events
from supervisor.views.web.drawing import Element, el, span
from supervisor.views.web.events import Feature, Handler, Page, Route, State
from supervisor.views.web.sessions import Access, Who

if TYPE_CHECKING:
    from supervisor.client.crew import Lookout, ReviewActs, VerbActs

# Acting
# ------
# What a person does on a page: each act is what the verb of the same name does.


THREADS = 8
"""Acts at one time: a text that is typed takes until its agent has taken it."""
Act = Callable[..., str]
"""Does it, and says in one sentence what came of it. Its keyword-only parameters are the request (`kernel/codec.py`). Runs in a thread."""


def routes(acts: VerbActs, acted: Callable[[], None]) -> Sequence[Route]:
    """One route a verb; `acted` is called after each."""
    verbs: Mapping[str, Act] = {
        "send": acts.send,
        "answer": acts.answer,
        "hold": acts.hold,
        "kill": acts.kill,
        "retry": acts.retry,
        "take": acts.take,
        "go-on": acts.go_on,
        "start": acts.start_offered,
    }
    asked = [
        _answer("/data/begin", lambda _: {"kinds": list(acts.kinds()), "repositories": list(acts.repositories())}),
        _answer("/data/merge", lambda query: {"question": acts.merge_question(task_id(query.get("task", "")))}),
    ]
    return [*asked, *(act(f"/act/{verb}", do, acted) for verb, do in verbs.items())]


def _answer(path: str, ask: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> Route:
    """A route that reads; `ask` is given the query, and runs in a thread."""

    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.json_response(await asyncio.get_running_loop().run_in_executor(_POOL, ask, request.query))

    return Route("GET", path, Access.DATA, handle)


def act(path: str, do: Act, acted: Callable[[], None]) -> Route:
    """A route that acts. The body is checked before `do` is called; the answer is `{"said": ...}`."""
    return Route("POST", path, Access.ACT, _handler(do, acted))


def _handler(do: Act, acted: Callable[[], None]) -> Handler:
    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        given = _read(await request.read(), do)
        try:
            said = await asyncio.get_running_loop().run_in_executor(_POOL, functools.partial(do, **given))
        finally:
            acted()
        return web.json_response({"said": said})

    return handle


def _read(data: bytes, do: Act) -> dict[str, Any]:
    try:
        return codec.arguments(do, json.loads(data))
    except codec.Mismatch as error:
        raise UsageError(str(error), on=".".join(map(str, error.where))) from error
    except (ValueError, RecursionError) as error:
        raise UsageError("not JSON") from error


_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="act")


# Crew page
# ---------
# The first page: the crew in its groups, as `nightcrew top` has it, and what a person does there.


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

    def __init__(self, reading: Lookout) -> None:
        self._reading = reading
        self._looked = False

    def look(self) -> State:
        """As `Topic.look`."""
        until = time.monotonic() + REST_S
        while self._looked and time.monotonic() < until and not self._reading.stirred():
            time.sleep(TICK_S)
        self._looked = True
        return events.crew(self._reading.crew(_All()))

    def close(self) -> None:
        """As `Topic.close`."""
        self._reading.close()


class CrewPage:
    """The page, and what others have to say when something was changed."""

    def __init__(self, reading: Callable[[], Lookout], acts: VerbActs) -> None:
        """`reading` makes one for a topic, which belongs to that."""
        self._reading, self._acts = reading, acts
        self._now: Lookout | None = None

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
            routes=routes(self._acts, self.acted),
            topics={"crew": self._topic},
        )


# Diff
# ----
# A result as JSON for the page of its diff: what speaks against it, one line a file, the lines with their tokens. Pure.


LINES_MAX = 5000
"""Lines of all files together that a browser is given."""


def shape(found: Review) -> dict[str, Any]:
    """By key: `about`, `order`, and one for each file, so that what one more commit changed is what is sent."""
    said: dict[str, Any] = {"about": _about(found)}
    left, order = LINES_MAX, list[str]()
    for one in found.diffs:
        name = f"file:{named(one.path)}"
        said[name] = made = _file(found, one, left)
        left -= len(made["lines"])
        order.append(name)
    said["order"] = order
    return said


def _about(found: Review) -> dict[str, Any]:
    head = list(reviews.head(found))[1:]
    waiting = sum(one.sent is None for one in found.comments)
    return {
        "tip": found.tip,
        "head": [el("li", text, class_=meant) for text, meant in head if not text.startswith("comment ")],
        "waiting": many(waiting, "comment") if waiting else "",
        "final": found.view.final,
    }


def _file(found: Review, one: FileDiff, left: int) -> dict[str, Any]:
    """`head` and `tail` around the table of `lines`: elements, or a line with its number in the older and the newer file, its sign and its
    spans; `stat` is its line in the list of all files."""
    shown, note = one_line(one.path), "binary" if one.binary else "too large to be shown whole" if one.cut else one.what
    flags = [one_line(flag.why) for flag in found.flags if flag.path == one.path and flag.weakens]
    beside: dict[int, list[Element]] = {}
    for said in found.comments:
        if said.path == named(one.path) and said.tip == found.tip:
            beside.setdefault(said.last, []).append(_comment(said))
    lines = list(_lines(one, left))
    count = [span("plus", f"+{one.plus}"), span("minus", f"-{one.minus}"), span("muted", note)]
    weak = span("minus", "! may weaken its gate") if flags else None
    moved = f"{one_line(one.old_path)} → {shown}" if one.old_path else shown
    is_cut = sum(len(hunk.lines) for hunk in one.hunks) > sum(not isinstance(line, Element) for line in lines)
    return {
        "path": named(one.path),
        "shown": shown,
        "stat": el("li", span("muted", one.status), el("a", shown, href="#"), *count, weak),
        "head": [el("h3", span("muted", one.status), moved, *count), *(el("p", why, class_="flag") for why in flags)],
        "lines": [piece for line in lines for piece in (line, *(() if isinstance(line, Element) else beside.get(line[1], ())))],
        "tail": [el("p", "more is not shown: nightcrew diff", class_="more")] if is_cut else [],
    }


def _comment(said: Comment) -> Element:
    drop = el("button", "Remove", type="button", data_number=said.number) if said.sent is None else None
    cell = el("td", el("strong", "comment: " if said.sent is None else "sent: "), said.text, drop, colspan=4)
    return el("tr", cell, class_="comment")


def _lines(one: FileDiff, left: int) -> Iterator[Sequence[Any]]:
    """Lines, with an element between hunks."""
    lexer = diff_lines.lexer_of(one)
    for number, hunk in enumerate(one.hunks):
        if left <= 0:
            return
        if number:
            yield el("tr", el("td", "···", colspan=4), class_="gap")
        yield from diff_lines.of_hunk(one, hunk, lexer, left)
        left -= len(hunk.lines)


# Agent page
# ----------
# The page of one agent: its live screen, its log, transcript, history and resources as lines, its diff with comments by line.


FAST_S = 0.2
"""Between two looks at what changes: nobody reads faster."""
SLOW_S = {Shown.SCREEN: 0.5, Shown.DIFF: 3.0, Shown.LOG: 1.0, Shown.TALK: 1.0, Shown.HISTORY: 2.0, Shown.USE: 2.0}
"""The same when it does not change."""
SHIFTS = 100
"""Lines at the top of a log that may go at once and yet be known as gone."""
Look = Callable[[], "Lookout"]


class PageTopic:
    """Lines of one task. They have numbers that stay when others above them go, so that what is new is all that is sent."""

    def __init__(self, looking: Lookout, task: str, page: Shown) -> None:
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
def _spans(line: str) -> list[events.Span]:
    return events.lines((line,))[0]


class DiffTopic:
    """What a task changed, file by file."""

    pause_s = SLOW_S[Shown.DIFF]

    def __init__(self, looking: Lookout, task: str) -> None:
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
        return shape(seen[0])

    def close(self) -> None:
        """As `Topic.close`."""


def feature(looking: Look, reviewing: ReviewActs, acted: Callable[[], None]) -> Feature:
    """`looking` makes one for each topic, which belongs to its thread."""

    def lines(rest: str) -> PageTopic:
        name, _, task = rest.partition(":")
        if name not in set(Shown) - {Shown.DIFF}:
            raise UsageError("no such page", on=name)
        return PageTopic(looking(), task_id(task), Shown(name))

    return Feature(
        pages=(Page("/agent/{task:.+}", "Agent", "agent.js"),),
        routes=(_answer("/data/task", lambda query: _shape(looking().view(task_id(query.get("task", ""))))), *_acts(reviewing, acted)),
        topics={"page": lines, "diff": lambda rest: DiffTopic(looking(), task_id(rest))},
    )


def _acts(reviewing: ReviewActs, acted: Callable[[], None]) -> Sequence[Route]:
    verbs: Mapping[str, Act] = {
        "comment": reviewing.comment,
        "drop-comment": reviewing.drop,
        "send-comments": reviewing.send,
        "verdict": reviewing.decide,
    }
    return [act(f"/act/{verb}", do, acted) for verb, do in verbs.items()]


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
