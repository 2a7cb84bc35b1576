"""Requests of agents about their own task and the tasks below it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from agents.kinds import kinds, of_task
from memory.service import lease_requests, mail_requests, notes
from memory.service import mail as handoff
from memory.service.arguments import Args
from memory.service.desk import MemoryDesk
from memory.service.mail import Letter
from memory.service.mail_requests import Asker
from memory.service.notes import Request
from supervisor.client.submit import refuse_missing
from supervisor.config import plan
from supervisor.gateway.admission.bucket import Bucket
from supervisor.host.paths import Home
from supervisor.kernel import child_tasks
from supervisor.kernel.child_tasks import Parent
from supervisor.kernel.errors import DiskFull, NightcrewError, NotFound, Refused, TimedOut, UsageError
from supervisor.kernel.format import duration
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import FINAL, AttemptState
from supervisor.kernel.wait_graph import WaitKind
from supervisor.sandbox.policy import Tier
from supervisor.server import requests
from supervisor.server.attempts import model_usage, sending
from supervisor.server.loop import Loop
from supervisor.store import history, queries
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
    """One request of a living attempt. `args` is the agent's own text: nothing of it is to be believed."""

    loop: Loop
    task: str
    epoch: int
    args: dict[str, Any]
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
            found += history.children(self.db, name)
        return found[1:]

    def meant(self, names: Any) -> list[str]:
        """The full ids of these descendants: each is an id, or the name of a child of its own, the newest one. Raises UsageError, and
        NotFound for whatever is not below this task."""
        if not isinstance(names, list) or not names:
            raise UsageError("not a request", why="tasks is a list of at least one id")
        known = self.descendants()
        short = {name.partition("/")[2]: name for name in history.children(self.db, self.task)}
        found = [name if name in known else short.get(name, "") for name in map(str, names)]
        if "" in found:
            raise NotFound("none of its tasks is called", on=str(names[found.index("")])[:100], why="an agent sees what it added itself")
        return list(dict.fromkeys(found))


# Add
# ---
# Add a task below the agent's own: what `nightcrew add` gives a person, within the rule of `core.conducting`.


TEXT_MAX = 128 * 2**10
"""Bytes of a prompt or a command."""
NAME_MAX = 200
"""Characters of a title or a key."""
OPTIONS = {
    "id": "name", "title": "title", "kind": "kind", "model": "model", "steps_max": "steps_max", "allow": "allow",
    "priority": "priority", "class": "task_class", "timeout": "timeout_s", "retries": "retries", "weight": "weight", "tpm_max": "tpm_max",
    "cost_max": "cost_max", "tokens_max": "tokens_max", "sandbox": "sandbox", "network": "network", "gpus": "gpus",
    "memory_max": "memory_max", "disk_max": "disk_max", "processes_max": "processes_max", "cpu_max": "cpu_max",
    "children_max": "children_max", "depth_max": "depth_max", "paths": "paths",
}  # fmt: skip
"""Keys of a plan's task that an agent may give, and the fields of `TaskSpec` that they are."""


async def add(asked: Asked) -> dict[str, Any]:
    """`text`: the command or the prompt, by the kind; `options`: of OPTIONS; `after`: ids of its tasks, and `on` as in a plan; `base`: one
    that has ended, to start from its last commit; `key`: the same twice is one task, and without it the same request is.

    Returns `task`, its id, and whether it is `new`. Raises UsageError, NotFound, Refused, BudgetSpent, ToolMissing.
    """
    return await _counted(asked, "")


async def add_from(asked: Asked, base: str) -> dict[str, Any]:
    """As `add`, of a task that starts from the commit `base`, which is its agent's own."""
    return await _counted(asked, base)


async def _counted(asked: Asked, base: str) -> dict[str, Any]:
    now = asked.loop.clock.monotonic()
    try:
        asked.adds.take(asked.task, now)
        return await _add(asked, base)
    except NightcrewError as error:
        if many := asked.adds.refused(asked.task, now):
            asked.loop.ledger.journal(asked.task, asked.epoch, "add refused", {"why": error.line()[:500], "times": many})
            asked.loop.alert(f"{asked.task} may not add a task: {error.why or error.what} ({many} refused)")
        raise


async def _add(asked: Asked, base: str) -> dict[str, Any]:
    """Decide twice: now, so that a mistake is told first, and again in the transaction that writes the child, where its siblings count."""
    row = asked.loop.ledger.launch_row(asked.task)
    _refuse_ending(asked)
    key = child_tasks.child_key(asked.task, _key(asked.args))
    if (known := history.of_key(asked.db, key)) is not None:
        return {"task": known, "new": False}
    text, options = _text(asked.args.get("text"), "text", TEXT_MAX), _options(asked.args.get("options", {}))
    spec = plan.single((text,), kinds(), {"name": "task", **options, **_after(asked)}).tasks[0]
    given = {OPTIONS[name] for name in asked.args.get("options", {})}

    def child() -> TaskSpec:
        _refuse_ending(asked)
        return child_tasks.child(_parent(asked, row), spec, given)

    def settle(submission: Submission) -> Submission:
        return replace(submission, spec=replace(submission.spec, tasks=(child(),)))

    run = RunSpec(title=spec.title, base=row.base_oid, tasks=(child(),))
    refuse_missing(run.tasks[0], row.env)
    root = asked.loop.ledger.project_root(row.project)
    submission = Submission(key, row.project, root, row.common_dir, base or _base(asked, row), run, row.env)
    answer = await requests.submit(asked.loop, submission, settle)
    return {"task": answer["tasks"][0], "new": answer["new"]}


