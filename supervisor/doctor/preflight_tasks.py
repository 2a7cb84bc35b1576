"""What a look before a night has to try out: each gate on the base commit, and one call with each credential.

They run as tasks of the crew, so that they meet what the agents will meet: an environment of their own, its snapshot, its sandbox, the
gateway. The person's checkout is not touched. Their worktrees are removed afterwards.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from agents.kinds import kinds
from supervisor.core.admission import Verdict
from supervisor.core.errors import NightcrewError
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.core.gateway.types import Api
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.core.states import TaskClass, TaskState
from supervisor.daemon import protocol
from supervisor.daemon.handlers import submit as wire
from supervisor.doctor.preflight_models import asked, spoken, way_of
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger import history, queries, store

START_S = 120.0
"""How long such a task may wait for a slot while none of the others runs."""
BLOCKED_S = 10.0
"""The same for what does not pass by itself: a full disk, a crew that is stopped, a window that is shut."""
_PASSES = ("", "after", "slots", "turn", "backoff", "paths", "unknown")
"""Codes of `waits_for` that pass while the crew works."""
_END_S = 10.0
"""For the ends of what is stopped, so that their worktrees can go."""
Reasons = Callable[[sqlite3.Connection, Sequence[queries.TaskView]], Mapping[str, Verdict]]
"""By task, what those wait for that have not started (`faces.waits`)."""
_LOOK_S = 0.1
_MODELS = {Api.ANTHROPIC: "claude-haiku-4-5", Api.GEMINI: "gemini-2.5-flash", Api.OPENAI: ""}
"""Whose tokens are counted; a provider that does not know it has taken the credential all the same."""
CALL_S = 90.0
TITLE = "a look before the night"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one task."""

    name: str
    words: str
    """What was tried: the gate as a person would type it, or the API."""
    state: TaskState | None
    """None: it had not ended in time."""
    why: str
    seconds: float | None
    dollars: float | None
    said: str
    """The last line of its output."""
    waited: str = ""
    """Why it did not start, in words; empty: it did."""
    code: int | None = None
    """Its exit code, where it exited by itself."""


def untried(tasks: Sequence[TaskSpec], why: str) -> list[Tried]:
    """Of tasks that are not even begun."""
    return [Tried(task.name, _words(task), None, why, None, None, "", why) for task in tasks]


def gates(tasks: Iterable[TaskSpec]) -> list[TaskSpec]:
    """One task for each gate in each environment that the plan has it in."""
    found: dict[tuple[Any, ...], TaskSpec] = {}
    for task in tasks:
        if task.gate:
            where = (task.gate, task.snapshot, task.sandbox, task.network, task.gpus, task.memory_max, tuple(sorted(task.params.items())))
            found.setdefault(where, task)
    return [_plain(task, f"gate-{index}", task.gate, task.gate_timeout_s) for index, task in enumerate(found.values(), 1)]


def calls(models: GatewaySettings, tasks: Sequence[TaskSpec]) -> list[TaskSpec]:
    """One task for each API that the plan's agents speak and for which the gateway has a credential of its own, and for each model that the
    plan names there; a client's own login is nobody's to try."""
    found = []
    argv = (sys.executable, "-I", "-m", "agents.credential_call")
    place = replace(tasks[0], network=True, snapshot="", snapshot_id="")
    used = {task.kind for task in tasks if kinds()[task.kind].is_agent}
    for api in sorted({upstream.api for upstream in models.upstreams if upstream.key.kind != "client"}):
        if any(api in spoken(kinds()[kind]) for kind in used):
            for number, words in enumerate(_questions(models, api, tasks), 1):
                found.append(_plain(place, f"call-{api}" + (f"-{number}" if number > 1 else ""), (*argv, str(api), *words), CALL_S))
    return found


def _questions(models: GatewaySettings, api: Api, tasks: Sequence[TaskSpec]) -> list[tuple[str, ...]]:
    """The model of each call and whether the provider must know it: those that the plan names and the gateway serves, else a common one."""
    ways = {asked(task): way_of(models, api, task) for task in tasks if asked(task) and spoken(kinds()[task.kind]) == (api,)}
    names = {to.as_model or name if api is Api.OPENAI else name for name, to in ways.items() if to.upstreams}
    return [(name, "--known") for name in sorted(names)] or [(_MODELS[api],)]


