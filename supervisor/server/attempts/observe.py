"""Observe attempts: panes, records, hooks and printed lines."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import hook_client, protocols
from agents.agent_state import NEEDS_PERSON, AgentState, Evidence, Heard, Source, Status, hear, permissions, tool
from agents.kinds import of_task
from agents.protocols import Live
from agents.tmux import ServerGone, Tmux
from agents.tmux_control import PaneView
from supervisor.gateway.admission.bucket import Bucket
from supervisor.host import files, processes, untrusted_fs
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel import names, records, recovery
from supervisor.kernel.errors import NightcrewError, Refused
from supervisor.kernel.records import Exit, Started
from supervisor.kernel.recovery import Life, Verdict
from supervisor.server.wakeups import Follower
from supervisor.store.rows import AttemptRow

if TYPE_CHECKING:
    from supervisor.host.clock import Clock
    from supervisor.server.attempts.jobs import Doors, Jobs


# Observation
# -----------
# Observes each attempt: its pane, its records, whether it lives. Looking changes nothing.
#
# Safe to use from several threads.


Key = tuple[str, int]
OBSERVATION_RECORD_MAX = 64 * 1024
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
        self._tag_home = names.tag(str(home.root), "", 0).partition(":")[0]
        self._started: dict[Key, Started] = {}
        self._spawned: dict[Key, tuple[int, tuple[str, str]]] = {}

    def tags(self, task: str, epoch: int) -> dict[str, str]:
        """The options by which the session of an attempt is known again."""
        return {HOME_OPTION: self._tag_home, ATTEMPT_OPTION: names.attempt_name(task, epoch)}

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
        data = untrusted_fs.read_plain(self._home.attempt(*key) / name, OBSERVATION_RECORD_MAX)
        return data.decode("utf-8", "replace") if data is not None else None

    def server_of(self, task: str, epoch: int) -> int | None:
        """The tmux server that holds its pane; None when that died, even if another one runs by now."""
        server = self._tmux.server_pid()
        return server if (task, epoch) in self.panes() else None

    def disk_free(self) -> int:
        """Free bytes where the state lies."""
        return files.free_bytes(self._home.root)


# Agent evidence
# --------------
# What agents say of themselves by hooks, kept for each attempt: `agents.sock` brings it, `status --explain` and deliveries ask for
# it.
#
# It outlives the supervisor: each change is in `hooks.json` among the attempt's records, and what nobody took meanwhile is in
# `hooks.jsonl`, which the hooks' client writes. The kernel keeps both through any crash of ours; after a power cut no agent is left
# to speak of.


RECORD = "hooks.json"
AGENT_EVIDENCE_RECORD_MAX = 2**18
"""More than everything that `Heard` keeps, written as JSON."""
KEPT_READ = 2**18
"""Bytes of the end of `hooks.jsonl` that are read, on the loop's thread: an agent can fill it with events of 50 bytes."""
RATE, BURST = 20.0, 200.0
"""Hooks a second that an attempt may send: one that calls tools as fast as it can sends a tenth of that."""
ASKING_RATE, ASKING_BURST = 0.5, 20.0
"""The same for what is told of permissions."""
_TOOLS_MAX = 50
_ATTEMPTS_MAX = 1024
"""In memory; what is dropped is read again."""


_WAITS = {"human": NEEDS_PERSON, "idle": frozenset({AgentState.IDLE, AgentState.INTERRUPTED})}
"""Kinds of states whose time is kept: it asked a person, and it can take the next prompt."""


@dataclass(slots=True)
class _Agent:
    heard: Heard
    session: str
    """Its own: the first one that spoke. An agent of the same kind that it starts has another, and comes later."""
    bucket: Bucket
    asking: Bucket
    """For what is told of permissions: each is a commit."""
    count: int = 0
    called: Counter[str] = field(default_factory=Counter)
    """Tools that it called, in all sessions of it."""
    refused: dict[str, int] = field(default_factory=dict)
    """Hooks by why they were left out."""
    waited: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By kind of `_WAITS`: seconds that are over, and since when it waits now (wall clock); 0.0: it does not."""

    def heard_now(self, heard: Heard, at: float) -> None:
        """It is so since `at`."""
        self.heard = heard
        for kind, waiting in _WAITS.items():
            seconds, since = self.waited.get(kind, (0.0, 0.0))
            waits = heard.evidence is not None and heard.evidence.state in waiting
            if since and not waits:
                self.waited[kind] = seconds + max(0.0, at - since), 0.0
            elif waits and not since:
                self.waited[kind] = seconds, at

    @property
    def asks(self) -> bool:
        """Whether it waits for a person."""
        return self.heard.evidence is not None and self.heard.evidence.state in NEEDS_PERSON

    def refuse(self, why: str) -> int:
        """How many were left out for this, with the one now."""
        self.refused[why] = self.refused.get(why, 0) + 1
        return self.refused[why]


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Result of a look at an agent's screen and session."""

    at: float
    """Monotonic seconds."""
    heard: list[Evidence]
    """Evidence of its hooks and its output at that time."""
    status: Status
    asked: bool
    """They said that it waits for a person."""


