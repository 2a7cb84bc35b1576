"""What a train of merges is told once, and how it merges: method, generated files, the text of our commits, the order of results. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from supervisor.kernel import codec, path_globs
from supervisor.kernel.errors import one_line
from supervisor.kernel.spec import TaskSpec

WIDTH_MAX = 64
REPAIRS_MAX = 5
"""Of one result."""
ENTRIES_MAX = 500
GATE_KIND = "landing-gate"
"""Kind of the tasks that run gates."""
TASK, TRAIN, GATE, COAUTHOR = "Nightcrew-Task", "Nightcrew-Train", "Nightcrew-Gate", "Co-authored-by"
"""Trailers."""
_TRAILER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*: \S")
_OURS = re.compile(r"[ \t]*nightcrew-[a-z0-9-]*[ \t]*:", re.IGNORECASE)
"""A line that git takes for a trailer of ours."""
COAUTHORS_MAX = 20
TITLE_MAX = 200


class Method(StrEnum):
    """How one result comes onto the branch."""

    MERGE = "merge"
    """One merge commit, also where the branch could have been moved forward."""
    SQUASH = "squash"
    """One ordinary commit with all that the result changed."""
    REBASE = "rebase"
    """Each commit of the result again, with its author and message."""


class GeneratedRule(NamedTuple):
    """Files that a command makes out of others, such as lock files: nobody merges them by lines."""

    paths: tuple[str, ...]
    """Patterns in the normal form of `path_globs`."""
    command: str
    """Run by `/bin/sh -c` at the top of a worktree; it writes the files anew."""

    def covers(self, path: str) -> bool:
        """Whether it makes the file at `path`, from the root of the repository."""
        return any(path_globs.covers(pattern, path) for pattern in self.paths)


class Person(NamedTuple):
    """Whose commits they are."""

    name: str
    mail: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every result of one train."""

    train: str
    """Its id."""
    person: Person
    began: float
    """Seconds since 1970: the moment of every commit, so that the same results make the same commits again."""
    method: Method = Method.MERGE
    gated: bool = False
    """A gate runs on each merged tree."""
    into: str = ""
    """Short name of the branch."""
    generated: tuple[GeneratedRule, ...] = ()

    def regenerate(self, paths: Collection[str]) -> tuple[str, ...]:
        """The commands that make these files, each once, in the order of the rules."""
        return tuple(dict.fromkeys(rule.command for rule in self.generated if any(rule.covers(path) for path in paths)))

    def must_exist(self, path: str) -> bool:
        """Whether a rule names the file by its whole path. Of what a pattern covers its command may remove some."""
        return any(path in rule.paths for rule in self.generated)

    def is_generated(self, path: str) -> bool:
        """Whether a rule makes it."""
        return any(rule.covers(path) for rule in self.generated)


def message(terms: Terms, task: str, title: str, coauthors: Collection[Person] = ()) -> str:
    """Of the commit by which a result comes in."""
    words = one_line(title.strip().splitlines()[0] if title.strip() else task)[:TITLE_MAX]
    head = f"Merge {task}: {words}" if terms.method is Method.MERGE else words
    return f"{head}\n\n{trailers(terms, task, coauthors)}"


def signed(said: str, terms: Terms, task: str) -> str:
    """The message `said` of an author's with our trailers behind, in the block of its own if it ends with one. Lines of it that begin as
    one of our trailers are left out: only a train says those."""
    text = "\n".join(line for line in said.split("\n") if not _OURS.match(line)).strip() or task
    block = text.rpartition("\n\n")[2] if "\n\n" in text else ""
    joined = "\n" if block and all(_TRAILER.match(line) for line in block.splitlines()) else "\n\n"
    return f"{text}{joined}{trailers(terms, task)}"


def trailers(terms: Terms, task: str, coauthors: Collection[Person] = ()) -> str:
    """One line each. A gate is named as passed: the branch is moved to no commit of which that is not true."""
    others = [one for one in dict.fromkeys(coauthors) if one.mail != terms.person.mail][:COAUTHORS_MAX]
    lines = [f"{COAUTHOR}: {one_line(one.name)} <{one_line(one.mail)}>" for one in others]
    lines += [f"{TASK}: {task}", f"{TRAIN}: {terms.train}", f"{GATE}: {'passed' if terms.gated else 'none'}"]
    return "".join(f"{line}\n" for line in lines)


def foreign(changed: Collection[str], terms: Terms) -> tuple[str, ...]:
    """Of the files that a command changed those that no rule makes."""
    return tuple(sorted(path for path in changed if not terms.is_generated(path)))


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
    from supervisor.kernel.account import in_order  # here: short commands order nothing

    places = in_order([(one.task, one.needs) for one in candidates], lambda at: candidates[at].lines)
    return [candidates[at] for at in places]


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
