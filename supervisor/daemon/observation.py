"""Observes each attempt: its pane, its records, whether it lives. Looking changes nothing.

Safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from agents.tmux import PaneView, ServerGone, Tmux
from supervisor.core import records, recovery
from supervisor.core.records import Exit, Started
from supervisor.core.recovery import Life, Verdict
from supervisor.host import files, foreign, processes
from supervisor.host.paths import Home
from supervisor.ledger.rows import AttemptRow

Key = tuple[str, int]
RECORD_MAX = 64 * 1024
HOME_OPTION, ATTEMPT_OPTION = "home", "attempt"


class Seen(Enum):
    """What a look at one attempt found."""

    STARTING = "a pane is there, the runner has not written started.json"
    LIVE = "the runner lives"
    WORKED = "the runner lives; its gate waits until the agent's work is secured"
    ENDED = "the runner wrote how it ended"
    GONE = "neither record nor life"


class Observer:
    """Observes the attempts of one supervisor."""

    def __init__(self, home: Home, tmux: Tmux) -> None:
        self._home = home
        self._tmux = tmux
        self._tag_home = records.tag(str(home.root), "", 0).partition(":")[0]
        self._started: dict[Key, Started] = {}
        self._spawned: dict[Key, tuple[int, tuple[str, str]]] = {}

    def tags(self, task: str, epoch: int) -> dict[str, str]:
        """The options by which the session of an attempt is known again."""
        return {HOME_OPTION: self._tag_home, ATTEMPT_OPTION: records.attempt_name(task, epoch)}

    def look(self, keys: Iterable[Key]) -> dict[Key, Seen]:
        """What is there of each attempt now: life first, the record last. Raises ToolFailed when tmux cannot be asked."""
        panes = self.panes()
        return {key: self._seen(key, panes.get(key)) for key in keys}

    def recover(self, rows: Iterable[AttemptRow]) -> dict[Key, Seen | None]:
        """As `look`, for every attempt that the ledger holds; None for one that never started. A tmux server runs afterwards."""
        self._tmux.ensure_server()
        panes = self.panes()
        found: dict[Key, Seen | None] = {}
        for row in rows:
            key = (row.task, row.epoch)
            verdict = self._verdict(key, panes.get(key))[0]
            found[key] = None if verdict is Verdict.NEVER_STARTED else self._as_seen(key, verdict)
        return found

    def panes(self) -> dict[Key, PaneView]:
        """The pane that each attempt's runner was given. Panes that a person split off carry no pane tag and are left out."""
        try:
            panes = self._tmux.panes()
        except ServerGone:
            return {}  # a look that succeeded: no server, so no pane
        found: dict[Key, PaneView] = {}
        for pane in panes:
            task, _, epoch = pane.tags.get(ATTEMPT_OPTION, "").rpartition(":")
            if pane.tags.get(HOME_OPTION) == self._tag_home and epoch.isdigit():
                found[(task, int(epoch))] = pane
        return found

    def is_shown(self, tty: str) -> bool:
        """As `Tmux.is_shown`; a server that is gone shows nothing of its own, so the terminal is another."""
        try:
            return self._tmux.is_shown(tty)
        except ServerGone:
            return True

    def spawned(self, key: Key, server: int, session_id: str, pane_id: str) -> None:
        """tmux gave it this session and pane."""
        self._spawned[key] = server, (session_id, pane_id)

    def place(self, key: Key) -> tuple[str, str] | None:
        """Its session and its pane, by their ids; None when it has none. What we spawned ourselves is not looked for: a server gives no id
        twice, and one that has ended since then has another pid. It may be closed by now. Raises ToolFailed when tmux cannot be asked."""
        server, ids = self._spawned.get(key, (None, None))
        now = self._tmux.server_pid()
        if ids is not None and server == now:
            return ids
        panes = self.panes()
        if now is not None and now == self._tmux.server_pid():  # an adopted crew is looked for once, not once for each of its agents
            self._spawned |= {found: (now, (pane.session_id, pane.pane_id)) for found, pane in panes.items()}
        pane = panes.get(key)
        return (pane.session_id, pane.pane_id) if pane is not None else None

    def _seen(self, key: Key, pane: PaneView | None) -> Seen:
        return self._as_seen(key, self._verdict(key, pane)[0])

    def _as_seen(self, key: Key, verdict: Verdict) -> Seen:
        match verdict:
            case Verdict.RECORDED:
                record = self.record(key)
                return Seen.ENDED if record is not None and not record.survivors else Seen.GONE
            case Verdict.LIVE:
                if key not in self._started:
                    return Seen.STARTING
                return Seen.WORKED if self._gate_waits(key) else Seen.LIVE
            case Verdict.LOST | Verdict.NEVER_STARTED:
                return Seen.GONE

    def _gate_waits(self, key: Key) -> bool:
        directory = self._home.attempt(*key)
        return (directory / records.WORKED).exists() and not (directory / records.SECURED).exists()

    def _verdict(self, key: Key, pane: PaneView | None) -> tuple[Verdict, Exit | None]:
        started = self.started(key)
        life = Life(
            pane=pane is not None and not pane.dead and processes.identity(pane.pid) is not None,
            runner=started is not None and processes.alive(started.identity),
            started=started is not None,
        )
        record = None if life.runner and pane is not None and not pane.dead else self.record(key)
        return recovery.verdict(life, record), record

    def started(self, key: Key) -> Started | None:
        """What its runner wrote when it began; None while there is nothing to believe."""
        if key not in self._started:
            text = self._text(key, "started.json")
            started = records.parse_started(text) if text is not None else None
            if started is not None and not self._is_forged(key, started):
                self._started[key] = started
        return self._started.get(key)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of an attempt: nothing of it is left."""
        self._started.pop(key, None)
        self._spawned.pop(key, None)

    def _is_forged(self, key: Key, started: Started) -> bool:
        """It names a living process that is no runner of this attempt: without a sandbox an agent can write that, and `stop` would
        kill whom it names."""
        who = started.identity
        return processes.alive(who) and not processes.runs_with(who.pid, str(self._home.attempt(*key)))

    def record(self, key: Key) -> Exit | None:
        """How its runner says that it ended; None while there is nothing to read."""
        text = self._text(key, "exit.json")
        return records.parse_exit(text) if text is not None else None

    def _text(self, key: Key, name: str) -> str | None:
        data = foreign.read_plain(self._home.attempt(*key) / name, RECORD_MAX)
        return data.decode("utf-8", "replace") if data is not None else None

    def server_of(self, task: str, epoch: int) -> int | None:
        """The tmux server that holds its pane; None when that died, even if another one runs by now."""
        server = self._tmux.server_pid()
        return server if (task, epoch) in self.panes() else None

    def disk_free(self) -> int:
        """Free bytes where the state lies."""
        return files.free_bytes(self._home.root)
