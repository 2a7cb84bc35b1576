"""Events to all browsers, and the crew as JSON for our pages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from supervisor.features.api.rules import Scope
from supervisor.kernel.ansi import in_texts
from supervisor.kernel.errors import NightcrewError, NotFound, one_line
from supervisor.views import sgr
from supervisor.views.crew import LETTERS, Crew, Row
from supervisor.views.web.sessions import Access, Who

# Feature
# -------
# What a page, or an API, brings to the server: frames of pages, routes, and topics of events.


Handler = Callable[[web.Request, Who | None], Awaitable[web.StreamResponse]]
"""Answers a request; who asks is None where the access is OPEN or BEARER. May raise NightcrewError, which becomes an answer."""
State = Mapping[str, Any]
"""JSON by keys of the topic's own. What changes is sent key by key, so a key holds what changes together."""


@dataclass(frozen=True, slots=True)
class Page:
    """The frame of a page. All that it shows its script asks for."""

    path: str
    """As aiohttp writes routes: `/agent/{task:.+}`."""
    title: str
    script: str
    """A file of `static/`, a module."""
    nav: str = ""
    """What the navigation calls it; empty: it is not there."""


@dataclass(frozen=True, slots=True)
class Route:
    """One address of the server."""

    method: str
    path: str
    access: Access
    handler: Handler
    scope: Scope | None = None
    """What its token has to be good for; None: read, and to act for `Access.ACT`."""

    @property
    def needs(self) -> Scope:
        """The scope that is asked for."""
        return self.scope or (Scope.ACT if self.access is Access.ACT else Scope.READ)


class Topic(Protocol):
    """Something that is looked at again and again, for all browsers that show it."""

    pause_s: float
    """Least seconds between two looks."""

    def look(self) -> State | None:
        """How it is now, or None when it is as before. Called again and again by one thread of its own; may wait for a change, at most a
        second. Never raises: what is wrong is said in the state."""

    def close(self) -> None:
        """Nobody looks any more; in the same thread."""


@dataclass(frozen=True, slots=True)
class Feature:
    """Everything that one file of pages brings."""

    pages: Sequence[Page] = ()
    routes: Sequence[Route] = ()
    topics: Mapping[str, Callable[[str], Topic]] = field(default_factory=dict)
    """By the first word of their names; what stands after its colon is given. Raises NightcrewError for a name that means nothing."""


# Events
# ------
# Serve events to all browsers: a browser that connects gets a snapshot of each topic, then the changes, by one EventSource for all
# its pages.
#
# Each topic that a page shows has one thread that looks; its result is compared with the one sent before, and encoded once for all.
# A browser that does not read is cut off when its queue is full, and comes back by itself; it gets a snapshot again.


QUEUE = 64
"""Events that wait for one browser."""
CLIENTS_MAX, FEEDS_MAX = 100, 64
"""Browsers, and topics that are looked at, at one time: each of those has a thread."""
TOPICS_MAX = FEEDS_MAX
"""Topics of one stream, which all pages of a browser share (`static/core.js`)."""
BEAT_S = 15.0
"""Between two signs of life, and two looks whether the session still holds."""
LINGER_S = 5.0
"""For so long a topic is looked at for who may come back."""
AGAIN_MS = 1000
SHARE, SPARE_S = 20, 0.2
"""Looking at a topic costs over time at most one in so many of a core's seconds, whatever a look takes. What was not used is kept, up to so
many seconds of the processor, so that after a rest a change is looked at at once."""
AT_EASE = 16
"""Topics. Where there are more, each is looked at less often: all together take no more than these."""
Maker = Callable[[str], Topic]
Alive = Callable[[], Awaitable[bool]]


