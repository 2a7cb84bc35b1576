"""Find notes by words, and tell an agent of notes before its task."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory import listing, note, semantic
from memory.briefing import Brief, Known, brief, cut, paths_in
from memory.files import Layout, notes_of
from memory.listing import GlobIndex
from memory.note import TITLE_MAX, Page, cleaned, pages, parts_of_names, record
from memory.semantic import Vectors
from memory.versions import ReadBook
from supervisor.contract import Briefing
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.path_globs import Kind

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from supervisor.kernel.settings import MemoryTerms
    from supervisor.server.loop import Loop
    from supervisor.store.rows import LaunchRow


# Search
# ------
# Finding notes by words: an index in memory, made anew from the files and never kept on the disk, so that it cannot be damaged.
#
# Notes and records of days are two tables, so that many old records cannot crowd out a note. Within each, SQLite ranks by bm25 with
# the title counted four times and tags three times. docs/decisions/0046 has what was measured.


QUERY_MAX = 64 * 2**10
TERMS_MAX = 64
"""Characters of a query that are read, and how many of its words are looked for at most."""
RANKED_MAX = 3000
"""Notes that are ranked, about: the rarest words are looked for until they stand in so many. The others tell little and cost most."""
WORDS_MIN = 3
"""Words that are looked for however often they stand."""
READ_WORDS_MAX = 1024
CANDIDATES = 100
PATH_BOOST = 2.0
PATH_ALONE = 0.25
"""How relevant a note is, beside the best one, that shares no word and is about the task's files."""
HALVES_EVERY_S = 14 * 86400.0
"""A record of a day counts half as much for each of these."""
EXCERPT = 240
EXCERPT_OF = 16 * 2**10
"""Characters that an excerpt has, and of a page that it is taken from."""
RRF = 60
MEANING_WEIGHT = 0.3
"""Of reciprocal rank fusion: how a ranking by meaning counts beside that by words."""
_WORD = re.compile(r"\w+")
_STOP_WORDS = """
a an and are as at be been but by can did do does for from had has have how if in into is it its may must no not of on or our shall should
so such than that the their them then there these they this those to was we were what when where which who why will with would you your
"""
_STOP = frozenset(_STOP_WORDS.split())
_TABLES = ("note", "record")


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that was found."""

    path: str
    line: int
    """Of a record; 0: the whole file."""
    title: str
    score: float
    """Beside the best by words, which has 1; twice that for one that is about the task's files."""
    excerpt: str
    task: str
    at: float


