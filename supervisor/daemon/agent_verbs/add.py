"""Add a task below the agent's own: what `nightcrew add` gives a person, within the rule of `core.conducting`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from agents.kinds import kinds, of_task
from supervisor.config import plan
from supervisor.core import conducting
from supervisor.core.conducting import Parent
from supervisor.core.errors import NightcrewError, NotFound, Refused, UsageError
from supervisor.core.sandbox import Tier
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.core.states import AttemptState
from supervisor.daemon import model_usage
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.handlers import submit
from supervisor.daemon.submit import refuse_missing
from supervisor.ledger import added_tasks, queries
from supervisor.ledger.rows import LaunchRow

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
    key = conducting.child_key(asked.task, _key(asked.args))
    if (known := added_tasks.of_key(asked.db, key)) is not None:
        return {"task": known, "new": False}
    text, options = _text(asked.args.get("text"), "text", TEXT_MAX), _options(asked.args.get("options", {}))
    spec = plan.single((text,), kinds(), {"name": "task", **options, **_after(asked)}).tasks[0]
    given = {OPTIONS[name] for name in asked.args.get("options", {})}

    def child() -> TaskSpec:
        _refuse_ending(asked)
        return conducting.child(_parent(asked, row), spec, given)

    def settle(submission: Submission) -> Submission:
        return replace(submission, spec=replace(submission.spec, tasks=(child(),)))

    run = RunSpec(title=spec.title, base=row.base_oid, tasks=(child(),))
    refuse_missing(run.tasks[0], row.env)
    root = asked.loop.ledger.project_root(row.project)
    submission = Submission(key, row.project, root, row.common_dir, base or _base(asked, row), run, row.env)
    answer = await submit.handle(asked.loop, submit.to_wire(submission), settle)
    return {"task": answer["tasks"][0], "new": answer["new"]}


def _refuse_ending(asked: Asked) -> None:
    """One that is being stopped must leave no new tasks behind."""
    task = asked.loop.crew.tasks.get(asked.task)
    attempt = task.attempt if task is not None else None
    if attempt is None or attempt.epoch != asked.epoch or attempt.state not in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        raise Refused("not added", on=asked.task, why="its attempt is ending")


def _parent(asked: Asked, row: LaunchRow) -> Parent:
    below = [asked.loop.ledger.launch_row(name).spec for name in added_tasks.children(asked.db, asked.task)]
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