class Client:
    """One EventSource."""

    def __init__(self, topics: Sequence[str], cut: Callable[[], None]) -> None:
        """`cut` ends its connection."""
        self.topics = frozenset(topics)
        self.cut = cut
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)

    def put(self, event: bytes) -> None:
        """Send it, or cut off a browser that does not read."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.cut()

    async def get(self) -> bytes:
        """Everything that waits."""
        parts = [await self._queue.get()]
        while not self._queue.empty():
            parts.append(self._queue.get_nowait())
        return b"".join(parts)


class Pace:
    """Says how long to rest after a look, in seconds."""

    def __init__(self, now: float) -> None:
        self._spare_s, self._at = SPARE_S, now

    def rest(self, took_s: float, now: float) -> float:
        """`took_s` of the processor were used; `now` is monotonic."""
        self._spare_s = min(SPARE_S, self._spare_s + (now - self._at) / SHARE) - took_s
        self._at = now
        return max(0.0, -self._spare_s * SHARE)


class Feed:
    """One topic while somebody shows it."""

    def __init__(self, name: str, topic: Topic, beside: Collection[str]) -> None:
        self.name, self.topic = name, topic
        self.state: State | None = None
        self.clients: set[Client] = set()
        self._beside = beside
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topic")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pace = Pace(loop.time())
        while True:
            found, took_s = await loop.run_in_executor(self._thread, self._look)
            if found is not None:
                self._tell(found)
            await asyncio.sleep(max(self.topic.pause_s, pace.rest(took_s, loop.time())) * max(1.0, len(self._beside) / AT_EASE))

    def _look(self) -> tuple[State | None, float]:
        """With the processor time of this thread that it took: waiting costs nothing."""
        began = time.thread_time()
        try:
            found = self.topic.look()
        except Exception as error:  # noqa: BLE001 - a look that fails is said on the page, and the next one may not
            found = {**(self.state or {}), "failed": one_line(f"{type(error).__name__}: {error}")}
        return found, time.thread_time() - began

    def _tell(self, found: State) -> None:
        before, self.state = self.state, found
        if before is None:
            self._publish(self.snapshot())
            return
        changed = {key: value for key, value in found.items() if key not in before or before[key] != value}
        gone = [key for key in before if key not in found]
        if changed or gone:
            self._publish(_event("delta", {"topic": self.name, "set": changed, "drop": gone}))

    def _publish(self, event: bytes) -> None:
        for client in list(self.clients):
            client.put(event)

    def snapshot(self) -> bytes:
        """All that is known of the topic; empty before the first look."""
        return b"" if self.state is None else _event("state", {"topic": self.name, "set": self.state})

    def close(self) -> None:
        """Look no more; a look that is under way comes to its end."""
        self._task.cancel()
        self._thread.submit(self.topic.close)
        self._thread.shutdown(wait=False)


class Hub:
    """All topics and all browsers of a server."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._makers = makers
        self._feeds: dict[str, Feed] = {}
        self._count = 0

    @property
    def clients(self) -> int:
        """Browsers that are connected."""
        return self._count

    async def stream(self, request: web.Request, alive: Alive, headers: Mapping[str, str]) -> web.StreamResponse:
        """Serve one EventSource until it leaves, or is not `alive` any more. Raises NotFound when none of its topics exists."""
        names, topics = self._known(request.query.getall("topic", []))
        if self._count >= CLIENTS_MAX or len(self._feeds) + len(topics) > FEEDS_MAX:
            return web.Response(status=503, text="too many pages are open")
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        client = Client(names, lambda: _cut(request))
        self._count += 1
        try:
            self._join(client, topics)
            await _serve(response, client, alive)
        except ConnectionError:
            pass
        finally:
            self._count -= 1
            self._leave(client)
        return response

    def _known(self, wanted: Iterable[str]) -> tuple[list[str], dict[str, Topic]]:
        """Return the topics that exist, and the new ones among them. A topic that does not exist takes the others from no page."""
        names = list(dict.fromkeys(wanted))[:TOPICS_MAX]
        topics: dict[str, Topic] = {}
        missing: list[NightcrewError] = []
        for name in names:
            try:
                topics |= {name: self._made(name)} if name not in self._feeds else {}
            except NightcrewError as error:
                missing.append(error)
        if missing and len(missing) == len(names):
            raise missing[0]
        return [name for name in names if name in topics or name in self._feeds], topics

    def _made(self, name: str) -> Topic:
        first, _, rest = name.partition(":")
        if first not in self._makers:
            raise NotFound("no such topic", on=name)
        return self._makers[first](rest)

    def _join(self, client: Client, topics: Mapping[str, Topic]) -> None:
        client.put(f"retry: {AGAIN_MS}\n".encode() + _event("hello", {"now": time.time()}))
        for name in client.topics:
            feed = self._feeds.get(name)
            if feed is None:
                feed = self._feeds[name] = Feed(name, topics.get(name) or self._made(name), self._feeds)
            if said := feed.snapshot():
                client.put(said)
            feed.clients.add(client)

    def _leave(self, client: Client) -> None:
        for name in client.topics:
            if (feed := self._feeds.get(name)) is not None:
                feed.clients.discard(client)
                if not feed.clients:
                    asyncio.get_running_loop().call_later(LINGER_S, self._let_go, feed)

    def _let_go(self, feed: Feed) -> None:
        if not feed.clients and self._feeds.get(feed.name) is feed:
            del self._feeds[feed.name]
            feed.close()

    def close(self) -> None:
        """Look no more, and let every browser go."""
        for feed in self._feeds.values():
            feed.close()
            for client in feed.clients:
                client.cut()
        self._feeds.clear()