class AgentEvidence:
    """Belongs to the loop's thread."""

    def __init__(self, home: Home, clock: Clock, asked: Callable[[], None] = lambda: None) -> None:
        """`asked` is called when an agent begins to wait for a person."""
        self._asked = asked
        self._home = home
        self._clock = clock
        self._agents: OrderedDict[Key, _Agent] = OrderedDict()
        self._printed: OrderedDict[Key, Evidence] = OrderedDict()

    def has_spoken(self, key: Key) -> bool:
        """Whether the attempt has a session of its own."""
        return bool(self._agent(key).session)

    def speaker(self, session: str) -> str:
        """The task whose own session it is, as far as it has spoken to this supervisor; empty: nobody's."""
        return next((key[0] for key, agent in self._agents.items() if session and agent.session == session), "")

    def forged(self, key: Key) -> Refused:
        """Note that a hook of the attempt spoke for another task; what to answer."""
        count = self._agent(key).refuse("they name another agent's session")
        return Refused("not its session", on=key[0], why=f"another agent speaks in it; {count} were left out")

    def hook(self, key: Key, name: str, event: dict[str, Any] | None) -> list[tuple[str, str]]:
        """One event of a living attempt, whose token was checked. `event` is its own text, None when it was too long. Returns what it says
        of permissions, as `hooks.permissions` gives it; little of that when it is much. Raises Refused when it sends more than RATE."""
        agent = self._agent(key)
        now = self._clock.monotonic()
        if agent.bucket.wait_s(1.0, now) > 0:
            count = agent.refuse("it sends too many")
            raise Refused("too many hooks", on=key[0], why=f"more than {RATE:g} a second; {count} were left out")
        agent.bucket.take(1.0, now)
        before = agent.heard
        if called := tool(name, event or {}):
            agent.called[called if called in agent.called or len(agent.called) < _TOOLS_MAX else "other tools"] += 1
        self._hear(agent, {**(event or {}), "hook_event_name": name}, self._clock.wall())
        self._keep(key, agent)
        if agent.heard is not before and agent.asks:
            self._asked()
        told = permissions(before, agent.heard, name)
        if told and agent.asking.wait_s(1.0, now) > 0:
            return []
        agent.asking.take(float(len(told)), now)
        return told

    def answered(self, key: Key, what: str, *, allowed: bool) -> None:
        """Note that a person answered what an attempt asked, and that its dialog is gone. No hook tells of a refusal, and the record that
        Claude Code keeps of its session may be out of reach."""
        agent = self._agent(key)
        if not agent.asks:
            return
        state, words = (AgentState.WORKING, "") if allowed else (AgentState.INTERRUPTED, "a person said no")
        agent.count += 1
        at = self._clock.wall()
        pending = tuple(one for one in agent.heard.pending if one[1] != what)
        left = pending if pending != agent.heard.pending else ()
        agent.heard_now(Heard(Evidence(Source.HOOK, state, at, words, agent.session, agent.count), left if allowed else ()), at)
        self._keep(key, agent)

    def called(self, task: str, epoch: int) -> Mapping[str, int]:
        """How often an attempt called which tool, by its hooks."""
        return self._agent((task, epoch)).called

    def printed(self, key: Key, piece: Evidence) -> None:
        """What a headless agent says on its standard output by now."""
        self._printed[key] = piece
        self._printed.move_to_end(key)
        while len(self._printed) > _ATTEMPTS_MAX:
            self._printed.popitem(last=False)

    def of(self, key: Key) -> tuple[str, list[Evidence], dict[str, int]]:
        """The attempt's own session, empty while it has not spoken; the evidence of its hooks and its output; how many hooks this
        supervisor refused, by why."""
        agent = self._agent(key)
        return agent.session, [piece for piece in (agent.heard.evidence, self._printed.get(key)) if piece is not None], agent.refused

    def _hear(self, agent: _Agent, event: dict[str, Any], at: float) -> None:
        session = event.get("session_id")
        if isinstance(session, str) and session:
            agent.session = agent.session or session[:200]
            if session != agent.session:
                return  # a nested agent's: it must not speak for its parent
        agent.count += 1
        agent.heard_now(hear(agent.heard, event, at, agent.count), at)

    def _agent(self, key: Key) -> _Agent:
        found = self._agents.get(key)
        if found is None:
            found = self._agents[key] = self._read(key)
            while len(self._agents) > _ATTEMPTS_MAX:
                self._agents.popitem(last=False)
        self._agents.move_to_end(key)
        return found

    def _keep(self, key: Key, agent: _Agent) -> None:
        heard, shape = agent.heard, {"session": agent.session, "count": agent.count, "tools": agent.called}
        shape |= {"pending": heard.pending, "evidence": heard.evidence, "waited": agent.waited}
        data = json.dumps(shape, default=lambda piece: asdict(piece)).encode()
        if len(data) <= AGENT_EVIDENCE_RECORD_MAX:
            with contextlib.suppress(NightcrewError):  # a full disk: the next change is kept
                files.atomic_write(self._home.attempt(*key) / RECORD, data, durable=False)

    def _read(self, key: Key) -> _Agent:
        now = self._clock.monotonic()
        agent = _Agent(Heard(), "", Bucket(RATE, BURST, now), Bucket(ASKING_RATE, ASKING_BURST, now))
        directory = self._home.attempt(*key)
        with contextlib.suppress(
            ValueError, TypeError, KeyError, AttributeError, RecursionError
        ):  # without a sandbox an agent can write there
            shape = json.loads(untrusted_fs.read_plain(directory / RECORD, AGENT_EVIDENCE_RECORD_MAX) or b"")
            piece = shape["evidence"]
            evidence = None if piece is None else _evidence(piece)
            agent.session, agent.count = str(shape["session"]), int(shape["count"])
            agent.called = Counter({str(name): int(times) for name, times in shape.get("tools", {}).items()})
            agent.heard = Heard(evidence, tuple((str(tool), str(shown)) for tool, shown in shape["pending"]))
            agent.waited = _waited(shape)
        since = agent.heard.evidence.at if agent.heard.evidence is not None else 0.0
        for line in (untrusted_fs.read_plain(directory / "out" / hook_client.KEPT, KEPT_READ, tail=True) or b"").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                shape = json.loads(line)
                if since < (at := float(shape["at"])) <= self._clock.wall():
                    self._hear(agent, {**(shape["event"] or {}), "hook_event_name": str(shape["name"])}, at)
        return agent