def _refuse_ending(asked: Asked) -> None:
    """One that is being stopped must leave no new tasks behind."""
    task = asked.loop.crew.tasks.get(asked.task)
    attempt = task.attempt if task is not None else None
    if attempt is None or attempt.epoch != asked.epoch or attempt.state not in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        raise Refused("not added", on=asked.task, why="its attempt is ending")


def _parent(asked: Asked, row: LaunchRow) -> Parent:
    below = [asked.loop.ledger.launch_row(name).spec for name in history.children(asked.db, asked.task)]
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


def _options(given: Any) -> dict[str, Any]:
    """As `plan.single` takes them."""
    if not isinstance(given, dict):
        raise UsageError("not a request", why="options is an object")
    if unknown := [str(name)[:40] for name in given if name not in OPTIONS]:
        raise UsageError("an agent cannot give", on=unknown[0], why=f"it may give {', '.join(sorted(OPTIONS))}")
    if "title" in given:
        given = {**given, "title": _text(given["title"], "title", NAME_MAX)}
    return {("name" if name == "id" else name): value for name, value in given.items()}


def _text(given: Any, what: str, most: int) -> str:
    """Whatever JSON calls text, as text that a file can hold."""
    if not isinstance(given, str) or not given.strip():
        raise UsageError("not a request", on=what, why="it must be given, as text")
    plain = given.encode("utf-8", "backslashreplace")
    if len(plain) > most:
        raise UsageError(f"the {what} is too long", why=f"{len(plain)} bytes, at most {most}", hint="write it into a file and commit it")
    return plain.decode()


def _key(args: dict[str, Any]) -> str:
    """What its agent calls it, or what it is: a conductor that begins again asks for the same tasks again."""
    if args.get("key") is not None:
        return _text(args["key"], "key", NAME_MAX)
    what = {name: args.get(name) for name in ("text", "options", "after", "on", "base")}
    return "=" + hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _after(asked: Asked) -> dict[str, Any]:
    if not asked.args.get("after"):
        return {}
    return {"after": {"all": asked.meant(asked.args["after"]), "on": asked.args.get("on") or "done"}}


def _base(asked: Asked, row: LaunchRow) -> str:
    """The commit that it starts from: its parent's, or the last one of another task below its parent."""
    if asked.args.get("base") is None:
        return row.base_oid
    name = asked.meant([asked.args["base"]])[0]
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