class Index:
    """Of one project. Whoever made it uses it: it belongs to one thread."""

    def __init__(self, vectors: Vectors | None = None) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._make()
        self._vectors = vectors
        self._next = 1
        self._of: dict[str, list[int]] = {}
        self._pages: dict[int, Page] = {}
        self._globs = GlobIndex()
        self._spreads: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def close(self) -> None:
        """Give its memory back."""
        self._db.close()

    def rebuild(self, found: Iterable[Page]) -> None:
        """Hold these pages and no others."""
        for table in _TABLES:
            self._db.execute(f"DROP TABLE {table}")
        self._make()
        self._of, self._pages, self._spreads, self._globs = {}, {}, {}, GlobIndex()
        if self._vectors is not None:
            self._vectors.clear()
        self._add(list(found))

    def update(self, path: str, found: Sequence[Page]) -> None:
        """The pages of one file are now these; none: it is gone. A day that grew costs only its new lines."""
        before = self._of.get(path, [])
        same = next((at for at, number in enumerate(before) if at >= len(found) or self._pages[number] != found[at]), len(before))
        gone = before[same:]
        for number in gone:
            page = self._pages.pop(number)
            self._globs.remove(number, page.globs)
            self._db.execute(f"DELETE FROM {_table(page)} WHERE rowid = ?", (number,))  # noqa: S608 - ours
        if self._vectors is not None:
            self._vectors.remove(gone)
        self._of[path] = before[:same]
        self._add(found[same:])
        if not self._of[path]:
            del self._of[path]
        self._spreads.clear()

    def _make(self) -> None:
        for table in _TABLES:
            self._db.execute(f"CREATE VIRTUAL TABLE {table} USING fts5(title, tags, body, tokenize='porter unicode61 remove_diacritics 2')")
            self._db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('rank', 'bm25(4.0, 3.0, 1.0)')")  # noqa: S608 - ours

    def _add(self, found: Sequence[Page]) -> None:
        numbered = list(enumerate(found, self._next))
        self._next += len(found)
        with self._transaction():
            for table in _TABLES:
                rows = ((n, _split(_own_title(p)), _split(" ".join(p.tags)), _split(p.body)) for n, p in numbered if _table(p) == table)
                self._db.executemany(f"INSERT INTO {table} (rowid, title, tags, body) VALUES (?, ?, ?, ?)", rows)  # noqa: S608 - ours
        for number, page in numbered:
            self._pages[number] = page
            self._of.setdefault(page.path, []).append(number)
            self._globs.add(number, page.globs)
        if self._vectors is not None:
            self._vectors.add([(n, f"{p.title}\n{p.body}") for n, p in numbered])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def search(
        self, query: str, *, paths: Sequence[str] = (), limit: int = 10, now: float = 0.0, kinds: Container[Kind] = frozenset(Kind)
    ) -> list[Hit]:
        """The best pages for any text, the best first. `paths` are files of the repository, or globs, that the task is about; `now` is
        seconds since 1970, for the age of records."""
        words = self._words(query)
        rank = self._by_words(words)
        if self._vectors is not None and words:
            rank = _fused(rank, self._vectors.nearest(query[:QUERY_MAX], CANDIDATES))
        best = max(rank.values(), default=1.0)
        scores = {number: value / best for number, value in rank.items()}
        if paths:
            _boost(scores, self._globs.about(paths))
        pages = self._pages
        aged = ((n, value * _age(pages[n], now)) for n, value in scores.items() if pages[n].kind in kinds and not _is_over(pages[n], now))
        chosen = sorted(aged, key=lambda one: (-one[1], pages[one[0]].path, pages[one[0]].line))[:limit]
        return [_hit(pages[number], value, words) for number, value in chosen]

    def _words(self, query: str) -> list[str]:
        """What to look for: no word of it can be an operator of FTS5, whatever the query holds."""
        found = list(dict.fromkeys(_WORD.findall(query[:QUERY_MAX].lower())))[:READ_WORDS_MAX]
        telling = sorted([word for word in found if word not in _STOP] or found, key=self._spread)[:TERMS_MAX]
        total = 0
        for at, word in enumerate(telling):
            total += self._spread(word)
            if total > RANKED_MAX and at >= WORDS_MIN:
                return telling[:at]
        return telling

    def _spread(self, word: str) -> int:
        """In how many notes a word stands, as far as that matters."""
        if word not in self._spreads:
            query = "SELECT count(*) FROM (SELECT 1 FROM note WHERE note MATCH ? LIMIT ?)"
            self._spreads[word] = int(self._db.execute(query, (f'"{word}"', RANKED_MAX)).fetchone()[0])
        return self._spreads[word]

    def _by_words(self, words: Sequence[str]) -> dict[int, float]:
        asked = " OR ".join(f'"{word}"' for word in words)
        if not asked:
            return {}
        found: dict[int, float] = {}
        for table in _TABLES:
            query = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"  # noqa: S608 - ours
            found |= {int(number): float(value) for number, value in self._db.execute(query, (asked, CANDIDATES))}
        return found


def _table(page: Page) -> str:
    return "record" if page.kind is Kind.EPISODIC else "note"


def _split(text: str) -> str:
    parts = parts_of_names(text)
    return f"{text}\n{parts}" if parts else text


def _own_title(page: Page) -> str:
    """Not the beginning of its text once more, where that stands for a title: it would outweigh the rest."""
    return "" if page.body[: TITLE_MAX * 2].lstrip("# \t\r\n").startswith(page.title) else page.title


def _fused(words: dict[int, float], meant: Sequence[int]) -> dict[int, float]:
    """Both rankings as one, by the places that they give."""
    by_words = sorted(words, key=lambda number: -words[number])
    return fused(((by_words, 1.0), (meant, MEANING_WEIGHT)))


def fused(rankings: Iterable[tuple[Sequence[int], float]]) -> dict[int, float]:
    """Reciprocal rank fusion: each ranking, best first, gives each of its places weight / (RRF + place)."""
    scores: dict[int, float] = {}
    for ranking, weight in rankings:
        for place, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + weight / (RRF + place)
    return scores


def _boost(scores: dict[int, float], numbers: Iterable[int]) -> None:
    for number in numbers:
        scores[number] = scores.get(number, PATH_ALONE) * PATH_BOOST


def _age(page: Page, now: float) -> float:
    return float(0.5 ** (max(0.0, now - page.at) / HALVES_EVERY_S)) if page.kind is Kind.EPISODIC else 1.0


def _is_over(page: Page, now: float) -> bool:
    return page.expires is not None and page.expires < now


def _hit(page: Page, score: float, words: Sequence[str]) -> Hit:
    return Hit(page.path, page.line, page.title, round(score, 4), _excerpt(page.body, words), page.task, page.at)


