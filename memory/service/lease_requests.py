"""Requests about leases, from agents, people and hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from memory.service.arguments import Project, Word
from memory.service.leases import TTL_MAX_S, Asker, LeaseDesk, Said
from supervisor.kernel import leases
from supervisor.kernel.codec import Bound, Handler
from supervisor.kernel.errors import NotFound, Refused, UsageError
from supervisor.kernel.format import rfc3339
from supervisor.kernel.leases import GLOBS_MAX, Lease, Mode
from supervisor.kernel.path_globs import normalised

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from supervisor.host.paths import Home
    from supervisor.server.agent_requests import Asked
    from supervisor.server.loop import Loop


# Lease verbs
# -----------
# The verb `lease`, for agents at `agents.sock` and for people at `daemon.sock`.


WAIT_MAX_S = 3600.0
PATH_MAX = 4096
_FAMILY_MAX = 32


def _glob(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("it must be text")  # noqa: TRY004 - as every rule of a request
    return normalised(given)


Globs = Annotated[tuple[Annotated[Any, _glob], ...], Bound(0, GLOBS_MAX)]
Fences = Annotated[tuple[Annotated[int, Bound(1)], ...], Bound(0, 1000)]
"""The numbers that `ls` shows."""


def asker(loop: Loop, task: str, epoch: int) -> Asker:
    """Whose request it is, with the tasks above it."""
    row = loop.ledger.launch_row(task)
    kin: list[str] = []
    parent = row.spec.parent
    while parent and len(kin) < _FAMILY_MAX:
        kin.append(parent)
        try:
            parent = loop.ledger.launch_row(parent).spec.parent
        except KeyError:
            break
    return Asker(row.project, task, epoch, tuple(kin), row.spec.paths)


def said_of(loop: Loop, home: Home, desk: LeaseDesk, who: Asker, path: str, cwd: str = "") -> tuple[Said, str | None]:
    """What is to be said of a write of an attempt, and its path from the root; None: it is not in its worktree, and nobody's."""
    row = loop.ledger.attempt(who.task, who.epoch)
    found = leases.below_root(path, [row.worktree or "" if row is not None else "", str(home.same_path(who.project))], cwd)
    return (desk.write(who, found), found) if found is not None else (Said(), None)


def _asker(asked: Asked) -> Asker:
    return asker(asked.loop, asked.task, asked.epoch)


async def take(
    asked: Asked,
    *,
    globs: Globs,
    mode: Mode = Mode.EXCLUSIVE,
    wait_s: Annotated[float, Bound(0, WAIT_MAX_S)] = 0.0,
    ttl: Annotated[float, Bound(1, TTL_MAX_S)] | None = None,
) -> dict[str, Any]:
    """Lease all of the patterns or none. Returns `leases`. Raises UsageError, Refused, Deadlock, TimedOut, Chosen, StaleEpoch, DiskFull,
    LedgerError."""
    who = _asker(asked)
    if not globs:
        raise UsageError("not a request", on="globs", why="at least one pattern")
    if why := leases.why_not(globs, who.given):
        raise Refused("not given", on=who.task, why=why, kept="what it holds already")
    return {"leases": [shape(lease) for lease in await asked.memory.leases.take(who, globs, mode, wait_s, ttl)]}


async def release(asked: Asked, *, globs: Globs = (), fences: Fences = ()) -> dict[str, Any]:
    """Release leases of the attempt, without both all that it holds. Returns `released`."""
    return {"released": [shape(lease) for lease in asked.memory.leases.release(_asker(asked), globs, fences)]}


async def list_held(asked: Asked) -> dict[str, Any]:
    """Return `leases` and `waiting` of the agent's project."""
    return _held(asked.memory.leases, _asker(asked).project)


async def check(asked: Asked, *, path: Annotated[str, Bound(1, PATH_MAX)], cwd: Annotated[str, Bound(0, PATH_MAX)] = "") -> dict[str, Any]:
    """Say whether a write is welcome: `path` from the root, `decision` (deny, warn or nothing) and `why`. `cwd`: where `path` begins when
    it is relative."""
    said, found = said_of(asked.loop, asked.home, asked.memory.leases, _asker(asked), path, cwd)
    return {"path": found, "decision": said.decision, "why": said.why}


