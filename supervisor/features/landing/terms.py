"""How results are merged by a train: the method, the rules for generated files, and what a commit of ours says. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from supervisor.kernel import path_globs
from supervisor.kernel.errors import one_line

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
    """Patterns in the normal form of `core.path_globs`."""
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
