"""Requests of agents about their own task and the tasks below it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from agents.kinds import kinds, of_task
from memory.service import leases, mail_requests, notes
from memory.service import mail as handoff
from memory.service.desk import MemoryDesk
from memory.service.mail import Handoff, Letter
from memory.service.mail_requests import Asker
from memory.service.notes import Request
from supervisor.client.submit import refuse_missing
from supervisor.config import plan
from supervisor.contract import Verb
from supervisor.gateway.admission.bucket import Bucket
from supervisor.host.paths import Home
from supervisor.kernel import child_tasks, spec
from supervisor.kernel.child_tasks import Parent
from supervisor.kernel.codec import Bound
from supervisor.kernel.errors import DiskFull, NightcrewError, NotFound, Refused, TimedOut, UsageError
from supervisor.kernel.format import duration
from supervisor.kernel.leases import WaitKind
from supervisor.kernel.spec import By, RunSpec, Submission, TaskSpec
from supervisor.kernel.states import FINAL, AttemptState
from supervisor.sandbox.policy import Tier
from supervisor.server import request_table, requests
from supervisor.server.attempts import model_usage, sending
from supervisor.server.loop import Loop
from supervisor.store import journal, queries
from supervisor.store.rows import LaunchRow

# Rate
# ----
# How often the agent of a task may ask to add one, whatever became of it.


RATE, BURST = 1.0, 50.0
"""Requests a second, and at once."""
SHOWN_S = 10.0
"""Between two lines of history about the refusals of one task: each is a commit."""
_TASKS_MAX = 1024


class AddRate:
    """Of all tasks. Belongs to the loop's thread; a restart begins anew, which gives each task one more burst."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._refused: Counter[str] = Counter()
        self._shown: dict[str, float] = {}

    def take(self, task: str, now: float) -> None:
        """Count one request at `now` (monotonic). Raises Refused when there were too many."""
        bucket = self._buckets.setdefault(task, Bucket(RATE, BURST, now))
        self._buckets.move_to_end(task)
        while len(self._buckets) > _TASKS_MAX:
            gone, _ = self._buckets.popitem(last=False)
            self._refused.pop(gone, None)
            self._shown.pop(gone, None)
        if (wait_s := bucket.wait_s(1.0, now)) > 0:
            why = f"it asked more than {BURST:.0f} times, and then more than {RATE:g} a second; again in {duration(wait_s)}"
            raise Refused("not added", on=task, why=why, kept="what was added before")
        bucket.take(1.0, now)

    def refused(self, task: str, now: float) -> int:
        """Count a refusal. How many there were when it is time to show them, else 0."""
        self._refused[task] += 1
        if now - self._shown.get(task, -SHOWN_S) < SHOWN_S:
            return 0
        self._shown[task] = now
        return self._refused[task]


# Asked
# -----
# One request of an agent, and which tasks it may speak of.


@dataclass(frozen=True, slots=True)
class Asked:
    """A living attempt that asks for something. What it says is its own text: nothing of it is to be believed."""

    loop: Loop
    task: str
    epoch: int
    home: Home
    adds: AddRate
    memory: MemoryDesk

    @property
    def db(self) -> sqlite3.Connection:
        """The ledger, for queries."""
        return self.loop.ledger.db

    def waits(
        self, kind: WaitKind, what: str, holders: Iterable[str], timeout_s: float, *, any_of: bool = False
    ) -> AbstractAsyncContextManager[int]:
        """`WaitDesk.waiting` for this agent."""
        project = self.loop.ledger.launch_row(self.task).project
        return self.memory.waits.waiting(project, self.task, self.epoch, kind, what, holders, timeout_s, any_of=any_of)

    def descendants(self) -> list[str]:
        """Full ids of the tasks that the agents of this task added by now, with those that were added below them; parents first."""
        found = [self.task]
        for name in found:  # grows while it is walked
            found += journal.children(self.db, name)
        return found[1:]

    def meant(self, names: Sequence[str]) -> list[str]:
        """The full ids of these descendants: each is an id, or the name of a child of its own, the newest one. Raises NotFound for whatever
        is not below this task."""
        known = self.descendants()
        short = {name.partition("/")[2]: name for name in journal.children(self.db, self.task)}
        found = [name if name in known else short.get(name, "") for name in names]
        if "" in found:
            raise NotFound("none of its tasks is called", on=names[found.index("")][:100], why="an agent sees what it added itself")
        return list(dict.fromkeys(found))


# Add
# ---
# Add a task below the agent's own: what `nightcrew add` gives a person, within the rule of `core.conducting`.


