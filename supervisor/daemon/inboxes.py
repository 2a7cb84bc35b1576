"""Texts for headless agents: a file each in the attempt's inbox, which the agent's driver reads when a turn ends (`agents.turns`).

The files and what the agent printed are all that tells: each step finds out what was done and goes on from there, so no text is given to
an agent twice, whoever dies between two steps. All functions read and write files: call them in a thread.
"""

from __future__ import annotations

from pathlib import Path

from agents.kinds import of_task
from agents.protocols import Live
from supervisor.core.spec import TaskSpec
from supervisor.daemon.agent_streams import Stream
from supervisor.daemon.launch_files import INBOX
from supervisor.host import files
from supervisor.host.paths import Home

Key = tuple[str, int]


def reads(spec: TaskSpec) -> bool:
    """Whether its agent has an inbox."""
    kind = of_task(spec.kind)
    return kind.takes_input and not kind.owns_terminal(interactive=spec.interactive)


def put(home: Home, key: Key, number: int, text: str) -> None:
    """Put a text into the inbox of an attempt; nothing when it is there already. Raises HostError, DiskFull."""
    file = _file(home, key, number)
    if not file.exists():
        files.atomic_write(file, text.encode("utf-8", "replace"), durable=False)


def there(home: Home, key: Key, number: int) -> bool:
    """Whether it was put there."""
    return _file(home, key, number).exists()


def take_back(home: Home, task: str, number: int) -> None:
    """Remove a text that `fate` knows nothing of from the inboxes of a task's attempts."""
    for epoch in _epochs(home, task):
        _file(home, (task, epoch), number).unlink(missing_ok=True)


def fate(home: Home, task: str, protocol: str, number: int) -> tuple[int, Live] | None:
    """The newest attempt of a task that was given the text, and what it said; None when none was. Raises ToolFailed."""
    for epoch in _epochs(home, task):
        if not there(home, (task, epoch), number):
            continue
        stream = Stream(home.attempt(task, epoch) / "stdout.log", protocol)
        while stream.read():
            pass
        if stream.live.given >= number:
            return epoch, stream.live
    return None


def _epochs(home: Home, task: str) -> list[int]:
    """Of its attempts that have records, the newest first."""
    attempts = home.attempt(task, 0).parent
    if not attempts.is_dir():
        return []
    return sorted((int(folder.name) for folder in attempts.iterdir() if folder.name.isdecimal()), reverse=True)


def _file(home: Home, key: Key, number: int) -> Path:
    return home.attempt(*key) / INBOX / f"{number}.txt"
