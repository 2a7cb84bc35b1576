"""The operations `search` and `brief` of the verb `mem`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from supervisor.core.errors import NotFound, Refused, UsageError
from supervisor.daemon.memory.request import PERSON, Request

QUERY_MAX = 2**20
LIMIT_MAX = 100
PATHS_MAX = 64
PATH_MAX = 512


async def search(asked: Request) -> dict[str, Any]:
    """`query`: any text; `paths`: files of the repository, or patterns, whose notes come first; `limit`. Returns `hits`, the best first:
    `path`, `line` (of a record of a day, else 0), `title`, `score`, `excerpt`, `task` and `at`."""
    query = asked.text("query", QUERY_MAX)
    limit = int(asked.number("limit", 10, LIMIT_MAX))
    hits = await asked.desk.search.search(asked.project, query, paths=_paths(asked), limit=limit)
    return {"hits": [asdict(hit) for hit in hits]}


async def brief(asked: Request) -> dict[str, Any]:
    """What an agent is told before its prompt: that of `task` (an agent asks for its own), or one with this `prompt` and these `paths`;
    without either, what everybody is told. Returns `prefix`, which is the same for all agents, and its `digest`; `rest`; `paths` of the
    notes in it; `bytes` of both, and `bytes_max`; `prefixes`: how much of the prompts that begin so providers had in their caches."""
    title, prompt, task, paths = _meant(asked)
    found = await asked.desk.search.brief(asked.project, task, f"{title}\n{prompt}", paths)
    used = await asked.desk.search.prefixes(asked.project)
    return {
        "task": task,
        "prefix": found.prefix,
        "digest": found.digest,
        "rest": found.rest,
        "paths": list(found.paths),
        "bytes": len(found.prefix.encode()) + len(found.rest.encode()),
        "bytes_max": asked.desk.search.terms.brief,
        "prefixes": [asdict(one) for one in used],
    }


def _meant(asked: Request) -> tuple[str, str, str, tuple[str, ...]]:
    """Title, prompt, task and files of what it is about."""
    own = asked.author if asked.author != PERSON else ""
    if "prompt" in asked.args:
        return "", asked.text("prompt", QUERY_MAX), own, _paths(asked)
    task = asked.text("task", 200) if "task" in asked.args else own
    if not task:
        return "", "", "", _paths(asked)
    if own and task != own:
        raise Refused("another agent's task", on=task, why="an agent asks for its own")
    try:
        row = asked.desk.loop.ledger.launch_row(task)
    except KeyError:
        raise NotFound("no such task", on=task, hint="nightcrew status") from None
    if row.project != asked.project:
        raise NotFound("no such task of this repository", on=task)
    return row.spec.title, row.spec.prompt or "", task, (*row.spec.paths, *_paths(asked))


def _paths(asked: Request) -> tuple[str, ...]:
    given = asked.args.get("paths") or []
    if not isinstance(given, list) or len(given) > PATHS_MAX or not all(isinstance(one, str) and 0 < len(one) <= PATH_MAX for one in given):
        raise UsageError("not a request", on="paths", why=f"a list of at most {PATHS_MAX} paths of at most {PATH_MAX} characters")
    return tuple(given)