def _excerpt(body: str, words: Sequence[str]) -> str:
    """Some of the text around the first word that was looked for, on one line."""
    flat = " ".join(body[:EXCERPT_OF].split())
    low = flat.lower()
    first = min((at for word in words if (at := low.find(word)) >= 0), default=0)
    start = max(0, first - EXCERPT // 4)
    return ("…" if start else "") + flat[start : start + EXCERPT] + ("…" if len(flat) > start + EXCERPT else "")


# Episodes
# --------
# A summary of the records of one day: who did how much of what, and how each begins. The same records give the same text. Pure.


LINES_MAX = 40
"""Groups of records that are named; the others are counted."""
FIRST_MAX = 2
"""Records of a group whose beginning is given."""
TEXT_MAX = 160
SUMMARY_MAX = 4 * 2**10


def path_of(day: str) -> str:
    """Where the summary of the records at `day` lies."""
    return f"semantic/episodes-{_date(day)}.md"


def summary(day: str, text: str) -> str:
    """The note that stands for the records in `text`; `day` is their path. A line that is torn is counted as such."""
    groups: dict[tuple[str, str], list[Mapping[str, object]]] = defaultdict(list)
    torn = 0
    for line in filter(str.strip, text.split("\n")):
        found = record(line.encode("utf-8", "replace"))
        if isinstance(found, str):
            torn += 1
        else:
            groups[_word(found, "agent", "task"), _word(found, "type")].append(found)
    ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    lines = [line for (who, what), held in ordered[:LINES_MAX] for line in _group(who, what, held)]
    if others := sum(len(held) for _, held in ordered[LINES_MAX:]):
        lines.append(f"- and {others} more records of {len(ordered) - LINES_MAX} kinds")
    total = sum(map(len, groups.values()))
    head = (
        f"{total} records of {len({who for who, _ in groups})} agents"
        + (f"; {torn} lines were torn" if torn else "")
        + f". All of them: archive, {day}."
    )
    front = f"---\nkind: semantic\ntitle: What happened on {_date(day)}\ntags: [episodes]\nsource: {day}\n---\n"
    return cut(front + "\n" + "\n".join([head, "", *lines]), SUMMARY_MAX - 1) + "\n"


def _group(who: str, what: str, held: Iterable[Mapping[str, object]]) -> list[str]:
    all_of_them = list(held)
    named = f"- {who or 'somebody'}: {len(all_of_them)} × {what or 'record'}"
    texts = [text for one in all_of_them if (text := _line(one.get("text")))][:FIRST_MAX]
    return [named, *(f"  - {text}" for text in texts)]


def _word(found: Mapping[str, object], *keys: str) -> str:
    return next((text for key in keys if (text := _line(found.get(key)))), "")[:80]


def _line(value: object) -> str:
    """The first line of it that says something."""
    text = cleaned(value if isinstance(value, str) else "")
    return next((cut(line.strip(), TEXT_MAX) for line in text.split("\n") if line.strip()), "")


def _date(day: str) -> str:
    return day.rpartition("/")[2].removesuffix(".jsonl")


# Searching
# ---------
# Search and briefings: the index of each project, made from its files when it is first asked for, and kept up to date from then on.


KNOWN_MAX = 12
"""Notes that are looked at for one briefing."""
CORE_NOTE = "core.md"


@dataclass(slots=True)
class _Held:
    """The index of one project; the thread of the memory uses it."""

    index: Index
    stale: set[str] = field(default_factory=set)
    """Files that changed since they were read; any thread adds to it, under the lock."""


Tracked = Callable[[str], Sequence[str] | None]
"""Lists the files of a project's repository, sorted; None when it is not known. It may take long: call it in a thread."""


class SearchDesk(Briefing):
    """Of all projects. What is `async` belongs to the loop."""

    _desk: MemoryDesk
    _loop: Loop

    def __init__(self, terms: MemoryTerms, tracked: Tracked = lambda _: None) -> None:
        """Call `begin` before anything else."""
        self.terms, self.tracked = terms, tracked
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def begin(self, desk: MemoryDesk, loop: Loop) -> None:
        """Search for this desk."""
        self._desk, self._loop = desk, loop

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
        about, now = (*paths, *paths_in(prompt)), self._loop.clock.wall()
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
        core = listing.one(layout, CORE_NOTE)
        hits = self._index(project).search(query, paths=paths, limit=KNOWN_MAX, now=now, kinds=frozenset(Kind) - {Kind.CORE})
        own = listing.one(layout, notes_of(task))
        mine = [Known(own.path, own.text, task, own.modified)] if own is not None else []
        others = [_known(layout, hit) for hit in hits if hit.path != notes_of(task)]
        return brief(core.text if core is not None else "", [*mine, *others], self.terms.brief)

    def _given(self, project: str, key: tuple[str, int], found: Brief, now: float) -> None:
        with ReadBook.opened(self._layout(project).book) as book:
            book.note([CORE_NOTE, *found.paths] if found.core else found.paths, key[0], now, given=True)
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