TEXT_MAX = 128 * 2**10
"""Bytes of a prompt or a command."""
NAME_MAX = 200
"""Characters of a title or a key."""
OPTIONS = spec.given_by(TaskSpec, By.AGENT)
"""Keys of a plan's task that an agent may give."""


def fits(text: str, most: int = TEXT_MAX) -> str:
    """`text`, unless it is too long for a request. Raises ValueError."""
    if (size := len(text.encode("utf-8", "backslashreplace"))) > most:
        raise ValueError(f"it is too long: {size} bytes, at most {most}; write it into a file and commit it")
    return text


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("it must be given, as text")
    return fits(text)


def _name(text: str) -> str:
    return fits(_words(text), NAME_MAX)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    if unknown := [name[:40] for name in given if name not in OPTIONS]:
        raise ValueError(f"an agent cannot give {unknown[0]}; it may give {', '.join(sorted(OPTIONS))}")
    if isinstance(title := given.get("title"), str):
        _name(title)
    return {name: spec.number(OPTIONS[name], value) for name, value in given.items()}


Text = Annotated[str, _words]
Name = Annotated[str, _name]
Options = Annotated[dict[str, Any], _options]
Ids = Annotated[list[str], Bound(1)]


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that an agent adds."""

    text: Text
    """The command or the prompt, by the kind."""
    options: Options = field(default_factory=dict)
    after: list[str] | None = None
    """Ids of its tasks."""
    on: str | None = None
    """How those must have ended, as in a plan."""
    base: str | None = None
    """One of its tasks that has ended, to start from its last commit."""
    key: Name | None = None
    """The same twice is one task, and without it the same request is: a conductor that begins again asks for the same tasks again."""

    @property
    def identity(self) -> str:
        """What its agent calls it, or what it is."""
        what = {name: getattr(self, name) for name in ("text", "options", "after", "on", "base")}
        return self.key or "=" + hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


async def add(asked: Asked, **args: Any) -> dict[str, Any]:
    """Add a `NewTask`. Returns `task`, its id, and whether it is `new`. Raises UsageError, NotFound, Refused, BudgetSpent, ToolMissing."""
    return await add_from(asked, "", args)


async def add_from(asked: Asked, base: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """As `add`, of a task that starts from the commit `base`, which is its agent's own."""
    now = asked.loop.clock.monotonic()
    try:
        asked.adds.take(asked.task, now)
        return await _add(asked, base, request_table.checked(NewTask, args))
    except NightcrewError as error:
        if many := asked.adds.refused(asked.task, now):
            asked.loop.ledger.journal(asked.task, asked.epoch, "add refused", {"why": error.line()[:500], "times": many})
            asked.loop.alert(f"{asked.task} may not add a task: {error.why or error.what} ({many} refused)")
        raise


async def _add(asked: Asked, base: str, new: NewTask) -> dict[str, Any]:
    """Decide twice: now, so that a mistake is told first, and again in the transaction that writes the child, where its siblings count."""
    row = asked.loop.ledger.launch_row(asked.task)
    _refuse_ending(asked)
    key = child_tasks.child_key(asked.task, new.identity)
    if (known := journal.of_key(asked.db, key)) is not None:
        return {"task": known, "new": False}
    after = {"after": {"all": asked.meant(new.after), "on": new.on or "done"}} if new.after else {}
    spec = plan.single((new.text,), kinds(), {"id": "task", **new.options, **after}).tasks[0]
    given = {OPTIONS[name].field for name in new.options}

    def child() -> TaskSpec:
        _refuse_ending(asked)
        return child_tasks.child(_parent(asked, row), spec, given)

    def settle(submission: Submission) -> Submission:
        return replace(submission, spec=replace(submission.spec, tasks=(child(),)))

    run = RunSpec(title=spec.title, base=row.base_oid, tasks=(child(),))
    refuse_missing(run.tasks[0], row.env)
    root = asked.loop.ledger.project_root(row.project)
    submission = Submission(key, row.project, root, row.common_dir, base or _base(asked, row, new.base), run, row.env)
    answer = await requests.submit(asked.loop, submission, settle)
    return {"task": answer["tasks"][0], "new": answer["new"]}


def _refuse_ending(asked: Asked) -> None:
    """One that is being stopped must leave no new tasks behind."""
    task = asked.loop.crew.tasks.get(asked.task)
    attempt = task.attempt if task is not None else None
    if attempt is None or attempt.epoch != asked.epoch or attempt.state not in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        raise Refused("not added", on=asked.task, why="its attempt is ending")


