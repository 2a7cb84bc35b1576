"""Search and briefings: the index of each project, made from its files when it is first asked for, and kept up to date from then on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory import listing, note, search, semantic
from memory.files import Layout, notes_of
from memory.note import pages
from memory.search import Brief, Hit, Index, Known
from memory.semantic import Vectors
from memory.versions import ReadBook
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.path_globs import Kind

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from supervisor.kernel.spec import MemoryTerms
    from supervisor.server.loop import Loop
    from supervisor.store.rows import LaunchRow

KNOWN_MAX = 12
"""Notes that are looked at for one briefing."""
CORE = "core.md"


@dataclass(slots=True)
class _Held:
    """The index of one project; the thread of the memory uses it."""

    index: Index
    stale: set[str] = field(default_factory=set)
    """Files that changed since they were read; any thread adds to it, under the lock."""


class SearchDesk:
    """Of all projects. What is `async` belongs to the loop."""

    def __init__(self, desk: MemoryDesk, loop: Loop) -> None:
        self._desk, self._loop, self.terms = desk, loop, loop.settings.memory
        self.tracked: Callable[[str], Sequence[str] | None] = lambda _: None
        """The files of a project's repository, sorted; None when nobody knows. May take a while: for a thread."""
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def changed(self, project: str, path: str) -> None:
        """A file of a memory is not what it was."""
        with self._lock:
            if (held := self._held.get(project)) is not None:
                held.stale.add(path)

    async def search(self, project: str, query: str, *, paths: Sequence[str] = (), limit: int = 10) -> list[Hit]:
        """The best for any text."""
        now = self._loop.clock.wall()
        self._desk.follow(project)
        return await self._desk.on_thread(lambda: self._index(project).search(query, paths=paths, limit=limit, now=now))

    async def read(self, project: str, paths: Iterable[str], reader: str) -> None:
        """Count that these were read by a task, or by `person`."""
        known, now = list(paths), self._loop.clock.wall()
        await self._desk.on_thread(lambda: self._count(project, known, reader, now))

    async def before(self, task: str, epoch: int, launch: LaunchRow) -> str:
        """What an attempt that begins is told of the memory before its prompt. Never an error: an agent can work without."""
        prompt = launch.spec.prompt
        if not prompt or not self.terms.brief:
            return ""
        try:
            found = await self.brief(launch.project, task, f"{launch.spec.title}\n{prompt}", launch.spec.paths)
            if found.core or found.paths:
                now = self._loop.clock.wall()
                await self._desk.on_thread(functools.partial(self._given, launch.project, (task, epoch), found, now))
        except (NightcrewError, OSError) as error:
            self._loop.alert(f"{task}: told nothing of the memory: {error}")
            return ""
        return found.text

    async def brief(self, project: str, task: str, prompt: str, paths: Sequence[str] = ()) -> Brief:
        """What an agent with this prompt is told. A memory with nothing in it costs one look."""
        if not self.terms.brief or await self._desk.on_thread(lambda: next(listing.everything(self._layout(project)), None) is None):
            return Brief()
        self._desk.follow(project)
        about, now = (*paths, *search.paths_in(prompt)), self._loop.clock.wall()
        return await self._desk.on_thread(lambda: self._brief(project, task, prompt, about, now))

    # On the thread -----------------------------------------------------------------------------------------------------------------------

    def _index(self, project: str) -> Index:
        layout = self._layout(project)
        with self._lock:
            held = self._held.get(project)
            is_new = held is None
            if held is None:
                held = self._held[project] = _Held(Index(_vectors(self.terms)))
            stale, held.stale = held.stale, set()
        if is_new:
            try:
                held.index.rebuild(page for found in listing.everything(layout) for page in pages(found.path, found.text, found.modified))
            except BaseException:
                self.forget(project)
                raise
        for path in stale:
            found = listing.one(layout, path)
            held.index.update(path, pages(path, found.text, found.modified) if found is not None else [])
        return held.index

    def forget(self, project: str) -> None:
        """Make its index anew when it is asked for next."""
        with self._lock:
            self._held.pop(project, None)

    def _brief(self, project: str, task: str, query: str, paths: Sequence[str], now: float) -> Brief:
        layout = self._layout(project)
        core = listing.one(layout, CORE)
        hits = self._index(project).search(query, paths=paths, limit=KNOWN_MAX, now=now, kinds=frozenset(Kind) - {Kind.CORE})
        own = listing.one(layout, notes_of(task))
        mine = [Known(own.path, own.text, task, own.modified)] if own is not None else []
        others = [_known(layout, hit) for hit in hits if hit.path != notes_of(task)]
        return search.brief(core.text if core is not None else "", [*mine, *others], self.terms.brief)

    def _given(self, project: str, key: tuple[str, int], found: Brief, now: float) -> None:
        with ReadBook.opened(self._layout(project).book) as book:
            book.note([CORE, *found.paths] if found.core else found.paths, key[0], now, given=True)
            book.briefed(*key, (found.digest, len(found.prefix.encode())), now)

    def _count(self, project: str, paths: Sequence[str], reader: str, now: float) -> None:
        with ReadBook.opened(self._layout(project).book) as book:
            book.note(paths, reader, now, given=False)

    def _layout(self, project: str) -> Layout:
        return self._desk.layout(project)


def _known(layout: Layout, hit: Hit) -> Known:
    """What a hit stands for: the note as it lies there now, or the record that was found."""
    found = listing.one(layout, hit.path) if hit.line == 0 else None
    text = note.parse(found.text).body if found is not None else hit.excerpt
    return Known(
        hit.path,
        f"{hit.title}\n{text}" if hit.title and not text.lstrip("# \n").startswith(hit.title) else text,
        hit.task,
        hit.at,
        hit.score,
    )


def _vectors(terms: MemoryTerms) -> Vectors | None:
    model = semantic.load() if terms.meaning else None
    return Vectors(model) if model is not None else None