async def wait(asked: Asked) -> dict[str, Any]:
    """`tasks`; `timeout_s`, at most WAIT_MAX_S; `any`: until one of them has ended, and not all. Returns `ended` and `unfinished`, as
    `listed`, also when the time ran out; asking again goes on waiting. Raises Deadlock when they wait for this task."""
    names, timeout_s = asked.meant(asked.args.get("tasks")), asked.args.get("timeout_s", WAIT_MAX_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s <= WAIT_MAX_S:
        raise UsageError("not a request", on="timeout_s", why=f"a number of seconds, at most {WAIT_MAX_S:.0f}")
    any_of = bool(asked.args.get("any"))
    left = _unfinished(asked, names)
    if timeout_s and left and not (any_of and len(left) < len(names)):
        with contextlib.suppress(TimedOut):
            await _until_ended(asked, names, left, timeout_s, any_of=any_of)
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


async def result(asked: Asked) -> dict[str, Any]:
    """`tasks`: one of them. Returns its `task`, `title`, `state`, `reason` and `result`, as in result.json, null before its first attempt
    has ended."""
    name = asked.meant(asked.args.get("tasks"))[0]
    shape = {**_shape(asked, name), "result": queries.one(asked.db, name).result}
    if len(json.dumps(shape)) > RESULT_MAX:
        shape["result"] = {**shape["result"], "output": None, "agent": None, "notes": ["output and agent are too large to be handed over"]}
    return shape


async def send(asked: Asked) -> dict[str, Any]:
    """`tasks`, and `text`, as `nightcrew send`; returns what became of each."""
    text = asked.args.get("text")
    if not isinstance(text, str) or len(text.encode("utf-8", "replace")) > TEXT_MAX:
        raise UsageError("not a request", on="text", why=f"text of at most {TEXT_MAX} bytes")
    from agents.tmux import typed_text

    args = {"tasks": asked.meant(asked.args.get("tasks")), "text": typed_text(text), "now": bool(asked.args.get("now")), "some": False}
    return await sending.handle(asked.loop, args)


async def kill(asked: Asked) -> dict[str, Any]:
    """`tasks`, as `nightcrew kill`: what was added below them ends too."""
    return await requests.handle_kill(asked.loop, {"tasks": asked.meant(asked.args.get("tasks"))})


def _unfinished(asked: Asked, names: list[str]) -> list[str]:
    return [name for name in names if not _ended(asked, name)]


def _ended(asked: Asked, name: str) -> bool:
    task = asked.loop.crew.tasks.get(name) or asked.loop.ledger.task(name, 0.0)
    return task.state in FINAL


def _shape(asked: Asked, name: str) -> dict[str, Any]:
    view = queries.one(asked.db, name)
    shape = {key: getattr(view, key) for key in ("name", "title", "state", "reason", "parent")}
    return {"task": name, **shape, "ended": view.final}


# Lease
# -----
# Leases on files of the repository: what an agent asks for, and whether a write is welcome.


async def lease(asked: Asked) -> dict[str, Any]:
    """See `lease_verbs`."""
    return await lease_requests.of_agent(asked.loop, asked.home, asked.memory.leases, (asked.task, asked.epoch), asked.args)


# Mail
# ----
# An agent's mail: the sender is its task, by its token, whatever the request says.


async def mail(asked: Asked) -> dict[str, Any]:
    """`op` and its words: see `mail_verbs`. A handoff's `start` has `prompt` and what `add` takes as `options`; it needs children_max."""
    project = asked.loop.ledger.launch_row(asked.task).project
    asker = Asker(asked.task, project, asked.epoch, functools.partial(_hand_over, asked))
    return await mail_requests.ask(asked.memory.mail, asker, asked.args)


async def _hand_over(asked: Asked, letter: Letter, args: Args) -> Letter:
    """The commit is the newest one of its own branch: nothing that an agent says of it is asked for."""
    branch, commit = await asked.loop.agents.publishing.tip((asked.task, asked.epoch))
    letter = handoff.described(letter, args, branch, commit)
    start = args.get("start")
    if start is None:
        return letter
    options = start.get("options") if isinstance(start, dict) else None
    text = start.get("prompt") if isinstance(start, dict) else None
    if not isinstance(options, dict) or not isinstance(text, str):
        raise UsageError("not a request", on="start", why="an object with prompt and options")
    kind = kinds().get(str(options.get("kind", "shell")))
    in_prompt = kind is not None and kind.is_agent
    text = handoff.prompt(letter, text) if in_prompt else text
    key = f"handoff {letter.mail.key or letter.mail.id}"
    made = await add_from(replace(asked, args={"text": text, "options": {"id": "handoff", **options}, "key": key}), commit)
    return handoff.to(letter, made["task"], in_prompt=in_prompt)


# Mem
# ---
# The memory of the agent's own project.


async def ask_mem(asked: Asked) -> dict[str, Any]:
    """See `verbs.mem`."""
    project = asked.loop.ledger.launch_row(asked.task).project
    return await notes.mem(Request(asked.memory, project, asked.task, asked.epoch, Args(asked.args)))


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


async def hook(asked: Asked) -> dict[str, Any]:
    """An event of the agent's command line: `name`, and `event`, the hook's input; null when it was too long to send. Returns what the hook
    prints, as `print`, where it should print something."""
    name, event = asked.args.get("name"), asked.args.get("event")
    if not isinstance(name, str) or not (event is None or isinstance(event, dict)):
        raise UsageError("not an event", why="name is text, event is an object or null")
    if _is_anothers(asked, str((event or {}).get("session_id") or "")):
        raise asked.loop.agents.evidence.forged((asked.task, asked.epoch))
    for told, what in asked.loop.agents.evidence.hook((asked.task, asked.epoch), name, event):
        with contextlib.suppress(DiskFull):  # how the agent is was heard all the same
            asked.loop.ledger.journal(asked.task, asked.epoch, told, {"why": what})
    held = asked.loop.crew.tasks.get(asked.task)
    if held is not None and held.attempt is not None and held.attempt.state is AttemptState.LAUNCHING:
        asked.loop.hint()  # it is there: who sends it something at once is not told that it does not run
    await asked.loop.machine.emergency.held()
    said = lease_requests.answer(asked.loop, asked.home, asked.memory.leases, (asked.task, asked.epoch), name, event)
    if said or name != lease_requests.EVENT or not (notices := await asked.memory.mail.notices(asked.task, asked.epoch)):
        return said
    return lease_requests.beside(notices)


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


VERBS: Mapping[str, Callable[[Asked], Coroutine[Any, Any, dict[str, Any]]]] = {
    "add": add,
    "hook": hook,
    "kill": kill,
    "lease": lease,
    "list": listed,
    "mail": mail,
    "mem": ask_mem,
    "result": result,
    "send": send,
    "wait": wait,
    "whoami": whoami,
}