async def list_of_project(memory: MemoryDesk, *, project: Project) -> dict[str, Any]:
    """Return `leases` and `waiting` of a project, for a person."""
    return _held(memory.leases, project)


async def end(memory: MemoryDesk, *, project: Project, fences: Fences, why: Word) -> dict[str, Any]:
    """Release leases of anybody, for a person. Returns `released`. Raises NotFound, DiskFull, LedgerError."""
    ended = memory.leases.force(project, fences, why)
    if not ended:
        raise NotFound("no such lease", on=", ".join(map(str, fences))[:100], why="nobody holds it", hint="nightcrew mem leases")
    return {"released": [shape(lease) for lease in ended]}


def _held(desk: LeaseDesk, project: str) -> dict[str, Any]:
    return {"leases": [shape(lease) for lease in desk.held(project)], "waiting": desk.waiting(project)}


OF_AGENT: Mapping[str, Handler] = {"take": take, "release": release, "ls": list_held, "check": check}
OF_PERSON: Mapping[str, Handler] = {"ls": list_of_project, "release": end}


def shape(lease: Lease) -> dict[str, Any]:
    """As agents and `--json` have it."""
    times = {name: rfc3339(getattr(lease, name)) for name in ("acquired", "expires")}
    same = {name: getattr(lease, name) for name in ("fence", "glob", "task", "epoch", "renews")}
    return {**same, "mode": str(lease.mode), **times}


# Lease hooks
# -----------
# What an agent's command line is told before it writes a file, by the hook that it calls then.
#
# Claude Code and Codex read the same words on the hook's stdout (`hookSpecificOutput`): a decision `deny` with its reason, which
# the model is shown, or `additionalContext`, which it is shown beside the tool's result. Codex writes files by `apply_patch`, whose
# patch names them.


EVENT = "PreToolUse"
PATHS_MAX = 200
"""Files of one patch that are looked at."""
_FILE = {"Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_PATCHES = frozenset({"apply_patch"})
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.MULTILINE)


def answer(loop: Loop, home: Home, desk: LeaseDesk, key: tuple[str, int], name: str, event: dict[str, Any] | None) -> dict[str, Any]:
    """What the hook of a living attempt gets: `print`, the object to print, or nothing."""
    if name != EVENT or not event or not (paths := written(event)):
        return {}
    who, cwd = asker(loop, *key), event.get("cwd")
    said = [said_of(loop, home, desk, who, path, cwd if isinstance(cwd, str) else "")[0] for path in paths]
    if denied := next((one for one in said if one.decision == "deny"), None):
        return _printed({"permissionDecision": "deny", "permissionDecisionReason": denied.why})
    warned = next((one for one in said if one.decision == "warn" and one.is_new), Said())
    return beside(warned.why) if warned.why else {}


def beside(text: str) -> dict[str, Any]:
    """Return the answer that shows the model a text beside the tool's result."""
    return _printed({"additionalContext": text})


def written(event: dict[str, Any]) -> list[str]:
    """The files that a tool is about to write, as it names them."""
    tool, given = event.get("tool_name"), event.get("tool_input")
    if not isinstance(given, dict) or not isinstance(tool, str):
        return []
    if tool in _PATCHES:
        patch = next((text for text in (given.get("command"), given.get("input"), given.get("patch")) if isinstance(text, str)), "")
        found: list[Any] = [match[1] for match in _PATCHED.finditer(patch)][:PATHS_MAX]
    else:
        found = [given.get(_FILE.get(tool, ""))]
    return [path for path in found if isinstance(path, str) and 0 < len(path) <= PATH_MAX]


def _printed(more: dict[str, str]) -> dict[str, Any]:
    return {"print": {"hookSpecificOutput": {"hookEventName": EVENT, **more}}}