def _parent(asked: Asked, row: LaunchRow) -> Parent:
    below = [asked.loop.ledger.launch_row(name).spec for name in journal.children(asked.db, asked.task)]
    attempt = asked.loop.ledger.attempt(asked.task, asked.epoch)
    return Parent(
        asked.task,
        asked.epoch,
        row.spec,
        tier=attempt.tier if attempt is not None and attempt.tier is not None else Tier.OFFLINE,  # not known: nothing is lower
        takes_prompt=of_task(row.spec.kind).is_agent,
        added=sum(1 + child.children_max for child in below),
        given_usd=sum(child.cost_max for child in below),
        spent_usd=model_usage.dollars(asked.home, asked.task) if row.spec.cost_max else 0.0,
    )


def _base(asked: Asked, row: LaunchRow, base: str | None) -> str:
    """The commit that it starts from: its parent's, or the last one of another task below its parent."""
    if base is None:
        return row.base_oid
    name = asked.meant([base])[0]
    tip = (queries.one(asked.db, name).result or {}).get("tip")
    if not isinstance(tip, str) or not tip:
        raise NotFound("no commit of", on=name, why="it has not ended, or left none")
    return tip


# Children
# --------
# What an agent may ask about the tasks below its own.


WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again, and misses nothing."""
LOOK_S = 0.1
RESULT_MAX = 2**18


async def listed(asked: Asked) -> dict[str, Any]:
    """`tasks`: all below its own, oldest first: `task`, `name`, `title`, `state`, `reason`, `parent`, `ended`."""
    return {"tasks": [_shape(asked, name) for name in asked.descendants()]}


async def wait(
    asked: Asked, *, tasks: Ids, timeout_s: Annotated[float, Bound(0, WAIT_MAX_S)] = WAIT_MAX_S, any: bool = False
) -> dict[str, Any]:
    """`any`: until one of them has ended, and not all. Returns `ended` and `unfinished`, as
    `listed`, also when the time ran out; asking again goes on waiting. Raises Deadlock when they wait for this task."""
    names = asked.meant(tasks)
    left = _unfinished(asked, names)
    if timeout_s and left and not (any and len(left) < len(names)):
        with contextlib.suppress(TimedOut):
            await _until_ended(asked, names, left, timeout_s, any_of=any)
    else:
        asked.memory.waits.answered(asked.task, asked.epoch, WaitKind.TASK, ", ".join(names))
    shapes = [_shape(asked, name) for name in names]
    return {"ended": [one for one in shapes if one["ended"]], "unfinished": [one for one in shapes if not one["ended"]]}


async def _until_ended(asked: Asked, names: list[str], left: list[str], timeout_s: float, *, any_of: bool) -> None:
    many = len(left)
    async with asked.waits(WaitKind.TASK, ", ".join(names), left, timeout_s, any_of=any_of) as number:
        while left and not (any_of and len(left) < many):
            await asyncio.sleep(LOOK_S)
            left = _unfinished(asked, left)
            asked.memory.waits.change_holders(number, left)


async def result(asked: Asked, *, tasks: Ids) -> dict[str, Any]:
    """`tasks`: one of them. Returns its `task`, `title`, `state`, `reason` and `result`, as in result.json, null before its first attempt
    has ended."""
    name = asked.meant(tasks)[0]
    shape = {**_shape(asked, name), "result": queries.one(asked.db, name).result}
    if len(json.dumps(shape)) > RESULT_MAX:
        shape["result"] = {**shape["result"], "output": None, "agent": None, "notes": ["output and agent are too large to be handed over"]}
    return shape


async def send(asked: Asked, *, tasks: Ids, text: Annotated[str, fits], now: bool = False) -> dict[str, Any]:
    """As `nightcrew send`; returns what became of each."""
    from agents.tmux import typed_text

    return await sending.send(asked.loop, asked.meant(tasks), typed_text(text), now=now)


async def kill(asked: Asked, *, tasks: Ids) -> dict[str, Any]:
    """As `nightcrew kill`: what was added below them ends too."""
    return await requests.handle_kill(asked.loop, tasks=asked.meant(tasks))


def _unfinished(asked: Asked, names: list[str]) -> list[str]:
    return [name for name in names if not _ended(asked, name)]


def _ended(asked: Asked, name: str) -> bool:
    task = asked.loop.crew.tasks.get(name) or asked.loop.ledger.task(name, 0.0)
    return task.state in FINAL


def _shape(asked: Asked, name: str) -> dict[str, Any]:
    view = queries.one(asked.db, name)
    shape = {key: getattr(view, key) for key in ("name", "title", "state", "reason", "parent")}
    return {"task": name, **shape, "ended": view.final}


# Mail
# ----
# An agent's mail: the sender is its task, by its token, whatever the request says.


async def mail(asked: Asked, **args: Any) -> dict[str, Any]:
    """See `mail_requests.OPS`. A handoff's `start` has `prompt` and what `add` takes as `options`; it needs children_max."""
    project = asked.loop.ledger.launch_row(asked.task).project
    asker = Asker(asked.task, project, asked.epoch, functools.partial(_hand_over, asked))
    return await mail_requests.ask(asked.memory.mail, asker, args)