async def _serve(response: web.StreamResponse, client: Client, alive: Alive) -> None:
    look_again = time.monotonic() + BEAT_S
    while True:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, look_again - time.monotonic())):
                said = await client.get()
        except TimeoutError:
            said = _event("beat", {"now": time.time()})
        if time.monotonic() >= look_again:
            if not await alive():
                return
            look_again = time.monotonic() + BEAT_S
        await response.write(said)


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _event(kind: str, said: Mapping[str, Any]) -> bytes:
    """One event. JSON has no line end in it, so nothing of a stranger's can begin another."""
    return f"event: {kind}\ndata: {json.dumps(said, separators=(',', ':'), allow_nan=False)}\n\n".encode()


# Wire
# ----
# The crew, and lines of strangers, as JSON for our pages. What strangers wrote is text there, and text it stays: pages never read
# it as markup. Pure.


TEXT_MAX = 400
"""Characters of one thing that is said in a row."""
Span = list[Any]
"""A text, and classes, and where it has any its colour and that behind it, as `_hex` gives them."""


def crew(found: Crew) -> dict[str, Any]:
    """By key: `sections`, `facts`, `troubles`, and one for each row."""
    said: dict[str, Any] = {f"row:{row.id}": _row(row) for row in found.rows()}
    said["sections"] = [
        {"group": one.group, "total": one.total, "left": one.left, "place": one.place, "rows": [row.id for row in one.rows]}
        for one in found.sections
    ]
    said["facts"] = [{"name": one.name, "value": one_line(one.value), "bad": one.bad} for one in found.facts]
    said["troubles"] = [one_line(one) for one in found.troubles]
    return said


def _row(row: Row) -> dict[str, Any]:
    view = row.view
    return {
        "id": view.id,
        "name": one_line(view.name),
        "title": row.title[:TEXT_MAX],
        "kind": view.kind,
        "state": view.state,
        "letter": row.letter,
        "word": row.word,
        "means": LETTERS[row.letter],
        "color": f"var(--k{int(row.color) - 30})" if row.color != "2" else "var(--muted)",
        "since": row.since,
        "ended": row.ended,
        "place": row.place,
        "tasks": list(row.tasks) or [view.id],
        "asks": row.asks,
        "says": row.says[:TEXT_MAX],
        "paused": bool(view.paused) or view.state == "paused",
        "branch": view.branch or "",
        "epoch": view.epoch,
    }


def lines(given: Iterable[str]) -> list[list[Span]]:
    """Lines with SGR as spans of what looks the same."""
    return [[_span(text, dict(look)) for text, look in sgr.runs(line)] for line in given]


def _span(text: str, look: Mapping[str, object]) -> Span:
    classes = " ".join(name for name in look if look[name] is True)
    colors = [_hex(look.get(name)) for name in ("color", "bgcolor")]
    return [text, classes, *colors] if any(colors) else [text, classes] if classes else [text]


def _hex(color: object) -> str:
    """`#rrggbb`; of the first 16 colours, which every terminal shows in its own way, the name that the page's style sheet has."""
    match color:
        case (int(red), int(green), int(blue)):
            return f"#{red:02x}{green:02x}{blue:02x}"
        case int(number) if number < 16:
            return f"k{number}"
        case int(number) if number >= 232:
            return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
        case int(number):
            steps = (0, 95, 135, 175, 215, 255)
            return "#" + "".join(f"{steps[(number - 16) // part % 6]:02x}" for part in (36, 6, 1))
        case _:
            return ""


# Plain
# -----
# Text of strangers on its way to a browser: lines and tabs stay, what else would hide from a reader or turn a line around is shown
# as an escape. Pure.


def plain(value: Any) -> Any:
    """JSON with every text in it made plain, the names of its keys too."""
    return in_texts(value, lambda text: text if text.isascii() and text.isprintable() else "\n".join(map(_line, text.split("\n"))))


def _line(text: str) -> str:
    return "\t".join(map(one_line, text.split("\t")))
