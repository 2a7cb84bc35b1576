"""Whether an attempt goes on with a conversation, and with which: decided once, before anything of it starts, and kept in the ledger.

A task that was lost goes on with its own (`on_loss`), one that says `continue_from` with a copy of another task's, and what `nightcrew ask`
hands over with the other task's own. Where the first of these cannot be, the attempt begins anew, and its history says why; the others
are refused, since without the conversation they mean nothing.
"""

# ruff: noqa: PTH207
# (a pattern goes on from a root that is text)

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.kinds import to_run
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel import names
from supervisor.kernel.conversations import COULD_NOT, How, Origin, is_limited
from supervisor.kernel.errors import HostError, Refused
from supervisor.kernel.kind import Kind
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End
from supervisor.sandbox import homes as agent_homes
from supervisor.store.conversations import Before, Held
from supervisor.store.rows import LaunchRow

TRANSCRIPT_MAX = 256 * 2**20
"""Bytes of a transcript that we hand on ourselves."""
FILES_MAX, DEPTH_MAX = 1000, 3
OUT = "{out}/"


def session_of(home: Home, task: str, epoch: int) -> str:
    """The id of a conversation that begins with this attempt: the same whenever it is asked for."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, names.tag(str(home.root), task, epoch)))


def wanted(launch: LaunchRow, kind: Kind, before: Before, *, missed: bool) -> Iterator[tuple[How, Sequence[Held]]]:
    """The conversations that the attempt is to continue, the best first, each with everybody who had it; none: it begins anew. `missed`:
    the attempt before did not pass its gate."""
    goes_on = launch.spec.on_loss != "restart" and can_go_on(launch.spec, kind)
    if before.mine and goes_on and (missed or _ended_early(before.mine[0])):
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
    if name := _below_out(kind, held.session):
        return _size(home, (held.task, held.epoch), name) in range(1, TRANSCRIPT_MAX + 1)
    env = {**launch.env, **launch.spec.params}
    copy = _copy_of(home, (held.task, held.epoch), kind, env, held.session)
    if copy is not None and copy.transcript():
        return True
    return any(map(_is_file, _in_home(kind, env, held.session)))


def _in_home(kind: Kind, env: Mapping[str, str], session: str) -> Iterator[str]:
    """The transcripts of a conversation in the person's home."""
    root, rest = _pattern(kind, env)
    if root:
        yield from glob.iglob(f"{glob.escape(root)}/{rest.replace('{session}', glob.escape(session))}")


def _pattern(kind: Kind, env: Mapping[str, str]) -> tuple[str, str]:
    """The directory and the pattern below it where a kind keeps its transcripts; ("", "") when nothing says where."""
    for pattern in kind.transcript:
        variable, _, rest = pattern.partition("/")
        root = env.get("HOME", "/") if variable == "~" else env.get(variable.removeprefix("$"), "")
        if root:
            return root, rest
    return "", ""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A confined attempt's copy of the directory in which its kind keeps transcripts."""

    attempt: Path
    own: str
    """Below the attempt's directory."""
    real: str
    """The directory in the person's home, free of links."""
    pattern: str
    """The transcripts of the conversation, below either."""

    def transcript(self) -> str:
        """The conversation's file, below either; empty when there is none, or it is too large to hand on."""
        found = agent_homes.matching(self.attempt, self.own, self.pattern)
        return next((path[len(self.own) + 1 :] for path, seen in found if 0 < seen.st_size <= TRANSCRIPT_MAX), "")


def _copy_of(home: Home, key: tuple[str, int], kind: Kind, env: Mapping[str, str], session: str) -> _Copy | None:
    """The copy that the attempt of `key` has; None when it has none."""
    homes = agent_homes.of(home.attempt(*key))
    path, rest = _pattern(kind, env)
    while homes is not None and path and rest:
        real = os.path.realpath(path)
        if own := homes.own(real):
            return _Copy(home.attempt(*key), own, real, rest.replace("{session}", glob.escape(session)))
        first, _, rest = rest.partition("/")
        path = f"{path}/{first}"
    return None


def transcript_of(home: Home, launch: LaunchRow, kind: Kind, held: Held) -> Path | None:
    """Return the file in which a kind's own program keeps a conversation: in a confined attempt's copy of the program's home, else in the
    person's; None when there is none. A file in a copy lies below the attempt's directory, where an agent can write."""
    env = {**launch.env, **launch.spec.params}
    copy = _copy_of(home, (held.task, held.epoch), kind, env, held.session)
    if copy is not None:
        name = copy.transcript()
        return copy.attempt / copy.own / name if name else None
    found = next(filter(_is_file, _in_home(kind, env, held.session)), "")
    return Path(found) if found else None


