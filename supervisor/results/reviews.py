"""A result as a person should see it before it is merged: first what would make its gate say less, then the rest. Lines and JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from supervisor.kernel.errors import NotFound, one_line
from supervisor.kernel.format import age, many, money
from supervisor.kernel.gate_files import FileDiff, Flag, flags
from supervisor.kernel.leases import unleased_note
from supervisor.kernel.result import TAMPERING, tampering
from supervisor.kernel.states import TaskState
from supervisor.results import conflicts, verdicts
from supervisor.results.conflicts import Matrix
from supervisor.results.verdicts import Comment, Decision, named
from supervisor.store import rows
from supervisor.store.queries import TaskView
from supervisor.views import status
from worktrees import merge, tree_merge
from worktrees.repository import Repository

MESSAGE_LINES = 20
FLAGS_SHOWN = 30
NOTES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Review:
    """Everything that is shown of one result."""

    view: TaskView
    repository: Repository
    base: str
    """Where it left the branch that it would be merged into; of one that is merged, where its task began."""
    tip: str
    merged: bool
    """The checkout has all of it."""
    diffs: tuple[FileDiff, ...]
    flags: tuple[Flag, ...]
    gate: str
    """The command; empty: none."""
    conflicts: tuple[str, ...]
    comments: tuple[Comment, ...]
    decision: Decision | None
    left_out: tuple[str, ...] = ()
    """Work of its agent that is on no branch, and so not in the diff: a line each."""

    @property
    def result(self) -> dict[str, Any]:
        """As in result.json; empty before an attempt has ended."""
        return self.view.result or {}

    @property
    def judged(self) -> str:
        """The commit that its gate judged, when that is not `tip`: the branch was moved since its attempt ended. Else empty."""
        left = str(self.result.get("tip") or "")
        return left if self.result.get("gate") is not None and left != self.tip else ""

    @property
    def verdict(self) -> str:
        """In words; empty: nobody decided."""
        if self.decision is None:
            return ""
        when = "" if self.decision.holds(self.tip) else f", as of {self.decision.tip[:12]}; it has changed since"
        return f"{self.decision.verdict}{f': {self.decision.why}' if self.decision.why else ''}{when}"


def gather(db: sqlite3.Connection, view: TaskView, repository: Repository, tip: str, matrix: Matrix) -> Review:
    """By five gits, however much was changed; what is larger than `patches` reads is said. Raises as `Git.run`."""
    left = merge.fork_point(repository, repository.head, tip, view.base_oid)
    merged = left == tip and view.base_oid not in (None, tip)
    base = str(view.base_oid) if merged else left
    diffs = tuple(tree_merge.read_patch(repository, base, tip))
    gate = rows.launch(db, view.id).spec.gate_words
    found = flags(tree_merge.of_diffs(repository, base, diffs), gate)
    said = tuple(conflicts.of_one(matrix, view.id))
    comments, decision = tuple(verdicts.comments(db, view.id)), verdicts.decision(db, view.id)
    return Review(view, repository, base, tip, merged, diffs, found, gate, said, comments, decision)


def looked_through(db: sqlite3.Connection, view: TaskView, repository: Repository, into: str, tip: str) -> tuple[str, int]:
    """The size of a result, and how much of it may weaken its gate. Raises as `Git.run`."""
    left = merge.fork_point(repository, into, tip, view.base_oid)
    diffs = tree_merge.read_patch(repository, left, tip, 0)
    found = flags(tree_merge.of_diffs(repository, left, diffs), rows.launch(db, view.id).spec.gate_words)
    return size(diffs), sum(flag.weakens for flag in found)


def merge_question(db: sqlite3.Connection, view: TaskView, repository: Repository, tip: str) -> str:
    """Ask whether to merge a result, and say its size: `Merge 1121-k3f9/lint into main of /home/dev/shop? 2 commits, 3 files +12 -8`; and
    how many changes may weaken its gate. Raises NotFound when it has no commit that the branch lacks, else as `Git.run`."""
    size, weak = looked_through(db, view, repository, repository.head, tip)
    commits = int(repository.run("rev-list", "--count", tip, f"^{repository.head}").text)
    warning = f"; {many(weak, 'change')} may make its gate say less: look at the diff first" if weak else ""
    if not commits:
        raise NotFound(
            "nothing to merge of", on=view.id, why=f"{repository.branch} has all of its commits", hint=f"nightcrew diff {view.id}"
        )
    return f"Merge {view.id} into {repository.branch or 'a detached HEAD'} of {repository.root}? {many(commits, 'commit')}, {size}{warning}"


def shape(review: Review) -> dict[str, Any]:
    """As `--json` has it."""
    agent = review.result.get("agent") or {}
    return {
        "task": review.view.id,
        "title": review.view.title,
        "state": review.view.state,
        "base": review.base,
        "commit": review.tip,
        "branch": review.view.branch,
        "merged": review.merged,
        "reason": status.why(review.view),
        "flags": [{**asdict(flag), "path": _text(flag.path)} for flag in review.flags],
        "tampering": tampering(review.result),
        "notes": _notes(review),
        "left_out": list(review.left_out),
        "unleased": review.result.get("unleased"),
        "denials": list(agent.get("denials") or ()),
        "gate": {"command": review.gate or None, "result": review.result.get("gate")},
        "conflicts": list(review.conflicts),
        "message": agent.get("message"),
        "cost_usd": review.result.get("cost_usd"),
        "verdict": None if review.decision is None else {**asdict(review.decision), "holds": review.decision.holds(review.tip)},
        "comments": [{**asdict(one), "outdated": one.tip != review.tip} for one in review.comments],
        "files": [_file(one) for one in review.diffs],
    }


def _file(one: FileDiff) -> dict[str, Any]:
    hunks = [
        {"lines": [{"old": old, "new": new, "sign": sign, "text": text} for old, new, sign, text in hunk.numbered()]} for hunk in one.hunks
    ]
    return {
        "path": _text(one.path), "status": one.status, "was": _text(one.old_path) or None, "plus": one.plus, "minus": one.minus,
        "binary": one.binary, "cut": one.cut, "mode": [one.old_mode, one.new_mode], "hunks": hunks,
    }  # fmt: skip


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def head(review: Review) -> Iterator[tuple[str, str]]:
    """The lines above the diff, each with how it is meant: `bad`, `good`, `title`, `faint` or nothing."""
    view, agent = review.view, review.result.get("agent") or {}
    yield f"{view.id}  {one_line(view.title)}", "title"
    facts = [_state(view), f"{review.tip[:12]} on {review.base[:12]}", size(review.diffs), *spent(review.result)]
    yield "  ".join(facts), "faint"
    yield from ((one_line(line), "bad") for line in review.left_out)
    if review.merged:
        yield "your checkout has all of it; this is what it changed since its task began", "good"
    if review.verdict:
        yield one_line(review.verdict), "good" if review.decision is not None and review.decision.verdict == "accepted" else "bad"
    yield from ((f"tampering: {one_line(what)}", "bad") for what in tampering(review.result))
    yield from _weak([flag for flag in review.flags if flag.weakens])
    yield from ((one_line(note), "bad") for note in unleased_note(review.result.get("unleased")))
    if denials := agent.get("denials"):
        yield f"it was not allowed to use {one_line(', '.join(map(str, denials)))}", "bad"
    yield _gate(review)
    yield from ((f"conflicts {text}", "bad") for text in review.conflicts)
    yield from _listed([flag for flag in review.flags if not flag.weakens], "")
    yield from ((f"note: {one_line(note)}", "faint") for note in _notes(review))
    yield from _message(str(agent.get("message") or ""))
    yield from _comments(review)


def _state(view: TaskView) -> str:
    why = status.why(view) if view.state is not TaskState.DONE else ""
    return str(view.state) + (f": {one_line(why)}" if why else "")


def _weak(weak: Sequence[Flag]) -> Iterator[tuple[str, str]]:
    if weak:
        yield "This may make its gate say less:", "bad"
    yield from _listed(weak, "bad")


def _listed(found: Sequence[Flag], meant: str) -> Iterator[tuple[str, str]]:
    yield from ((f"  {one_line(flag.path)}: {one_line(flag.why)}", meant) for flag in found[:FLAGS_SHOWN])
    if found[FLAGS_SHOWN:]:
        yield f"  and {len(found) - FLAGS_SHOWN} more", meant


def _notes(review: Review) -> list[str]:
    """Of its result, without those that are said elsewhere."""
    notes = (str(note) for note in review.result.get("notes", ()))
    return [note for note in notes if not note.startswith(TAMPERING)][:NOTES_SHOWN]


def _gate(review: Review) -> tuple[str, str]:
    said = review.result.get("gate")
    if not review.gate:
        return "no gate ran: its task has none", "faint"
    if said is None:
        return f"gate: {one_line(review.gate)}: it has not run", "faint"
    if review.judged:
        return f"gate: {one_line(review.gate)}: it has not run on this commit, but on {review.judged[:12]}", "bad"
    return (f"gate: {one_line(review.gate)}: passed", "good") if said["passed"] else (
        f"gate: {one_line(review.gate)}: {one_line(str(said['why']))}; nightcrew logs --stream gate {review.view.id}", "bad"
    )  # fmt: skip


def _message(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if lines:
        yield "Its last words:", "title"
    yield from ((f"  {one_line(line.expandtabs(4))}", "") for line in lines[:MESSAGE_LINES])
    if lines[MESSAGE_LINES:]:
        yield f"  and {len(lines) - MESSAGE_LINES} more lines", "faint"


def _comments(review: Review) -> Iterator[tuple[str, str]]:
    for one in review.comments:
        state = f"sent to {one.sent_to}" if one.sent is not None else "not sent"
        state += f", of {one.tip[:12]}" if one.tip != review.tip else ""
        yield f"comment {one.number} ({state}) {one_line(one.place)}: {one_line(one.text)}", "title" if one.sent is None else "faint"


def beside(review: Review) -> dict[tuple[str, int], list[str]]:
    """The comments to the result as it is, by file and number of the last line that they are about: each in lines."""
    found: dict[tuple[str, int], list[str]] = {}
    names = {named(one.path): one.path for one in review.diffs}
    for one in review.comments:
        if one.tip == review.tip and one.path in names:
            state = "" if one.sent is None else ", sent"
            first, *rest = one.text.split("\n")
            lines = [f"comment {one.number}{state}: {one_line(first)}", *(f"  {one_line(line)}" for line in rest)]
            found.setdefault((names[one.path], one.last), []).extend(lines)
    return found


def size(diffs: Sequence[FileDiff]) -> str:
    """`2 files +5 -0`."""
    plus, minus = sum(one.plus for one in diffs), sum(one.minus for one in diffs)
    return f"{many(len(diffs), 'file')} +{plus} -{minus}"


def spent(result: dict[str, Any]) -> Iterator[str]:
    """What it cost and how long it took, as far as somebody knows."""
    if result.get("cost_usd") is not None:
        yield money(result["cost_usd"])
    if result.get("spawn_to_done_ms"):
        yield age(result["spawn_to_done_ms"] / 1000)


def stat(review: Review) -> Iterator[str]:
    """One line a file: what became of it, its name, how many lines."""
    for one in review.diffs:
        was = f"{one_line(one.old_path)} -> " if one.old_path else ""
        lines = "binary" if one.binary else "too large" if one.cut else f"+{one.plus} -{one.minus}"
        lines += f"  {one.what}" if one.what else "  executable" if one.status == "A" and one.new_mode == "100755" else ""
        mode = f"  mode {one.old_mode} -> {one.new_mode}" if one.status in "MRT" and one.old_mode != one.new_mode else ""
        yield f"  {one.status} {was}{one_line(one.path)}  {lines}{mode}"
