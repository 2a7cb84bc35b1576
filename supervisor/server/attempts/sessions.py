"""Tokens of agents that own their terminal, by the files in which their programs keep their sessions, compared with what the gateway saw.

While they live, before a text is sent to them, and at their end (`agents`, `collect`). Only what has grown of a file is read; what was
counted once stays counted (`Kept`), whatever becomes of the file. Kinds whose files are not known (`protocols.READERS`) are not compared,
and neither are sessions that an agent begins beside its own. A file in the person's home is read as it is: agents without a sandbox can
write there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agents import protocols
from agents.kinds import of_task
from agents.protocols import Outcome, Recorded
from supervisor.host import files, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.kind import Kind
from supervisor.server.attempts import continuing, kind_protocol, model_usage
from supervisor.store.conversations import Held
from supervisor.store.rows import AttemptRow, LaunchRow

CHUNK = 2**20
"""Bytes that are read at once. A longer line is left out."""
RECORD = "session.json"
"""Among an attempt's records: `Kept`."""
RECORD_MAX = 32 * 2**20


@dataclass(slots=True)
class Kept:
    """What stays counted of an attempt, also when the file of its session is gone."""

    recorded: Recorded
    longest: int = 0
    """Bytes of the longest file of it that was read."""
    shrank: bool = False
    """A file of it was shorter than one before, or gone."""


@dataclass(slots=True)
class Session:
    """How far the file of one attempt's session was read, and what it has said by then. Belongs to one thread a time; `close` it."""

    protocol: str
    lives: bool = False
    """The agent does, so the file may grow and the gateway may be asked just now."""
    holds: bool = False
    """The file stays open between two looks, so that what is written before it is deleted is read all the same."""
    kept: Kept | None = None
    """None before the first look."""
    told: bool = False
    """A person was told that it shrank."""
    place: Path | None = None
    counted: bool = True
    """All that was read was compared with what the gateway saw."""
    _file: IO[bytes] | None = None
    _identity: tuple[int, int] = (0, 0)
    _begin: int = 0

    def close(self) -> None:
        """Close its file; the next look opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, kept: Kept, find: Callable[[], Path | None], own: Path) -> bool:
        """Read what the session's file has more, the whole file when another one has its place; whether `kept` changed. `find` looks for it
        where it was not read yet, or is no more; `own` is the directory of the attempt. Raises ToolFailed."""
        more, shrank = self._file is not None and self._read_on(kept, self._file), kept.shrank
        if (now := self._opened(own) or self._found(find, own)) is None:
            kept.shrank = shrank or kept.longest > 0
            return more or kept.shrank != shrank
        self.close()
        self._file, seen = now, os.fstat(now.fileno())
        kept.shrank = shrank or seen.st_size < kept.longest
        if (seen.st_dev, seen.st_ino) != self._identity or seen.st_size < self._begin:
            self._identity, self._begin = (seen.st_dev, seen.st_ino), 0
        more = self._read_on(kept, now) or more
        if not self.holds:
            self.close()
        return more or kept.shrank != shrank

    def _found(self, find: Callable[[], Path | None], own: Path) -> IO[bytes] | None:
        self.place = find()
        return self._opened(own)

    def _opened(self, own: Path) -> IO[bytes] | None:
        if self.place is None:
            return None
        return untrusted_fs.open_there(self.place, own if self.place.is_relative_to(own) else None)

    def _read_on(self, kept: Kept, file: IO[bytes]) -> bool:
        begin = self._begin
        while piece := os.pread(file.fileno(), CHUNK, self._begin):
            end = piece.rfind(b"\n") + 1
            if not end and len(piece) < CHUNK:
                break  # a line that is being written
            kept.recorded.add(self.protocol, [piece[:end]])
            self._begin += end or CHUNK
        kept.longest = max(kept.longest, self._begin)
        self.counted = self.counted and self._begin == begin
        return self._begin != begin


def has(kind: Kind, *, interactive: bool) -> bool:
    """Whether the agent's program keeps a session whose tokens we can read, and nothing else says them."""
    return kind.owns_terminal(interactive=interactive) and kind.protocol in protocols.READERS and bool(kind.transcript)


def count(home: Home, row: AttemptRow, launch: LaunchRow, held: Held | None, session: Session) -> str:
    """Have the gateway count what the agent took past it, by the file of the session that it has (`held`); empty, or why that could not be
    done. May be repeated. Raises ToolFailed."""
    kind = of_task(launch.spec.kind)
    if held is None or not held.session or not has(kind, interactive=launch.spec.interactive):
        return ""
    own = home.attempt(row.task, row.epoch)
    if (kept := session.kept) is None:
        kept = session.kept = _kept(own, row)
        session.counted, session.told = not kept.longest, kept.shrank
    if session.read(kept, lambda: continuing.transcript_of(home, launch, kind, held), own):
        with contextlib.suppress(NightcrewError):  # a full disk: the next change is kept
            files.atomic_write(own / RECORD, codec.dumps(kept).encode(), durable=False)
    if session.counted or (session.lives and model_usage.is_asking(home, row.task, row.epoch)):
        return ""  # the gateway knows what a request took when it has ended
    session.counted = True
    return charge(home, row, launch, kept.recorded.outcome(), first=True)


def _kept(own: Path, row: AttemptRow) -> Kept:
    """What was counted before, maybe for another supervisor."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # without a sandbox an agent can write there
        return codec.loads(Kept, untrusted_fs.read_plain(own / RECORD, RECORD_MAX) or b"")
    return Kept(Recorded(row.created))


def charge(home: Home, row: AttemptRow, launch: LaunchRow, said: Outcome, *, first: bool) -> str:
    """Have the gateway count what the agent took past it, by what it `said`; empty, or why it could not. See `kind_protocol.past`."""
    spent = model_usage.of_attempt(home, row.task, row.epoch, expected=True)
    if (past := kind_protocol.beyond_exit_status(said, spent, first=first)) is None:
        return ""
    return model_usage.charge_past(home, row, launch.spec, (*said.models, launch.spec.model)[0], past, spent.past)