async def _hand_over(asked: Asked, letter: Letter, said: Handoff) -> Letter:
    """The commit is the newest one of its own branch: nothing that an agent says of it is asked for."""
    branch, commit = await asked.loop.agents.publishing.tip((asked.task, asked.epoch))
    letter = handoff.described(letter, said, branch, commit)
    if said.start is None:
        return letter
    options, text = said.start.get("options"), said.start.get("prompt")
    if not isinstance(options, dict) or not isinstance(text, str):
        raise UsageError("not a request", on="start", why="an object with prompt and options")
    kind = kinds().get(str(options.get("kind", "shell")))
    in_prompt = kind is not None and kind.is_agent
    text = handoff.prompt(letter, text) if in_prompt else text
    key = f"handoff {letter.mail.key or letter.mail.id}"
    made = await add_from(asked, commit, {"text": text, "options": {"id": "handoff", **options}, "key": key})
    return handoff.to(letter, made["task"], in_prompt=in_prompt)


# Mem
# ---
# The memory of the agent's own project.


async def ask_mem(asked: Asked, **args: Any) -> Any:
    """See `notes.OPS`."""
    project = asked.loop.ledger.launch_row(asked.task).project
    return await notes.mem(Request(asked.memory, project, asked.task, asked.epoch), args)


# Own
# ---
# What any agent may ask for itself.


async def whoami(asked: Asked) -> dict[str, Any]:
    """The task, the epoch, the run, what its plan says of its part of the limits, and which tasks it may add."""
    spec = asked.loop.ledger.launch_row(asked.task).spec
    return {
        "task": asked.task,
        "epoch": asked.epoch,
        "run": asked.task.partition("/")[0],
        "class": str(spec.task_class),
        "weight": spec.weight,
        "tpm_max": spec.tpm_max or None,
        "cost_max": spec.cost_max or None,
        "tokens_max": spec.tokens_max or None,
        "children_max": spec.children_max,
        "depth_max": spec.depth_max,
        "parent": spec.parent or None,
        "memory_tools": asked.loop.settings.memory.tools,
    }


async def hook(asked: Asked, *, name: str, event: dict[str, Any] | None = None) -> dict[str, Any]:
    """An event of the agent's command line: `name`, and `event`, the hook's input; null when it was too long to send. Returns what the hook
    prints, as `print`, where it should print something."""
    if _is_anothers(asked, str((event or {}).get("session_id") or "")):
        raise asked.loop.agents.evidence.forged((asked.task, asked.epoch))
    for told, what in asked.loop.agents.evidence.hook((asked.task, asked.epoch), name, event):
        with contextlib.suppress(DiskFull):  # how the agent is was heard all the same
            asked.loop.ledger.journal(asked.task, asked.epoch, told, {"why": what})
    held = asked.loop.crew.tasks.get(asked.task)
    if held is not None and held.attempt is not None and held.attempt.state is AttemptState.LAUNCHING:
        asked.loop.hint()  # it is there: who sends it something at once is not told that it does not run
    await asked.loop.machine.emergency.held()
    said = leases.answer(asked.loop, asked.home, asked.memory.leases, (asked.task, asked.epoch), name, event)
    if said or name != leases.EVENT or not (notices := await asked.memory.mail.notices(asked.task, asked.epoch)):
        return said
    return leases.shown_beside(notices)


def _is_anothers(asked: Asked, session: str) -> bool:
    """Whether a session is that of another agent that lives: by the ledger, which has those that we choose; else by who spoke in it first,
    but for an agent that has said nothing yet. Else whoever guesses an id could silence the one whose it is."""
    loop = asked.loop
    if owners := loop.ledger.conversations.living(session):
        return asked.task not in owners
    other = loop.agents.evidence.speaker(session)
    return other not in ("", asked.task) and other in loop.crew.living and loop.agents.evidence.has_spoken((asked.task, asked.epoch))


# Agent verbs
# -----------
# What agents may ask at `agents.sock`, by verb. Each takes an `Asked` and raises our errors.
#
# `add`, `list`, `wait`, `result`, `send` and `kill` are for agents that add tasks. They reach what that agent added, and what those
# added, and nothing else.


VERBS: Mapping[str, Verb] = {
    "add": add,
    "hook": hook,
    "kill": kill,
    "lease": leases.OF_AGENT,
    "list": listed,
    "mail": mail,
    "mem": ask_mem,
    "result": result,
    "send": send,
    "wait": wait,
    "whoami": whoami,
}
