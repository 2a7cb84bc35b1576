"""The operation `prune` of the verb `mem`: what would go to the archive, and, when a person says so, that it goes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from memory import episodes, reading
from memory.layout import Kind, Layout, kind_of
from memory.pages import front_matter, many, moment, one
from memory.pruning import DAY_S, Candidate, Prune, plan
from memory.reading import Found
from memory.reads import ReadBook
from memory.store import PERSON as BY_PERSON
from memory.store import Action, Store
from supervisor.core.errors import NotFound, Refused
from supervisor.core.notes import MemoryTerms
from supervisor.daemon.memory.request import PERSON, Request

SUMMARIES_MAX = 100


async def prune(asked: Request) -> dict[str, Any]:
    """For people. `dry` (the default): only say. Returns `pruned`: `path`, `why` and `to` (its place in the archive, "" when dry) of each
    note and each day of records; `summaries`: the notes that were made of days; `kept`: what should have gone and why it did not;
    `remarks`; `dead_paths`: False when nobody knew which files the repository has."""
    if asked.author != PERSON:
        raise Refused("a person prunes", on="prune", why="what an agent finds stale another may need", hint="nightcrew mem prune")
    desk, project, dry = asked.desk, asked.project, asked.args.get("dry") is not False
    tracked = await asyncio.get_running_loop().run_in_executor(None, functools.partial(desk.search.tracked, project))
    layout, terms, now = desk.layout(project), desk.search.terms, desk.loop.clock.wall()
    return await desk.of(project, lambda store: _prune(store, layout, tracked, (now, terms, dry)))


def _prune(store: Store, layout: Layout, tracked: Sequence[str] | None, how: tuple[float, MemoryTerms, bool]) -> dict[str, Any]:
    now, terms, dry = how
    found = [_candidate(store, one) for one in reading.everything(layout)]
    with ReadBook.opened(layout.book) as book:
        read = {path: reads.last for path, reads in book.reads().items()}
    decided = plan(found, read, tracked, now, terms)
    said: dict[str, Any] = {"dry": dry, "pruned": [], "summaries": [], "kept": [], "remarks": list(decided.remarks)}
    for prune in (*decided.days, *decided.prunes):
        try:
            to = "" if dry else _archive(store, layout, prune, said, is_day=prune in decided.days)
        except (Refused, NotFound) as error:
            said["kept"].append({"path": prune.path, "why": error.line()})
        else:
            said["pruned"].append({"path": prune.path, "why": prune.why, "to": to})
    return {**said, "dead_paths": tracked is not None}


def _archive(store: Store, layout: Layout, prune: Prune, said: dict[str, Any], *, is_day: bool) -> str:
    if is_day and (day := reading.one(layout, prune.path)) is not None:
        path, text = _summary(layout, prune.path, day.text)
        store.put(path, text, BY_PERSON)
        said["summaries"].append(path)
    return store.remove(prune.path, BY_PERSON, Action.PRUNE)


def _summary(layout: Layout, day: str, text: str) -> tuple[str, str]:
    """Where the summary of a day goes: beside one of records that came earlier, in the place of one of these."""
    first, summary = episodes.path_of(day), episodes.summary(day, text)
    for number in range(1, SUMMARIES_MAX):
        path = first if number == 1 else first.replace(".md", f"-{number}.md")
        there = reading.one(layout, path)
        if there is None or there.text == summary:
            return path, summary
    raise Refused("too many summaries of one day", on=day, hint=f"nightcrew mem rm {first}")


def _candidate(store: Store, found: Found) -> Candidate:
    kind = kind_of(found.path) or Kind.SEMANTIC
    if kind is Kind.EPISODIC:
        day = moment(found.path.rpartition("/")[2].removesuffix(".jsonl"))
        return Candidate(found.path, kind, found.size, day + DAY_S if day is not None else found.modified)
    said, _ = front_matter(found.text)
    ends = moment(one(said, "expires"))
    instead = many(said, "supersedes")
    by_person = bool(instead) and store.versions.by_person(found.path)
    return Candidate(found.path, kind, found.size, found.modified, one(said, "id"), instead, ends, many(said, "paths"), by_person)
