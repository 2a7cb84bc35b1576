"""What agents say of themselves by hooks, kept for each attempt: `agents.sock` brings it, `status --explain` and deliveries ask for it.

It outlives the supervisor: each change is in `hooks.json` among the attempt's records, and what nobody took meanwhile is in `hooks.jsonl`,
which the hooks' client writes. The kernel keeps both through any crash of ours; after a power cut no agent is left to speak of.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents import hook_client
from agents.hooks import Heard, hear, permissions, tool
from agents.status import NEEDS_PERSON, AgentState, Evidence, Source, Status
from supervisor.core.errors import NightcrewError, Refused
from supervisor.core.gateway.bucket import Bucket
from supervisor.host import files, foreign
from supervisor.host.clock import Clock
from supervisor.host.paths import Home

Key = tuple[str, int]
RECORD = "hooks.json"
RECORD_MAX = 2**18
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
        for kind, states in _WAITS.items():
            seconds, since = self.waited.get(kind, (0.0, 0.0))
            waits = heard.evidence is not None and heard.evidence.state in states
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
        if len(data) <= RECORD_MAX:
            with contextlib.suppress(NightcrewError):  # a full disk: the next change is kept
                files.atomic_write(self._home.attempt(*key) / RECORD, data, durable=False)

    def _read(self, key: Key) -> _Agent:
        now = self._clock.monotonic()
        agent = _Agent(Heard(), "", Bucket(RATE, BURST, now), Bucket(ASKING_RATE, ASKING_BURST, now))
        directory = self._home.attempt(*key)
        with contextlib.suppress(
            ValueError, TypeError, KeyError, AttributeError, RecursionError
        ):  # without a sandbox an agent can write there
            shape = json.loads(foreign.read_plain(directory / RECORD, RECORD_MAX) or b"")
            piece = shape["evidence"]
            evidence = None if piece is None else _evidence(piece)
            agent.session, agent.count = str(shape["session"]), int(shape["count"])
            agent.called = Counter({str(name): int(times) for name, times in shape.get("tools", {}).items()})
            agent.heard = Heard(evidence, tuple((str(tool), str(shown)) for tool, shown in shape["pending"]))
            agent.waited = _waited(shape)
        since = agent.heard.evidence.at if agent.heard.evidence is not None else 0.0
        for line in (foreign.read_plain(directory / "out" / hook_client.KEPT, KEPT_READ, tail=True) or b"").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                shape = json.loads(line)
                if since < (at := float(shape["at"])) <= self._clock.wall():
                    self._hear(agent, {**(shape["event"] or {}), "hook_event_name": str(shape["name"])}, at)
        return agent


def waited_for_person(directory: Path, ended: float, *, interactive: bool) -> float | None:
    """How many seconds an attempt that has ended waited for a person, by its hooks; None when it sent none. `directory` has its records.
    `interactive`: a person sat at it, so it waited for them also while it could take the next prompt."""
    try:
        waited = _waited(json.loads(foreign.read_plain(directory / RECORD, RECORD_MAX) or b""))
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
