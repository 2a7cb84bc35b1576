"""What a train of merges is told once, and the order of its results. Pure."""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.features.landing.terms import Terms
from supervisor.kernel import codec
from supervisor.kernel.spec import TaskSpec

WIDTH_MAX = 64
REPAIRS_MAX = 5
"""Of one result."""
ENTRIES_MAX = 500
GATE_KIND = "landing-gate"
"""Kind of the tasks that run gates."""


@dataclass(frozen=True, slots=True)
class Orders:
    """How a train is done: everything that has to be the same for the supervisor that goes on with it."""

    root: str
    """The person's checkout in which it was asked for."""
    common_dir: str
    terms: Terms
    gate: TaskSpec
    """The task that runs a gate, without its command."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the shell that asked: allow-listed, as of any submission."""

    def to_json(self) -> str:
        """The form stored in the ledger: the keys of `terms` stand beside the others."""
        own = {"root": self.root, "common_dir": self.common_dir, "gate": codec.brief(self.gate), "env": self.env}
        return codec.dumps({**codec.shape(self.terms), **own})

    @classmethod
    def from_json(cls, text: str) -> Orders:
        """Read what `to_json` wrote."""
        shape = json.loads(text)
        return codec.load(cls, {**shape, "terms": shape})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result that is to be part of a train."""

    task: str
    lines: int
    """How many it changes."""
    needs: frozenset[str] = frozenset()
    """Tasks that it comes after by its plan, directly or not."""


def ordered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Each after those that it needs, as far as they are among them; of those that may come next the smallest first, then as given."""
    among = {one.task for one in candidates}
    left = {one.task: set(one.needs & among - {one.task}) for one in candidates}
    ready = [(one.lines, at) for at, one in enumerate(candidates) if not left[one.task]]
    heapq.heapify(ready)
    found: list[Candidate] = []
    while ready:
        _, at = heapq.heappop(ready)
        found.append(candidates[at])
        for later, other in enumerate(candidates):
            if candidates[at].task in left[other.task]:
                left[other.task].discard(candidates[at].task)
                if not left[other.task]:
                    heapq.heappush(ready, (other.lines, later))
    return found


def gates(asked: Collection[str] | None, of_project: str, of_tasks: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The commands that every merged tree has to pass, and in words where they come from. `asked`: on the command line, None when nothing
    was said there; then that of the project, then every one that the results' tasks have."""
    if asked is not None:
        return tuple(dict.fromkeys(asked)), "as you said"
    if of_project:
        return (of_project,), "nightcrew.toml"
    found = tuple(dict.fromkeys(one for one in of_tasks if one))
    return found, "the gates of the results' own tasks" if found else "neither nightcrew.toml nor a task of the results has one"


def repair_words(branch: str, onto: str, reason: str, files: Collection[str]) -> str:
    """The prompt that asks an agent to mend its own result."""
    named = "".join(f"\n- {path}" for path in files)
    conflicting = f"\n\nFiles that conflict:{named}" if named else ""
    return (
        f"[nightcrew] Your work was to be merged into {branch} with that of others, and was left out: {reason}.{conflicting}\n\n"
        f"What {branch} would have by now, with everything that comes before your work, is the commit {onto}. Merge it into your work "
        f"(git merge {onto}), resolve what conflicts so that the intent of both stays, see that the tests pass, and commit. Change nothing "
        f"else."
    )


def shape(orders: Orders) -> dict[str, Any]:
    """What people see of them."""
    return {"method": str(orders.terms.method), "timeout_s": orders.gate.timeout_s, "snapshot": orders.gate.snapshot or None}
