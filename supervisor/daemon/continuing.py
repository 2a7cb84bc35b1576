"""Whether an attempt goes on with a conversation, and with which: decided once, before anything of it starts, and kept in the ledger.

A task that was lost goes on with its own (`on_loss`), one that says `continue_from` with a copy of another task's, and what `nightcrew ask`
hands over with the other task's own. Where the first of these cannot be, the attempt begins anew, and its history says why; the others
are refused, since without the conversation they mean nothing.
"""

# ruff: noqa: PTH207
# (a pattern goes on from a root that is text)

from __future__ import annotations

import glob
import os
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agents.kinds import to_run
from supervisor.core import records
from supervisor.core.conversations import COULD_NOT, How, Origin, is_limited
from supervisor.core.errors import HostError, Refused
from supervisor.core.kind import Kind
from supervisor.core.spec import TaskSpec
from supervisor.core.states import End
from supervisor.host import files, foreign
from supervisor.host.paths import Home
from supervisor.ledger.conversations import Before, Held
from supervisor.ledger.rows import LaunchRow

TRANSCRIPT_MAX = 256 * 2**20
"""Bytes of a transcript that we hand on ourselves."""
OUT = "{out}/"


def session_of(home: Home, task: str, epoch: int) -> str:
    """The id of a conversation that begins with this attempt: the same whenever it is asked for."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, records.tag(str(home.root), task, epoch)))


def wanted(launch: LaunchRow, kind: Kind, before: Before) -> Iterator[tuple[How, Sequence[Held]]]:
    """The conversations that the attempt is to continue, the best first, each with everybody who had it; none: it begins anew."""
    if before.mine and launch.spec.on_loss != "restart" and can_go_on(launch.spec, kind) and _ended_early(before.mine[0]):
        yield How.RESUME, before.mine
    if launch.spec.continue_from:
        yield How(launch.spec.continue_how), before.others


def can_go_on(spec: TaskSpec, kind: Kind) -> bool:
    """Whether the agent of a task that was lost can go on with its conversation."""
    return bool(kind.continues(How.RESUME, interactive=spec.interactive))


def _ended_early(held: Held) -> bool:
    """Whether an attempt was lost, or gave up for a limit that is over some time: not so one that could not go on with its conversation."""
    if held.end == End.LOST:
        return not held.end_cause.startswith(COULD_NOT)
    return held.end == End.FAILED and is_limited(held.reason)


def origin(home: Home, launch: LaunchRow, how: How, had: Sequence[Held]) -> Origin:
    """The conversation that `had` names. Raises Refused when nobody knows it, or its transcript is not there."""
    spec, kind = launch.spec, to_run(launch.spec.kind)
    on = had[0].task if had else spec.continue_from
    if not kind.continues(how, interactive=spec.interactive):
        raise _cannot(on, f"kind {kind.name} cannot {how} one")
    if not had:
        raise _cannot(on, "its agent never said how its conversation is called")
    start = next((held.tip for held in had if held.tip), "")
    if not start:
        raise _cannot(on, "nothing says where its work stood")
    found = next((held for held in had if held.end is not None and _has(home, launch, kind, held)), None)
    if found is None:
        raise _cannot(on, f"there is no transcript of {had[0].session}")
    return Origin(how, found.session, found.task, found.epoch, start)


def _cannot(on: str, why: str) -> Refused:
    return Refused("cannot continue the conversation", on=on, why=why, hint=f"nightcrew status {on}")


def _has(home: Home, launch: LaunchRow, kind: Kind, held: Held) -> bool:
    """Whether a transcript of the conversation is there, as that attempt had it; also where the kind does not say where it is."""
    if not kind.transcript:
        return True
    paths = _paths(kind, {**launch.env, **launch.spec.params}, home.attempt(held.task, held.epoch) / "out", held.session)
    most = TRANSCRIPT_MAX if any(pattern.startswith(OUT) for pattern in kind.transcript) else float("inf")
    return any(_is_file(path, most) for path in paths)


def _paths(kind: Kind, env: Mapping[str, str], out: Path, session: str) -> Iterator[str]:
    for pattern in kind.transcript:
        if pattern.startswith(OUT):
            yield str(out / _named(pattern, session))
            return
        variable, _, rest = pattern.partition("/")
        root = env.get("HOME", "/") if variable == "~" else env.get(variable.removeprefix("$"), "")
        if root:
            yield from glob.iglob(f"{glob.escape(root)}/{rest.replace('{session}', glob.escape(session))}")
            return


def _named(pattern: str, session: str) -> str:
    """Below `out`."""
    return pattern.removeprefix(OUT).replace("{session}", session)


def _is_file(path: str, most: float) -> bool:
    """A plain file with something in it; it is not opened."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and 0 < found.st_size <= most


def hand_on(home: Home, key: tuple[str, int], kind: Kind, origin: Origin) -> None:
    """Copy the transcript of a kind that keeps it among the attempt's records; may be repeated. A last line that was cut off is left out.
    Raises HostError when it is gone or too large."""
    name = next((_named(pattern, origin.session) for pattern in kind.transcript if pattern.startswith(OUT)), "")
    if not name:
        return
    source = home.attempt(origin.task, origin.epoch) / "out" / name
    data = foreign.read_plain(source, TRANSCRIPT_MAX + 1)
    if not data or len(data) > TRANSCRIPT_MAX:
        raise HostError("cannot hand on a conversation", on=str(source), why="it is too large" if data else "it is gone")
    place = home.attempt(*key) / "out" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    files.atomic_write(place, data[: data.rfind(b"\n") + 1], durable=False)
