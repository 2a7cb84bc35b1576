"""From names of tasks to a train: which results, in which order, with which gates. Runs in the process of the command; changes nothing."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.kinds import kinds, of_task
from supervisor.client import submit
from supervisor.client.submit import Workplace
from supervisor.config import plan
from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing.rules import Entry, Event, Stage, Train
from supervisor.host import cores
from supervisor.kernel import train_orders
from supervisor.kernel.errors import Refused
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.train_orders import ENTRIES_MAX, GATE_KIND, Candidate, Method, Orders, Terms
from supervisor.results import candidates, taking, trial_merges, verdicts
from supervisor.results.taking import Offer
from supervisor.results.verdicts import Decision, Verdict
from supervisor.sandbox.policy import Tier
from supervisor.store import journal, queries, rows
from supervisor.store.queries import TaskView
from worktrees import landing, merge
from worktrees.tree_merge import objects_aside

_PRIORITY = 60
_LEFT_MAX = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person said; None: nothing."""

    into: str | None = None
    method: str | None = None
    gates: tuple[str, ...] | None = None
    width: int | None = None
    repairs: int | None = None
    force: bool = False
    with_changes: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A train that could begin."""

    train: Train
    orders: Orders
    gates_from: str
    """Where its gates come from, in words."""
    notes: tuple[str, ...]
    """One line each: what the person should know first."""
    template: Submission
    """A submission with the task of a gate: what it starts from is made ready by it."""

    def ready(self, gate: TaskSpec) -> Planned:
        """With the task of a gate as it is once what it starts from is there."""
        return replace(self, orders=replace(self.orders, gate=gate))

    def request(self) -> dict[str, Any]:
        """What the verb `land` takes."""
        return {"op": "begin", "train": self.train, "orders": self.orders.to_json()}


def ready(db: sqlite3.Connection, place: Workplace, into: str | None) -> list[str]:
    """The tasks whose results wait to be merged: done, so that their gates passed, not rejected, no candidates but those that were chosen,
    with something that the branch lacks and that no train found there. Oldest first."""
    repository = place.repository
    branch = into or _current(place)
    found, _ = journal.of_project(db, repository.project, ENTRIES_MAX)
    done = [one for one in found if not one.living]
    if not done:
        return []
    stands = trial_merges.standing(repository, [one.name for one in done], landing.tip(repository, branch))
    decided, landed = verdicts.decisions(db, [one.task for one in done]), landing_rows.landed(db, repository.project, branch)
    names, of_groups = [], candidates.standings(db, [one.task for one in done])
    for one in reversed(done):
        tip, candidate = stands.tips.get(one.name), of_groups.get(one.task)
        if (
            tip is None
            or (candidate is not None and not candidate.chosen)
            or one.name in stands.merged
            or (one.task, tip) in landed
            or _rejected(decided.get(one.task), tip)
        ):
            continue
        names.append(one.task)
    return names


def left_out(db: sqlite3.Connection, place: Workplace, into: str | None) -> list[str]:
    """Say what work of the project's tasks `ready` cannot see, since it is on no branch, in lines for people; of the newest tasks, at most
    `_LEFT_MAX`. Raises as `ready`."""
    tip = landing.tip(place.repository, into or _current(place))
    found, _ = journal.of_project(db, place.repository.project, ENTRIES_MAX)
    lines = (line for view in queries.several(db, [one.task for one in found]) for line in taking.left_out(db, view, place.repository, tip))
    return list(itertools.islice(lines, _LEFT_MAX))


def planned(db: sqlite3.Connection, views: Sequence[TaskView], place: Workplace, asked: Asked, environ: Mapping[str, str]) -> Planned:
    """Return the train of these results. Raises Refused for a task that is unfit (see `taking.refuse_unfit`), was rejected, or belongs
    elsewhere; NotFound for a branch or a result that is gone."""
    repository, wanted = place.repository, place.project.land
    views = list({view.id: view for view in (candidates.of_group(db, view) for view in views)}.values())
    branch = asked.into or _current(place)
    base = landing.tip(repository, branch)
    specs = {view.id: rows.launch(db, view.id).spec for view in views}
    decided = verdicts.decisions(db, list(specs))
    mended = landing_rows.asked(db, repository.project)
    offered = {view.id: _offer(db, place, view, asked) for view in views}
    entries = [_entry(view, specs[view.id], decided.get(view.id), offered[view.id].tip, force=asked.force) for view in views]
    entries = [replace(entry, repairable=entry.repairable and (entry.task, entry.tip) not in mended) for entry in entries]
    commands, said = train_orders.gates(asked.gates, wanted.gate, [spec.gate_words for spec in specs.values()])
    gate = _confined(_gate_task(place, list(specs.values()), gated=bool(commands)), place, views, list(specs.values()))
    terms = Terms("", merge.person(repository), 0.0, Method(asked.method or wanted.method), bool(commands), branch, place.project.generated)
    template = submit.submission(RunSpec("gate", (gate,)), place, base, None, environ)
    orders = Orders(template.root, template.common_dir, terms, gate, template.env)
    width = asked.width or wanted.width or max(2, len(cores.usable()))
    repairs = wanted.repairs if asked.repairs is None else asked.repairs
    inside = _in_order(db, views, entries)
    train = Train("", repository.project, branch, base, commands, width, repairs, entries=tuple(inside))
    notes = [note for one in offered.values() for note in one.notes]
    return Planned(train, orders, said, (*notes, *_notes(place, branch)), template)


def tried(done: Planned, place: Workplace) -> list[Event]:
    """What would come of each result if every gate passed, in order. Nothing is kept of that."""
    found: list[Event] = []
    with objects_aside(place.repository) as repository:
        from supervisor.features.landing.service import TrainGit  # the server: a train that begins need not wait for it

        door, tip = TrainGit(repository, replace(done.orders, terms=replace(done.orders.terms, train="trial", began=1.0))), done.train.base
        for entry in done.train.entries:
            event = door.tried(done.train, Stage(entry.position, tip))
            found.append(event)
            tip = getattr(event, "commit", tip)
    return found


def _current(place: Workplace) -> str:
    if place.repository.branch is None:
        root = str(place.repository.root)
        raise Refused("land into which branch?", on=root, why="HEAD is detached", kept="everything", hint="nightcrew land --into BRANCH")
    return place.repository.branch


def _rejected(decision: Decision | None, tip: str) -> bool:
    return decision is not None and decision.rejects(tip)


def _offer(db: sqlite3.Connection, place: Workplace, view: TaskView, asked: Asked) -> Offer:
    if view.project != place.repository.project:
        raise Refused("cannot land", on=view.id, why=f"it does not belong to {place.repository.root}", hint=f"nightcrew status {view.id}")
    taking.refuse_unfit(view, "cannot land", force=asked.force)
    return taking.make_offer(db, place.repository, view, with_changes=asked.with_changes)


def _entry(view: TaskView, spec: TaskSpec, decision: Decision | None, tip: str, *, force: bool) -> Entry:
    if _rejected(decision, tip) and not force:
        raise Refused("will not land", on=view.id, why="it was rejected", kept="its ref", hint=f"nightcrew review {view.id}, or --force")
    trusted = decision is not None and decision.verdict is Verdict.ACCEPTED and decision.holds(tip)
    title = view.title.strip().splitlines()[0] if view.title.strip() else view.name
    return Entry(0, view.id, view.epoch, tip, title, trusted=trusted, repairable=of_task(spec.kind).is_agent and not view.interactive)


def _in_order(db: sqlite3.Connection, views: Sequence[TaskView], entries: Sequence[Entry]) -> list[Entry]:
    if len(entries) > ENTRIES_MAX:
        raise Refused("too many results", on=str(len(entries)), why=f"a train takes {ENTRIES_MAX}", hint="name some of them")
    needs = landing_rows.needs(db, [view.id for view in views])
    known = {entry.task: entry for entry in entries}
    candidates = [Candidate(view.id, _lines(view), needs[view.id]) for view in views]
    return [
        replace(known[one.task], position=number, needs=tuple(sorted(one.needs & known.keys())))
        for number, one in enumerate(train_orders.ordered(candidates), start=1)
    ]


def _lines(view: TaskView) -> int:
    diff = (view.result or {}).get("diff") or {}
    return int(diff.get("plus") or 0) + int(diff.get("minus") or 0)


def _gate_task(place: Workplace, specs: Collection[TaskSpec], *, gated: bool) -> TaskSpec:
    """The task of a gate: as any task of the project that works by itself, with the snapshot that the results' tasks agree on."""
    land = place.project.land
    common = {spec.snapshot for spec in specs}
    snapshot = land.snapshot or (next(iter(common)) if len(common) == 1 else "")
    timeout = max([land.timeout_s, *(spec.gate_timeout_s for spec in specs)])
    options = {
        "id": "gate", "kind": "shell", "task_class": "normal", "priority": _PRIORITY, "retries": 0, "timeout": timeout,
        "snapshot": snapshot if gated or place.project.generated else "",
    }  # fmt: skip
    return replace(plan.single(("true",), kinds(), options, place.project.defaults, place.project.base).tasks[0], kind=GATE_KIND)


def _confined(gate: TaskSpec, place: Workplace, views: Sequence[TaskView], specs: Collection[TaskSpec]) -> TaskSpec:
    """Return the task of a gate in at least the highest tier of the agents whose work it runs; in the highest tier of all, with no more
    network than they have."""
    held = max((view.tier or 0 for view in views), default=0)
    if not held:
        return gate
    tier = max(held, gate.sandbox or 0, place.settings.sandbox or 0)
    networks = {spec.network for spec in specs}
    network = gate.network if held < Tier.OFFLINE else networks.pop() if len(networks) == 1 else False
    return replace(gate, sandbox=tier, network=network)


def _notes(place: Workplace, branch: str) -> list[str]:
    notes = [*place.repository.notes]
    if missing := landing.left_out(place.repository):
        notes.append(missing)
    if busy := landing.readiness(place.repository, branch):
        notes.append(f"{branch} could not be moved as it is now: {busy}")
    return notes
