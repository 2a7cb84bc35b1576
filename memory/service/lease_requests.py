"""Requests about leases, from agents, people and hooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from memory.service.arguments import Args, find
from memory.service.leases import TTL_MAX_S, Asker, LeaseDesk, Said
from supervisor.kernel import leases
from supervisor.kernel.errors import NotFound, Refused, UsageError
from supervisor.kernel.format import rfc3339
from supervisor.kernel.leases import GLOBS_MAX, Lease, Mode
from supervisor.kernel.path_globs import normalised

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from supervisor.host.paths import Home
    from supervisor.server.loop import Loop


# Lease verbs
# -----------
# The verb `lease`, for agents at `agents.sock` and for people at `daemon.sock`. `op` is one of
#
# - take: `globs`, `mode` (exclusive, or shared), `wait_s`, `ttl`. All of the patterns or none. Returns `leases`. - release:
# `globs`, `fences`; without both, all that the attempt holds. A person gives `fences` and `why`. Returns `released`. - ls: returns
# `leases` and `waiting`. - check: `path`, and `cwd` where it is relative. Whether a write there is welcome: `path` from the root,
# `decision` (deny, warn or nothing) and `why`.


WAIT_MAX_S = 3600.0
PATH_MAX = 4096
WORD_MAX = 200
_FAMILY_MAX = 32

Op = Callable[[LeaseDesk, Asker, Args], Coroutine[Any, Any, dict[str, Any]]]


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


async def of_agent(loop: Loop, home: Home, desk: LeaseDesk, key: tuple[str, int], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a living attempt asks. Raises UsageError, Refused, Deadlock, TimedOut, Chosen, StaleEpoch, DiskFull, LedgerError."""
    ops: Mapping[str, Op] = {"take": _take, "release": _release, "ls": _ls}
    who, args, op = asker(loop, *key), Args(given), find(given.get("op"), (*ops, "check"))
    if op == "check":
        path, cwd = args.text("path", PATH_MAX, exact=True), args.optional("cwd", PATH_MAX) or ""
        said, found = said_of(loop, home, desk, who, path, cwd)
        return {"path": found, "decision": said.decision, "why": said.why}
    return await ops[op](desk, who, args)


async def of_person(memory: MemoryDesk, **given: Any) -> dict[str, Any]:
    """What a person asks of a `project`: ls, or release, of anybody's, with a `why`. Raises UsageError, NotFound, DiskFull, LedgerError."""
    args = Args(given)
    project, desk = args.text("project", PATH_MAX), memory.leases
    match args.get("op"):
        case "ls":
            return {"leases": [shape(lease) for lease in desk.held(project)], "waiting": desk.waiting(project)}
        case "release":
            fences = _fences(args)
            ended = desk.force(project, fences, args.text("why", WORD_MAX))
            if not ended:
                raise NotFound("no such lease", on=", ".join(map(str, fences))[:100], why="nobody holds it", hint="nightcrew mem leases")
            return {"released": [shape(lease) for lease in ended]}
        case _:
            raise UsageError("not a request", on="op", why="a person may ls and release")


def said_of(loop: Loop, home: Home, desk: LeaseDesk, who: Asker, path: str, cwd: str = "") -> tuple[Said, str | None]:
    """What is to be said of a write of an attempt, and its path from the root; None: it is not in its worktree, and nobody's."""
    row = loop.ledger.attempt(who.task, who.epoch)
    found = leases.below_root(path, [row.worktree or "" if row is not None else "", str(home.same_path(who.project))], cwd)
    return (desk.write(who, found), found) if found is not None else (Said(), None)


async def _take(desk: LeaseDesk, who: Asker, args: Args) -> dict[str, Any]:
    globs = _globs(args)
    mode = args.one_of("mode", Mode.EXCLUSIVE)
    if not globs:
        raise UsageError("not a request", on="globs", why="at least one pattern")
    if why := leases.why_not(globs, who.given):
        raise Refused("not given", on=who.task, why=why, kept="what it holds already")
    ttl_s = args.number("ttl", 1.0, TTL_MAX_S, 1.0) if args.get("ttl") is not None else None
    given = await desk.take(who, globs, mode, args.number("wait_s", 0.0, WAIT_MAX_S), ttl_s)
    return {"leases": [shape(lease) for lease in given]}


async def _release(desk: LeaseDesk, who: Asker, args: Args) -> dict[str, Any]:
    fences = _fences(args) if args.get("fences") else []
    return {"released": [shape(lease) for lease in desk.release(who, _globs(args), fences)]}


async def _ls(desk: LeaseDesk, who: Asker, _: Args) -> dict[str, Any]:
    return {"leases": [shape(lease) for lease in desk.held(who.project)], "waiting": desk.waiting(who.project)}


def shape(lease: Lease) -> dict[str, Any]:
    """As agents and `--json` have it."""
    times = {name: rfc3339(getattr(lease, name)) for name in ("acquired", "expires")}
    same = {name: getattr(lease, name) for name in ("fence", "glob", "task", "epoch", "renews")}
    return {**same, "mode": str(lease.mode), **times}


def _globs(args: Args) -> list[str]:
    try:
        return [normalised(glob) for glob in args.texts("globs", GLOBS_MAX, PATH_MAX)]
    except ValueError as error:
        raise UsageError("bad pattern", why=str(error)) from None


def _fences(args: Args) -> list[int]:
    given = args.get("fences")
    if not isinstance(given, list) or not given or len(given) > 1000 or not all(type(one) is int and 0 < one < 2**63 for one in given):
        raise UsageError("not a request", on="fences", why="a list of the numbers that ls shows")
    return given


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
