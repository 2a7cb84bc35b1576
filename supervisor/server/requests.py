"""Requests of the person's socket that are about tasks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agents import agent_state, typing_rules
from agents.agent_state import NEEDS_PERSON, RESTS, AgentState, Evidence, Status, fuse
from agents.kinds import of_task
from memory import mail as mail_rows
from supervisor import __version__
from supervisor.host import processes
from supervisor.kernel import codec, names
from supervisor.kernel import pressure as admission
from supervisor.kernel.decision import is_held_back, may_pause
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.events import CancelAsked, Event, PauseAsked, ResumeAsked, RetryAsked, Submitted
from supervisor.kernel.night import why_batch_waits
from supervisor.kernel.pressure import Conditions, Decision, Verdict
from supervisor.kernel.spec import RunSpec, Submission
from supervisor.kernel.states import FINAL, AttemptState, TaskState
from supervisor.results import comparison
from supervisor.server import capacity
from supervisor.server.attempts.observe import LookedAt
from supervisor.server.attempts.sending import Key, typable
from supervisor.server.gateway import GatewayKeeper
from supervisor.store import queries

if TYPE_CHECKING:
    from supervisor.host.processes import Groups
    from supervisor.kernel.crew import Task
    from supervisor.server.loop import Loop
    from supervisor.store.ledger import Settle


# Evidence
# --------
# What agents say of themselves, and what their screens show, for who asks how an agent is.


async def handle_evidence(loop: Loop, *, attempts: list[tuple[str, int]]) -> dict[str, Any]:
    """Returns for each attempt (a task's id and an epoch) that there is, by task, `session`, `evidence`, a list, and `refused`, how many of
    its hooks were left out, by why."""
    together = OneLook()
    return {"agents": {key[0]: await of(loop, key, together) for key in attempts if loop.ledger.attempt(*key) is not None}}


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of one agent."""

    session: str
    """Its own; empty while it has not spoken."""
    evidence: Sequence[Evidence]
    refused: Mapping[str, int]
    """How many of its hooks were left out, by why."""


class OneLook:
    """Reads /proc once for all attempts of a request, when the first of them needs it."""

    def __init__(self) -> None:
        self._found: Groups | None = None

    async def groups(self) -> Groups:
        """Return the process groups as of the first call."""
        if self._found is None:
            self._found = await asyncio.to_thread(processes.groups)
        return self._found


def owns_terminal(loop: Loop, task: str) -> bool:
    """Return whether the agent of a task shows its state on a screen."""
    spec = loop.ledger.launch_row(task).spec
    return of_task(spec.kind).owns_terminal(interactive=spec.interactive)


async def of(loop: Loop, key: tuple[str, int], together: OneLook) -> Heard:
    """Of one attempt."""
    await loop.agents.streams.fresh([key])
    session, evidence, refused = loop.agents.evidence.of(key)
    slept_since = loop.machine.timekeeping.slept_since
    if owns_terminal(loop, key[0]) and (known := await loop.agents.sending.known(key, await together.groups())) is not None:
        evidence = typing_rules.evidence(replace(known, printed=known.printed + slept_since(known.printed)), loop.clock.wall())
    elif (piece := agent_state.silence((at := loop.agents.streams.printed(key)) + slept_since(at), loop.clock.wall())) is not None:
        evidence = [*evidence, piece]
    return Heard(session, evidence, refused)


# Answer
# ------
# Answer what an agent asks on its screen: the key that says yes or no in the dialog that its command line shows.


SHOWN_S, GONE_S, LOOK_S = 10.0, 30.0, 0.1
"""How long the dialog may take to come after a hook told of it, and to go; how often it is looked at. At a load of 20 Claude Code took more
than 2 s to paint a dialog, and at 30 more than 5 s to close it."""


async def handle_answer(loop: Loop, *, task: str, allow: bool, asked: str = "") -> dict[str, Any]:
    """`task`: its full id; `allow`: whether it may; `asked`: what the person saw that it asks, empty when nobody did. Returns `gone`:
    whether the dialog is. Raises Refused, with nothing pressed, when it shows none that has such keys, or asks something else by now."""
    loop.refuse_early()
    if (key := await _running(loop, task)) is None:
        raise NotFound("no agent to answer", on=task, why="it does not run, or is paused", hint="nightcrew status")
    with _alone(loop, task):
        return await _answer(loop, key, allow=allow, asked=asked)


@contextlib.contextmanager
def _alone(loop: Loop, name: str) -> Iterator[None]:
    """Refuse a second answer while one is under way: its key would go to whatever the agent asks next."""
    if name in loop.agents.sending.answering:
        why = "another answer to it is under way"
        raise Refused("not answered", on=name, why=why, kept="nothing was pressed", hint=f"nightcrew status {name}")
    loop.agents.sending.answering.add(name)
    try:
        yield
    finally:
        loop.agents.sending.answering.discard(name)


async def _answer(loop: Loop, key: Key, *, allow: bool, asked: str) -> dict[str, Any]:
    name, said = key[0], await _asks(loop, key)
    shown = await _shown(loop, key, SHOWN_S if said else 0.0)
    keys = _keys(name, shown, allow=allow)
    if asked and said and said != asked:
        raise Refused("not answered", on=name, why=f"it asks something else by now: {said}", kept="nothing was pressed", hint="look again")
    loop.ledger.journal(*key, "permission answered", {"what": said, "allowed": allow})
    await loop.agents.sending.press(key, keys)
    if gone := await _gone(loop, key, shown):
        loop.agents.evidence.answered(key, said, allowed=allow)
    return {"task": name, "allowed": allow, "what": said, "gone": gone}


async def _running(loop: Loop, name: str) -> Key | None:
    """Its attempt. An agent that has just started may ask before the loop has seen that it runs."""
    until = loop.clock.monotonic() + SHOWN_S
    while (key := typable(loop.crew, name)) is None and _starts(loop, name) and loop.clock.monotonic() < until:
        await asyncio.sleep(LOOK_S)
    return key


def _starts(loop: Loop, name: str) -> bool:
    task = loop.crew.tasks.get(name)
    return task is not None and task.attempt is not None and task.attempt.state is AttemptState.LAUNCHING


def _keys(name: str, shown: typing_rules.Dialog | None, *, allow: bool) -> tuple[str, ...]:
    keys = () if shown is None else shown.allow if allow else shown.deny
    if not keys:
        why = "it shows no dialog that nightcrew knows" if shown is None else f"the dialog {shown.label} of {shown.cli} has no such answer"
        raise Refused("cannot answer", on=name, why=why, kept="nothing was pressed", hint=f"nightcrew attach {name}")
    return keys


async def _asks(loop: Loop, key: tuple[str, int]) -> str:
    """As `needs` says it."""
    said = await of(loop, key, OneLook())
    status = fuse(said.evidence, said.session)
    return status.detail if status.needs_person else ""


async def _shown(loop: Loop, key: tuple[str, int], wait_s: float) -> typing_rules.Dialog | None:
    """The dialog on its screen; a hook tells of it a moment before it is painted."""
    until = loop.clock.monotonic() + wait_s
    while True:
        known = await loop.agents.sending.known(key)
        found = typing_rules.dialog(known.screen) if known is not None else None
        if found is not None or loop.clock.monotonic() >= until:
            return found
        await asyncio.sleep(LOOK_S)


async def _gone(loop: Loop, key: tuple[str, int], shown: typing_rules.Dialog | None) -> bool:
    """Wait until the dialog is gone, at most GONE_S; return whether it is. The screen may then show another dialog."""
    until = loop.clock.monotonic() + GONE_S
    while loop.clock.monotonic() < until:
        await asyncio.sleep(LOOK_S)
        known = await loop.agents.sending.known(key)
        if known is None or typing_rules.dialog(known.screen) != shown:
            return True
    return False


# Down
# ----
# Leave. Agents go on; the next supervisor adopts them.


async def handle_down(loop: Loop, *, now: bool = False, **_: Any) -> dict[str, Any]:
    """`now`: do not wait for launches and finishes under way. A command of another version may ask too."""
    loop.stop(now=now)
    return {"live": len(loop.crew.living)}


# Kill
# ----
# End tasks: those that run are stopped with their whole tree, those that wait never start.


async def handle_kill(loop: Loop, *, tasks: list[str]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that were asked to end and those that had ended already."""
    asked = [name for name in tasks if known(loop, name).state not in FINAL]
    loop.ask(*(CancelAsked(name) for name in asked))
    return {"asked": asked, "ended_before": [name for name in tasks if name not in asked]}


# Needs
# -----
# Which agents wait for a person, what they ask, and how the others are.


AGAIN_S = 5.0


async def handle_needs(loop: Loop, *, watches: bool = False) -> dict[str, Any]:
    """Returns `agents`, who waits longest first: `task`, `state`, `detail` and `since` (wall-clock seconds). Only agents that tell by
    hooks are known to wait; a hook that says so is compared with what else is known before it is believed. The screen is looked at of an
    agent that has not spoken yet, and of one that rests: a dialog may keep it from going on. Those that were set aside are among them.
    `states`: by task how each agent is that has said so. `mail`: the requests to a person that nobody has read, oldest first; their
    senders may go on. `choices`: the groups of candidates of which a person is to choose, shaped as `agents`. `told`: what a person who is
    here was told last; with `watches` who asks is a screen that goes on looking, and rings when its number has grown."""
    aside = queries.set_aside(loop.ledger.db)
    states: dict[str, str] = {}
    found: list[dict[str, Any]] = [
        {"task": name, "state": str(AgentState.WAITING_INPUT), "detail": asked, "since": at} for name, asked, at in aside
    ]
    together = OneLook()
    for name, task in list(loop.crew.living.items()):
        if any(name == other for other, _, _ in aside):
            continue
        key = name, task.epoch
        await loop.agents.streams.fresh([key])
        session, heard, _ = loop.agents.evidence.of(key)
        status = fuse(heard, session)
        is_silent = not heard or status.state in RESTS
        if status.state in NEEDS_PERSON or (is_silent and owns_terminal(loop, name)):
            status = await _seen(loop, key, heard, together)
            if status.needs_person:
                found.append({"task": name, "state": str(status.state), "detail": status.detail, "since": status.since})
        if heard:
            states[name] = str(status.state)
    loop.agents.looked_at = {key: seen for key, seen in loop.agents.looked_at.items() if key[0] in loop.crew.living}
    agents = sorted(found, key=lambda one: one["since"])
    return {"agents": agents, "states": states, "mail": _mail(loop), **loop.hooks.needs(loop, watches=watches)}


async def is_attended(loop: Loop, key: tuple[str, int]) -> bool:
    """Return whether a person is attached to the pane of an attempt."""
    known = await loop.agents.sending.known(key)
    return known is not None and known.person_s is not None


async def _seen(loop: Loop, key: tuple[str, int], heard: list[Evidence], together: OneLook) -> Status:
    """Return how it is by everything that is known. Of one that rests a look counts for AGAIN_S: a crew may have hundreds of them."""
    now, known = loop.clock.monotonic(), loop.agents.looked_at.get(key)
    if heard and known is not None and known.heard == heard and now - known.at < AGAIN_S and not known.asked:
        return known.status
    said = await of(loop, key, together)
    status = fuse(said.evidence, said.session)
    loop.agents.looked_at[key] = LookedAt(now, heard, status, asked=any(piece.state in NEEDS_PERSON for piece in heard))
    return status


def _mail(loop: Loop) -> list[dict[str, Any]]:
    now = loop.clock.wall()
    return [one.shape(now) for one in mail_rows.asked_of_person(loop.ledger.db)]


# Figures
# -------
# What the supervisor says of itself and its agents for `/metrics`. It tells the gateway every few seconds, whether or not anybody
# scrapes: so no scrape costs it anything, and the page is there while it hangs.


_RATIOS = ("load", "memory", "memory_stall", "io_stall", "processes")


async def figures(loop: Loop, pid: int, since: float, overflows: int) -> dict[str, Any]:
    """`pid` and `since` name this supervisor, `overflows` is how often the kernel dropped file events since then. `asks`: who waits for a
    person, as `needs` says it, without what is asked; `states`: what the others do, by task. Costs what lives."""
    found, seen = await handle_needs(loop), loop.machine.capacity.seen
    shape = capacity.shape(loop.machine.capacity, loop.crew, loop.settings)
    pressure = asdict(seen.pressure) if seen is not None else {}
    return {
        "schema": 1,
        "pid": pid,
        "since": since,
        "overflows": overflows,
        "asks": [{name: one[name] for name in ("task", "state", "since")} for one in found["agents"]],
        "states": found["states"],
        "slots": shape["slots"],
        "slots_used": shape["living"],
        "carries": {name: slots for name, slots in (shape["carries"] or {}).items() if slots is not None},
        "predicted_wait_s": shape["predicted_wait_s"],
        "pressure": {name: pressure[name] for name in _RATIOS if pressure.get(name) is not None},
        "tick_s": sorted(loop.ticks)[len(loop.ticks) * 99 // 100] if loop.ticks else 0.0,
        "alerts": len(loop.alerts.newest),
    }


# Pause
# -----
# Hold tasks back until they are resumed: agents stand still with everything that they started, and what waits does not start.


async def handle_pause(loop: Loop, *, tasks: list[str]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that are paused now, those that were already, and why others cannot be; `moving` are pids that
    could not be stopped. Raises Refused when none of them can be.
    """
    loop.machine.emergency.refuse()
    found = [known(loop, name) for name in comparison.members(loop.ledger, tasks)]
    before = [task.id for task in found if is_held_back(task)]
    asked = [task.id for task in found if may_pause(task)]
    others = {task.id: _why_not(task) for task in found if task.id not in {*before, *asked}}
    if others and not asked and not before:
        name, why = next(iter(others.items()))
        raise Refused("cannot pause", on=name, why=why, kept="it as it is", hint="nightcrew status")
    loop.ask(*(PauseAsked(name) for name in asked))
    moving = await _moving(loop, [(task.id, task.epoch) for task in found if task.id in asked and task.attempt is not None])
    return {"paused": asked, "paused_before": before, "not_paused": others, "moving": moving}


async def _moving(loop: Loop, keys: list[tuple[str, int]]) -> list[int]:
    """What could not be stopped of these attempts, once all that can be has been."""
    for key in keys:
        await loop.settled(key)
    rows = [loop.ledger.attempt(*key) for key in keys]
    noted = [json.loads(row.paused) for row in rows if row is not None and row.paused]
    return [pid for one in noted for pid in one.get("moving", ())]


def known(loop: Loop, name: str) -> Task:
    """A task, also one that ended. Raises NotFound."""
    try:
        return loop.crew.tasks.get(name) or loop.ledger.task(name, 0.0)
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None


def ready_for(loop: Loop, name: str) -> None:
    """Raises NotRunning before recovery is over, NotFound for a task that there is not."""
    loop.refuse_early()
    known(loop, name)


def _why_not(task: Task) -> str:
    return f"it is {task.state if task.attempt is None else task.attempt.state}"


# Ping
# ----
# Is somebody there, and who?


async def handle_ping(loop: Loop, *, settings: bool = False, **_: Any) -> dict[str, Any]:
    """Who answers, and how the crew is: `no_gateway` and `conditions` say why tasks wait that could start; `gateway` is null where none is
    needed; `tick_ms_p99` is of `Loop.ticks`. With `settings` the file is read first, and `outdated` names what needs a restart. A command
    of another version may ask too."""
    keeper = loop.services.find(GatewayKeeper)
    outdated = keeper.read_settings() if settings and keeper is not None else []
    return {
        "pid": os.getpid(),
        "version": __version__,
        "slots": loop.crew.slots,
        "alerts": loop.alerts.newest,
        "ready": loop.ready,
        "tick_ms_p99": round(1000 * sorted(loop.ticks)[len(loop.ticks) * 99 // 100], 3) if loop.ticks else 0.0,
        "outdated": outdated,
        "no_gateway": loop.no_gateway(),
        "gateway": keeper.word() if keeper is not None else None,
        "conditions": conditions(loop),
    }


def conditions(loop: Loop) -> Conditions:
    """Why tasks that are ready do not start."""
    window = why_batch_waits(loop.settings.batch_window, loop.crew.batch_time)
    return capacity.conditions(loop.crew, _closed(loop), window, loop.machine.capacity.seen)


def _closed(loop: Loop) -> Verdict:
    """Why nothing at all starts, or next to nothing."""
    outage, now = loop.crew.health.outage, loop.machine.admission.verdict
    if now.decision is not Decision.ADMIT or outage is None:
        return now
    return Verdict(Decision.DEFER, "outage", outage.words(), loop.clock.wall() - (loop.clock.monotonic() - outage.since))


# Resume
# ------
# Let paused tasks go on: agents where they stood still, as soon as a slot is free, and what waited waits for its start again.


async def handle_resume(loop: Loop, *, tasks: list[str]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that were paused or parked and go on; those of them that wait for a slot first; and those that
    nobody had paused."""
    loop.machine.emergency.refuse()
    names = comparison.members(loop.ledger, tasks)
    asked = [name for name in names if is_held_back(task := known(loop, name)) or task.state is TaskState.PARKED]
    loop.ask(*(ResumeAsked(name) for name in asked))
    waiting = [name for name in asked if _waits(loop, name)]
    for name in asked:
        await loop.settled((name, known(loop, name).epoch))
    return {"resumed": asked, "waiting_for_slot": waiting, "not_paused": [name for name in names if name not in asked]}


def _waits(loop: Loop, name: str) -> bool:
    task = loop.crew.tasks.get(name)
    return task is not None and task.attempt is not None and task.attempt.paused is not None


# Retry
# -----
# Run finished tasks again, from the base commit, with a higher epoch; what was skipped because of them waits again.


async def handle_retry(loop: Loop, *, tasks: list[str]) -> dict[str, Any]:
    """`tasks`: full ids. Returns every task that waits again. Refused when one has not ended, comes after one that cannot be done, or
    has a named environment that is open or that another of them has;
    BudgetSpent when one has used up a cap past the gateway."""
    await loop.jobs.refuse_used_up(tasks, "cannot retry")
    asked = comparison.to_retry(loop.ledger, list(dict.fromkeys(tasks)))
    loop.ledger.refuse_leaving(asked)
    now = loop.clock.monotonic()
    revived: list[str] = []
    events: list[Event] = []
    for name in asked:
        _check(loop, name, set(asked))
        for again in loop.ledger.revivable(name):
            task = loop.ledger.task(again, now)
            events.append(Submitted((task, *(loop.ledger.task(need, now) for need in sorted(task.after)))))
            if again not in revived:
                revived.append(again)
    _refuse_shared(loop, revived)
    # All are known before the first is judged: each looks at what it comes after.
    loop.ask(*events, *(RetryAsked(name) for name in revived))
    return {"revived": revived}


def _check(loop: Loop, name: str, asked: set[str]) -> None:
    try:
        task = loop.ledger.task(name, 0.0)
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status --all") from None
    if task.state not in FINAL:
        raise Refused("cannot retry", on=name, why=f"it is {task.state}", hint=f"nightcrew kill {name}, or wait for it")
    for need in sorted(task.after - asked) if not task.any_end else ():
        state = loop.ledger.task(need, 0.0).state
        if state in FINAL and state is not TaskState.DONE:
            raise Refused("cannot retry", on=name, why=f"it comes after {need}, which is {state}", hint=f"nightcrew retry {need}")


def _refuse_shared(loop: Loop, revived: list[str]) -> None:
    """A named environment is open once at a time: neither an unfinished task may have it, nor two that are to run again."""
    holders: dict[tuple[str, str], str] = {}
    for name in revived:
        row = loop.ledger.launch_row(name)
        wanted = row.project, row.spec.environment
        if not row.spec.environment:
            continue
        loop.ledger.refuse_open(*wanted)
        other = holders.setdefault(wanted, name)
        if other != name:
            raise Refused(
                "cannot retry", on=name, why=f"{other} has the environment {wanted[1]}, too", kept="both", hint=f"nightcrew retry {other}"
            )


# Submit
# ------
# Take a run into the ledger. `run` and `add` both end here; when it answers, every task is on disk.


async def handle_submit(loop: Loop, **args: Any) -> dict[str, Any]:
    """`submit`, of a `Submission` as JSON has it."""
    return await submit(loop, codec.load(Submission, args))


async def submit(loop: Loop, submission: Submission, settle: Settle | None = None) -> dict[str, Any]:
    """Returns the run's id, its tasks' ids, and whether it is new: the same key twice is one run. `settle`: see `Ledger.submit_all`."""
    tasks = tuple(task.submitted_at(loop.clock.wall()) for task in submission.spec.tasks)
    spec, night = replace(submission.spec, tasks=tasks), submission.night
    submission = replace(submission, spec=spec)
    if not loop.ledger.key_is_known(submission.key):
        await loop.jobs.refuse_used_up([task.continue_from for task in tasks if task.continue_from], "cannot continue")
    _refuse_large_groups(spec, min(loop.settings.slots, (night and night.terms.parallel) or loop.settings.slots))
    _refuse_unknown(loop, submission)
    _refuse_when_full(loop, len(tasks), submission.key)
    run_id, new = await loop.submissions.commit(submission, _fresh_id(loop), settle)
    return {"run": run_id, "new": new, "tasks": loop.ledger.names_of_run(run_id)}


def _refuse_unknown(loop: Loop, submission: Submission) -> None:
    """Raise NotFound or Refused for a task of an earlier run that these cannot come after."""
    for name in sorted({need for task in submission.spec.tasks for need in task.after if "/" in need}):
        try:
            project = loop.ledger.launch_row(name).project
        except KeyError:
            raise NotFound("no task", on=name, why="a task was to come after it", hint="nightcrew status --all") from None
        if project != submission.project:
            raise Refused("cannot come after", on=name, why="it works in another repository")


def _refuse_when_full(loop: Loop, new: int, key: str) -> None:
    verdict = admission.of_submission(loop.queued(), new, loop.settings.admission)
    if verdict.decision is Decision.REFUSE and not loop.ledger.key_is_known(key):
        raise Refused(
            "cannot take the run", why=verdict.words, kept="what was taken before", hint="later, or `queue.waiting_max` in config.toml"
        )


def _refuse_large_groups(spec: RunSpec, slots: int) -> None:
    """Tasks that begin together need a slot each, or they would wait for one another."""
    groups = Counter(task.together for task in spec.tasks if task.together)
    for name, size in groups.most_common(1):
        if size > slots:
            why = f"{size} tasks are to begin together and there are {slots} slots"
            raise Refused(
                "cannot start", on=name, why=why, hint="a smaller group, or `slots` in config.toml, nightcrew down, nightcrew up -d"
            )


def _fresh_id(loop: Loop) -> str:
    today = datetime.fromtimestamp(loop.clock.wall()).astimezone()
    while True:
        run = names.run_id(today.month, today.day, secrets.randbelow(len(names.RUN_ALPHABET) ** 4))
        if not loop.submissions.has(run) and not loop.ledger.run_exists(run):
            return run