def _plain(task: TaskSpec, name: str, argv: Sequence[str], timeout_s: float) -> TaskSpec:
    """A command in the environment of `task`."""
    kept = ("params", "cores", "snapshot", "snapshot_id", "sandbox", "network", "gpus", "memory_max", "disk_max", "processes_max")
    return TaskSpec(
        name=name,
        title=f"{TITLE}: {name}",
        kind="shell",
        argv=tuple(argv),
        timeout_s=timeout_s,
        priority=100,
        submitter=history.TRIED_OUT,
        task_class=TaskClass.NORMAL,
        **{key: getattr(task, key) for key in kept},
    )


def run(home: Home, like: Submission, tasks: Sequence[TaskSpec], reasons: Reasons, blocked_s: float = BLOCKED_S) -> list[Tried]:
    """Have the supervisor, which must run, run the tasks where `like` would, and wait for their ends. What has not ended in time, or waits
    for something that does not pass by itself, is stopped. Raises what the supervisor raises."""
    if not tasks:
        return []
    order = replace(like, key=secrets.token_hex(16), spec=RunSpec(TITLE, tuple(tasks), like.spec.base), night=None)
    run_id = str(protocol.call(home.daemon_socket, "submit", wire.to_wire(order), timeout_s=60.0)["run"])
    with closing(store.connect_readonly(home.ledger)) as db:
        views, waits = _awaited(db, run_id, START_S + max(task.timeout_s for task in tasks), reasons, blocked_s)
        late = [view.id for view in views if not view.final]
        with suppress(NightcrewError):  # they end by their own timeouts
            if late:
                protocol.call(home.daemon_socket, "kill", {"tasks": late}, timeout_s=60.0)
        ends_at = time.monotonic() + _END_S
        ended = views
        while not all(view.final for view in ended) and time.monotonic() < ends_at:
            time.sleep(_LOOK_S)
            ended = queries.of_run(db, run_id)
    _clean(home, [(view.id, view.epoch) for view in ended if view.final and view.epoch])
    return [_tried(home, view, task, waits.get(view.id)) for view, task in zip(views, tasks, strict=True)]


def _awaited(
    db: sqlite3.Connection, run_id: str, most_s: float, reasons: Reasons, blocked_s: float
) -> tuple[list[queries.TaskView], Mapping[str, Verdict]]:
    """The tasks as they were last seen, and what those wait for that have not started."""
    ends_at, quiet_since = time.monotonic() + most_s, time.monotonic()
    while True:
        views, now = queries.of_run(db, run_id), time.monotonic()
        if all(view.final for view in views):
            return views, {}
        if any(view.started and not view.final for view in views):
            quiet_since = now
        if now >= ends_at or now - quiet_since >= blocked_s:
            waits = reasons(db, views)
            if now >= ends_at or now - quiet_since >= START_S or not any(one.code in _PASSES for one in waits.values()):
                return views, waits
        time.sleep(_LOOK_S)


def _clean(home: Home, attempts: list[tuple[str, int]]) -> None:
    with suppress(NightcrewError):  # `nightcrew clean` finds them
        args = {"attempts": attempts, "remove": True, "ignored": True, "discard": True, "forget": True}
        protocol.call(home.daemon_socket, "clean", args, timeout_s=60.0)


def _words(task: TaskSpec) -> str:
    return replace(task, gate=task.argv).gate_words


def _tried(home: Home, view: queries.TaskView, task: TaskSpec, waits: Verdict | None) -> Tried:
    result = view.result or {}
    log = b"\n".join(
        foreign.read_plain(home.attempt(view.id, view.epoch) / name, 4096, tail=True) or b"" for name in ("stdout.log", "stderr.log")
    )
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    seconds = view.ended - view.started if view.ended and view.started else None
    return Tried(
        view.name,
        _words(task),
        view.state if view.final else None,
        view.end_cause or view.reason,
        seconds,
        result.get("cost_usd"),
        lines[-1].strip()[:300] if lines else "",
        waits.words or waits.code if waits is not None and not view.final else "",
        (result.get("exit") or {}).get("code"),
    )
