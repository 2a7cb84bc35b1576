"""Tokens of agents that own their terminal, by the files in which their programs keep their sessions, compared with what the gateway saw.

While they live, before a text is sent to them, and at their end (`session_desk`, `ending`). Only what has grown of a file is read. Kinds
whose files are not known (`protocols.READERS`) are not compared, and neither are sessions that an agent begins beside its own. A file in
the person's home is read as it is: agents without a sandbox can write there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agents import protocols
from agents.kinds import of_task
from agents.protocols import Outcome, Recorded
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.kind import Kind
from supervisor.server.attempts import continuing, kind_protocol, model_usage
from supervisor.store.conversations import Held
from supervisor.store.rows import AttemptRow, LaunchRow

CHUNK = 2**20
"""Bytes that are read at once. A longer line is left out."""


@dataclass(slots=True)
class Session:
    """How far the file of one attempt's session was read, and what it has said by then. Belongs to one thread a time."""

    protocol: str
    recorded: Recorded
    file: Path | None = None
    counted: bool = True
    """All that was read was compared with what the gateway saw."""
    _begin: int = 0

    def read(self, file: Path, below: Path | None) -> None:
        """Read what the file has more. Raises ToolFailed."""
        self.file = file
        while (found := untrusted_fs.read_on(file, self._begin, CHUNK, below)) is not None:
            end = found[0].rfind(b"\n") + 1
            if not end and len(found[0]) < CHUNK:
                break  # a line that is being written
            self.recorded.add(self.protocol, [found[0][:end]])
            self._begin += end or CHUNK
            self.counted = False


def has(kind: Kind, *, interactive: bool) -> bool:
    """Whether the agent's program keeps a session whose tokens we can read, and nothing else says them."""
    return kind.owns_terminal(interactive=interactive) and kind.protocol in protocols.READERS and bool(kind.transcript)


def count(home: Home, row: AttemptRow, launch: LaunchRow, held: Held | None, session: Session | None = None) -> str:
    """Have the gateway count what the agent took past it, by the file of the session that it has (`held`); empty, or why that could not be
    done. With `session`, the agent lives, and was read so far before. Raises ToolFailed."""
    kind = of_task(launch.spec.kind)
    if held is None or not held.session or not has(kind, interactive=launch.spec.interactive):
        return ""
    lives, session = session is not None, session or Session(kind.protocol, Recorded(row.created))
    if (file := session.file or continuing.transcript_of(home, launch, kind, held)) is None:
        return ""
    own = home.attempt(row.task, row.epoch)
    session.read(file, own if file.is_relative_to(own) else None)
    if session.counted or (lives and model_usage.is_asking(home, row.task, row.epoch)):
        return ""  # the gateway knows what a request took when it has ended
    session.counted = True
    return charge(home, row, launch, session.recorded.outcome(), first=True)


def charge(home: Home, row: AttemptRow, launch: LaunchRow, said: Outcome, *, first: bool) -> str:
    """Have the gateway count what the agent took past it, by what it `said`; empty, or why it could not. See `kind_protocol.past`."""
    spent = model_usage.of_attempt(home, row.task, row.epoch, expected=True)
    if (past := kind_protocol.beyond_exit_status(said, spent, first=first)) is None:
        return ""
    return model_usage.charge_past(home, row, launch.spec, (*said.models, launch.spec.model)[0], past, spent.past)