def waited_for_person(directory: Path, ended: float, *, interactive: bool) -> float | None:
    """How many seconds an attempt that has ended waited for a person, by its hooks; None when it sent none. `directory` has its records.
    `interactive`: a person sat at it, so it waited for them also while it could take the next prompt."""
    try:
        waited = _waited(json.loads(untrusted_fs.read_plain(directory / RECORD, AGENT_EVIDENCE_RECORD_MAX) or b""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # without a sandbox an agent can write there
        return None
    counted = [times for kind, times in waited.items() if interactive or kind != "idle"]
    return sum(seconds + (max(0.0, ended - since) if since else 0.0) for seconds, since in counted)


def _waited(shape: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """`waited` of a record. Raises ValueError for what is no time."""
    found = {kind: (float(times[0]), float(times[1])) for kind, times in shape.get("waited", {}).items() if kind in _WAITS}
    if not all(math.isfinite(value) and value >= 0 for times in found.values() for value in times):
        raise ValueError("not a time")
    return found


def _evidence(shape: dict[str, Any]) -> Evidence:
    return Evidence(
        Source.HOOK, AgentState(shape["state"]), float(shape["at"]), str(shape["detail"]), str(shape["session"]), int(shape["sequence"])
    )


# Agent streams
# -------------
# What headless agents print, read while they run: once a second, and when somebody asks, only what has grown of each log, in a
# thread, at most CHUNK of one a time.
#
# Where the runner has capped a log nothing more is heard until the attempt ends. After a restart of the supervisor a log is read
# again from its beginning, so nothing needs to be kept.


EVERY_S = 0.9
"""A little less than the loop's tick, so that none is left out."""
STAYS_S = 45.0
"""Time limit for an agent to exit after its result. Claude Code takes 2 s, and waits for its background commands, which count as work
here."""
CHUNK = 2**20
"""Bytes of one log that are read at one look. A longer line is left out."""


@dataclass(slots=True)
class Stream:
    """How far one log was read, and what it has said by then. Belongs to one thread a time."""

    log: Path
    protocol: str
    live: Live = field(default_factory=Live)
    at: float = 0.0
    """When the newest line was written that told of its state, wall-clock seconds."""
    printed: float = 0.0
    """When anything was written."""
    _rests: tuple[int, float] | None = None
    """`live.heard` and the monotonic time when it was first seen to have given its result; None: it has not, or works again."""
    _begin: int = 0
    _inside: bool = False
    """A line that is too long is being passed by."""

    def read(self) -> bool:
        """One look; whether there may be more to read at once. Raises ToolFailed."""
        found = untrusted_fs.read_on(self.log, self._begin, CHUNK)
        if found is None:
            return False
        data, written = found
        self.printed = written
        end = data.rfind(b"\n") + 1
        lines = data[data.find(b"\n") + 1 : end] if self._inside else data[:end]
        if end:
            self._begin, self._inside = self._begin + end, False
        elif len(data) == CHUNK:
            self._begin, self._inside = self._begin + CHUNK, True
        before, self.live = self.live, protocols.follow(self.protocol, self.live, lines)
        self.at = written if self.live.heard != before.heard else self.at
        return len(data) == CHUNK

    def stays(self, now: float) -> bool:
        """Return whether its agent has given its result STAYS_S before `now` (monotonic) and has neither left nor gone on."""
        if self.live.state is not AgentState.IDLE or self.live.background:
            self._rests = None
        elif self._rests is None or self._rests[0] != self.live.heard:
            self._rests = self.live.heard, now
        return self._rests is not None and now - self._rests[1] >= STAYS_S

    def evidence(self, now: float) -> Evidence | None:
        """What it says of its agent's state; no clock but ours is believed to be ahead of ours."""
        if self.live.state is None:
            return None
        return Evidence(Source.PROTOCOL, self.live.state, min(self.at, now), self.live.detail, sequence=self.live.heard)


class AgentStreams(Follower[Stream]):
    """The streams of one supervisor. Belongs to the loop's thread, but for what a look reads."""

    every_s = EVERY_S
    failed = "what agents print could not be read"

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, evidence: AgentEvidence) -> None:
        super().__init__(doors, jobs, clock)
        self._evidence = evidence

    async def fresh(self, keys: Iterable[Key]) -> None:
        """Look at those of these attempts that are followed, at once."""
        await super().fresh([key for key in keys if self._known.get(key) is not None])

    def of(self, key: Key) -> Live:
        """What an attempt has said by now; empty for one that is not followed."""
        stream = self._known.get(key)
        return stream.live if stream is not None else Live()

    def printed(self, key: Key) -> float:
        """When an attempt printed anything last, wall-clock seconds; 0 when that is not known."""
        stream = self._known.get(key)
        return stream.printed if stream is not None else 0.0

    def _follow(self, key: Key) -> Stream | None:
        spec = self._doors.ledger.launch_row(key[0]).spec
        kind = of_task(spec.kind)
        if kind.owns_terminal(interactive=spec.interactive) or kind.protocol not in protocols.PROTOCOLS:
            return None
        return Stream(self._doors.home.attempt(*key) / "stdout.log", kind.protocol)

    async def _look(self, followed: Mapping[Key, Stream]) -> None:
        try:
            await self._jobs.within(self._jobs.stoppers, _read_all, list(followed.values()))
            stay = [key for key, stream in followed.items() if stream.stays(self._clock.monotonic())]
            if stay:
                await self._jobs.within(self._jobs.stoppers, self._finish, stay)
        finally:
            now = self._clock.wall()
            for key, stream in followed.items():
                if (piece := stream.evidence(now)) is not None:
                    self._evidence.printed(key, piece)

    def _finish(self, keys: list[Key]) -> None:
        """Have the runners of these attempts end their agents. May be repeated."""
        for key in keys:
            files.atomic_write(self._doors.home.attempt(*key) / records.FINISHED, b"", durable=False)


def _read_all(streams: list[Stream]) -> None:
    failure: NightcrewError | None = None
    for stream in streams:
        try:
            stream.read()
        except NightcrewError as error:
            failure = error
    if failure is not None:
        raise failure