def _is_file(path: str) -> bool:
    """A plain file with something in it; it is not opened."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def _below_out(kind: Kind, session: str) -> str:
    """The path of the transcript within the attempt's records, of a kind that keeps it there; else empty."""
    pattern = next((pattern for pattern in kind.transcript if pattern.startswith(OUT)), "")
    return f"out/{pattern.removeprefix(OUT).replace('{session}', session)}" if pattern else ""


def _size(home: Home, key: tuple[str, int], name: str) -> int:
    """Bytes of a file that an agent keeps among its records; 0 when there is none, or something else."""
    below, _, last = name.rpartition("/")
    try:
        with untrusted_fs.folder(home.attempt(*key), below) as place:
            found = place.look(last)
    except OSError:
        return 0
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0


def hand_on(home: Home, key: tuple[str, int], kind: Kind, origin: Origin, env: Mapping[str, str]) -> None:
    """Copy the transcript of the conversation to where the attempt's agent looks for it, once its copy of the home is made; may be
    repeated. A last line that was cut off is left out. Raises HostError when it is gone or too large."""
    had = (origin.task, origin.epoch)
    if name := _below_out(kind, origin.session):
        below, _, last = name.rpartition("/")
        _give(last, _transcript(home.attempt(*had), below, last), home.attempt(*key), below)
        return
    before, now = _copy_of(home, had, kind, env, origin.session), _copy_of(home, key, kind, env, origin.session)
    name = before.transcript() if before is not None else ""
    if before is not None and name:
        below, _, last = f"{before.own}/{name}".rpartition("/")
        data = _transcript(before.attempt, below, last)
    elif now is not None:  # an agent without a sandbox had it, or one of an earlier nightcrew
        real = next(filter(_is_file, glob.iglob(f"{glob.escape(now.real)}/{now.pattern}")), "")
        if not real:
            return
        name = real[len(now.real) + 1 :]
        data = _transcript(Path(real).parent, "", Path(real).name)
    else:
        return  # the same home for both
    below, _, last = name.rpartition("/")
    if now is not None:
        _give(last, data, now.attempt, f"{now.own}/{below}", once=True)
        beside = name.removesuffix(".jsonl")
        if before is not None and beside != name:
            _give_files((before.attempt, f"{before.own}/{beside}"), (now.attempt, f"{now.own}/{beside}"))
    elif before is not None:
        Path(before.real, below).mkdir(parents=True, exist_ok=True)
        _give(last, data, Path(before.real, below), "", once=True)


def _give_files(source: tuple[Path, str], target: tuple[Path, str]) -> None:
    """Copy what Claude Code keeps of a conversation beside its transcript, such as long outputs of tools; not over what is there. At most
    FILES_MAX files of TRANSCRIPT_MAX bytes together: without them the conversation goes on too."""
    left = TRANSCRIPT_MAX
    with contextlib.suppress(OSError):
        for path, here, entry in itertools.islice(untrusted_fs.entries(*source), FILES_MAX):
            below = path[len(source[1]) :]
            data = here.read(entry.name, left + 1) if below.count("/") <= DEPTH_MAX else None
            left -= len(data or b"")
            if left < 0:
                return
            if data is not None:
                with untrusted_fs.folder(target[0], target[1] + below, make=True) as place:
                    place.create(entry.name, data, mode=0o600)


def _transcript(top: Path, below: str, name: str) -> bytes:
    """The whole lines of a transcript. Raises HostError when it is gone or too large."""
    try:
        with untrusted_fs.folder(top, below) as place:
            data = place.read(name, TRANSCRIPT_MAX + 1)
    except OSError as error:
        raise HostError("cannot hand on a conversation", on=name, why=error.strerror or str(error)) from error
    if not data or len(data) > TRANSCRIPT_MAX:
        raise HostError("cannot hand on a conversation", on=name, why="it is too large" if data else "it is gone")
    return data[: data.rfind(b"\n") + 1]


def _give(name: str, data: bytes, top: Path, below: str, *, once: bool = False) -> None:
    """Write a transcript to the directory `below` of `top`, which is made. `once`: not over a file that is there already."""
    try:
        with untrusted_fs.folder(top, below, make=True) as place:
            if not once or place.look(name) is None:
                place.replace(name, data, mode=0o600)
    except OSError as error:
        raise HostError("cannot hand on a conversation", on=name, why=error.strerror or str(error)) from error
