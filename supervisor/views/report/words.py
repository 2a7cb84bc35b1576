"""What the report says, and text of strangers inside Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from shlex import quote
from typing import Any

from supervisor.kernel.ansi import in_texts
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import UNKNOWN, duration, listed, many
from supervisor.kernel.retry import GATE
from supervisor.results.findings import REPOSITORY, Perspective
from supervisor.views.document import Verdict
from supervisor.views.figures import text as spent_words
from supervisor.views.status import cut

# Words
# -----
# What both pages say of a run, as sentences and numbers. Pure: no markup and no clock.


Report = Mapping[str, Any]
"""The whole of `report.json`, schema 1."""

SEVERITIES = ("high", "medium", "low")
_NO_RESULT = frozenset({"failed", "missing"})
_ENDED_BADLY = ("failed", "quarantined", "cancelled", "expired", "skipped")
_LOOK_INTO = frozenset({"failed", "quarantined"})


def shown(report: Report) -> dict[str, Any]:
    """The report without the summary of an analysis that is too young to know anything; every text is harmless to look at: control
    characters, line breaks, direction overrides and lone surrogates are escapes."""
    facts: dict[str, Any] = in_texts(report, lambda text: text if text.isprintable() else one_line(text))
    return facts if known(facts) else facts | {"summary": None}


def known(report: Report) -> bool:
    """Whether an analyst has answered, or never will."""
    return any(one["counts"] or one["state"] != "running" for one in (report["summary"] or {}).get("perspectives", ()))


def title(report: Report) -> str:
    """The run's title; with a capital where it is our own, an analysis's."""
    text = str(report["run"]["title"] or report["run"]["id"])
    return text[:1].upper() + text[1:] if any(task["phase"] for task in report["tasks"]) else text


def paragraphs(text: str) -> list[str]:
    """A model's prose, one text a paragraph; line breaks inside a paragraph become spaces."""
    return [" ".join(part.split()) for part in text.replace("\r\n", "\n").split("\n\n") if part.strip()]


def number(value: float | None) -> str:
    """`2,800`, `71.3`; a dash when it is not known."""
    match value:
        case None:
            return UNKNOWN
        case int():
            return f"{value:,}"
        case _:
            return f"{value:,.1f}"


def ratio(value: float | None) -> str:
    """Two decimals: what a speedup deserves."""
    return UNKNOWN if value is None else f"{value:.2f}"


REPOSITORY_WIDE = "(repository)"
"""The place of what is said of no file in particular."""


def file(name: str) -> str:
    """A finding's file; what is said of no file in particular is said of the repository."""
    return REPOSITORY_WIDE if name == REPOSITORY else name


def place(finding: Mapping[str, Any]) -> str:
    """`file:line`, as editors take it; the file alone when the whole file is meant."""
    return f"{file(finding['file'])}:{finding['line']}" if finding["line"] else file(finding["file"])


@dataclass(frozen=True, slots=True)
class Issue:
    """What to fix, once, however many places it was found in."""

    severity: str
    message: str
    code: str
    perspective: str
    places: tuple[str, ...]
    """At least one; the first is the one that the lead chose."""
    others: str
    """`in 3 other places`; empty when there is one place."""


def issues(report: Report) -> list[Issue]:
    """The summary's issues in its order: those that differ by their place alone are one, with every place that the findings know."""

    def kind(one: Mapping[str, Any]) -> tuple[str, ...]:
        return one["perspective"], one["severity"], one["code"], one["message"]

    places: dict[tuple[str, ...], dict[str, None]] = {kind(one): {} for one in report["summary"]["issues"]}
    for one in [*report["summary"]["issues"], *report["findings"]]:
        if (same := places.get(kind(one))) is not None:
            same[place(one)] = None
    kept = Counter((one["perspective"], one["severity"]) for one in report["findings"])
    total = {(one["name"], name): number for one in report["summary"]["perspectives"] for name, number in one["severities"].items()}

    def others(found: tuple[str, ...], number: int) -> str:
        least = "at least " if kept[found[0], found[1]] < total.get((found[0], found[1]), 0) else ""
        return f"in {least}{many(number, 'other place')}" if number else ""

    return [
        Issue(severity, message, code, perspective, tuple(where), others((perspective, severity), len(where) - 1))
        for (perspective, severity, code, message), where in places.items()
    ]


def verdict(report: Report) -> Verdict:
    """What became of the run. A run that is not whole never reads as one that is."""
    if report["run"]["state"] == "running":
        ended = sum(task["state"] in ("done", *_ENDED_BADLY) for task in report["tasks"])
        so_far = (
            "nothing is known yet"
            if any(task["phase"] for task in report["tasks"]) and not known(report)
            else "this is what is known so far"
        )
        return Verdict("open", "●", "Still running", f"{ended} of {many(len(report['tasks']), 'task')} ended; {so_far}.")
    if report["summary"] is None:
        return _of_tasks(report["tasks"])
    return _of_analysis(report)


def _of_tasks(tasks: Sequence[Mapping[str, Any]]) -> Verdict:
    states = Counter(task["state"] for task in tasks)
    if not tasks:
        return Verdict("part", "!", "Nothing ran", "The run has no task.")
    if states["done"] == len(tasks):
        ready = sum(takeable(task) for task in tasks)
        commits = f"{ready} left commits to take" if ready else "none left commits"
        all_of = "The task is" if len(tasks) == 1 else f"All {len(tasks)} tasks are"
        return Verdict("good", "✓", "Done", f"{all_of} done; {commits}.")
    rest = listed([f"{count} {state}" for state in _ENDED_BADLY if (count := states[state])] or ["the rest did not end"])
    if not states["done"]:
        return Verdict("bad", "✗", "Failed", f"None of {many(len(tasks), 'task')} is done: {rest}.")
    return Verdict("part", "!", "Failed in part", f"{states['done']} of {len(tasks)} tasks are done; {rest}.")


def _of_analysis(report: Report) -> Verdict:
    summary = report["summary"]
    every = summary["perspectives"]
    lost = [one["name"] for one in every if one["state"] in _NO_RESULT]
    partial = [one["name"] for one in every if one["state"] == "partial"]
    if not every or len(lost) == len(every):
        return Verdict("bad", "✗", "Failed", f"None of {many(len(every), 'perspective')} gave a result, so there is no health score.")
    if lost or partial:
        gaps = [f"no result from {listed(lost)}"] * bool(lost) + [f"only a part from {listed(partial)}"] * bool(partial)
        sentence = "; ".join(gaps)
        return Verdict("part", "!", "Incomplete", f"{sentence[0].upper()}{sentence[1:]}. {_standing(summary)}")
    if not summary["files"]:
        return Verdict("part", "!", "Nothing to score", "There is no Python file at this commit.")
    size = f"{many(summary['files'], 'file')} and {many(summary['lines'], 'line')}"
    if report["run"]["state"] != "done":
        return Verdict("part", "!", "Failed in part", f"Every perspective is whole ({size}), but a task of the run failed: see the crew.")
    return Verdict("good", "✓", "Complete", f"{many(len(every), 'perspective')} looked at {size}: {_severe(every)}.")


def _standing(summary: Mapping[str, Any]) -> str:
    if summary["health"] is None:
        return "There is no health score."
    return f"The health score stands on {_scored(summary)} of {many(len(Perspective), 'perspective')}."


def basis(summary: Mapping[str, Any]) -> str:
    """`from 1 of 5 perspectives`, beside every health that is not from all that there are; else empty."""
    scored = _scored(summary)
    return f"from {scored} of {many(len(Perspective), 'perspective')}" if 0 < scored < len(Perspective) else ""


def _scored(summary: Mapping[str, Any]) -> int:
    return sum(one["score_per_kloc"] is not None for one in summary["perspectives"])


def rests_on(perspective: Mapping[str, Any]) -> str:
    """What a perspective counted, in a few words: what its score rests on. Empty when it has no result."""
    counts, files = perspective["counts"], perspective["files"]
    if not counts:
        return ""
    match perspective["name"]:
        case Perspective.SECURITY:
            severe = [f"{count:,} {name}" for name in SEVERITIES if (count := perspective["severities"].get(name, 0))]
            return many(counts["issues"], "issue") + (f" ({', '.join(severe)})" if severe else "")
        case Perspective.COMPLEXITY:
            worst = f", the worst {counts['worst']:,}" if counts["over"] else ""
            return f"{counts['over']:,} of {many(counts['functions'], 'function')} over 5{worst}"
        case Perspective.DOCSTRINGS:
            return f"{counts['documented']:,} of {many(counts['objects'], 'public object')} documented"
        case Perspective.TESTS:
            return f"{counts['test_files']:,} of {many(files, 'file')} for tests, {many(counts['test_functions'], 'test function')}"
        case _:
            return f"{many(counts['functions'], 'function')} in {many(files, 'file')}"


def _severe(perspectives: Iterable[Mapping[str, Any]]) -> str:
    total = severities(perspectives)
    return listed([f"{total[name]:,} {name}" for name in SEVERITIES]) + "-severity findings"


def severities(perspectives: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """All findings of all perspectives by severity, also those that no list shows."""
    parts = list(perspectives)
    return {name: sum(one["severities"].get(name, 0) for one in parts) for name in SEVERITIES}


def takeable(task: Mapping[str, Any]) -> bool:
    """Whether `nightcrew take` has something to merge: nobody rejected it, no other candidate was chosen, the checkout lacks it."""
    rejected = (task.get("review") or {}).get("verdict") == "rejected"
    wanted = not rejected and task.get("chosen") is not False and task.get("to_take", True)
    return bool(task["state"] == "done" and task["branch"] and task["commits"] and wanted)


def command(verb: str, task_id: str) -> str:
    """A command line to copy. The id is quoted: what a shell would act on stays a word."""
    return f"nightcrew {verb} {quote(task_id)}"


@dataclass(frozen=True, slots=True)
class Failure:
    """One task that did not end well, and how to see more."""

    task: str
    name: str
    state: str
    reason: str
    command: str


def failures(report: Report) -> list[Failure]:
    """Every task that did not end well, in the run's order; then what the lead missed and the run does not list."""
    told = {one["task"]: one for one in (report["summary"] or {}).get("failed", [])}
    found = [task for task in report["tasks"] if task["state"] in _ENDED_BADLY]
    listed_ids = {task["id"] for task in found}
    return [
        _failure(task["id"], task["name"], task["state"], told.get(task["id"], {}).get("reason") or task["reason"]) for task in found
    ] + [
        _failure(one["task"], f"{one['perspective']} {one['shard']}", "failed", one["reason"])
        for one in told.values()
        if one["task"] not in listed_ids
    ]


def notes(report: Report) -> list[tuple[str, str]]:
    """A task's name and what is unusual about its result; reports of older versions have none."""
    return [(task["name"], note) for task in report["tasks"] for note in task.get("notes", ())]


def _failure(task: str, name: str, state: str, reason: str) -> Failure:
    look = "logs --stream gate" if reason.startswith(GATE) else "logs"
    return Failure(task, name, state, reason or "no reason was recorded", command(look if state in _LOOK_INTO else "status", task))


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one task over all its attempts; None when that part never happened."""

    setup: float | None
    held: float | None
    work: float | None


def spent(task: Mapping[str, Any]) -> Spent:
    """Where a task's time went."""
    totals: dict[str, float] = {}
    for attempt in task["attempts"]:
        for part, begin, end in parts(attempt):
            totals[part] = totals.get(part, 0.0) + end - begin
    return Spent(totals.get("setup"), totals.get("held"), totals.get("work"))


LAST_LINE = 200
"""Characters of a task's last line on a page; report.json has all of it."""


def last_line(task: Mapping[str, Any]) -> str:
    """Its beginning, with an ellipsis when some is left out."""
    return cut(task["last_line"], LAST_LINE)


def models(of: Mapping[str, Any]) -> str:
    """What a task, or the whole report, took of models: `61k tokens, $0.33, waited 12s`; empty when nothing is known of any."""
    taken = of.get("spent")
    return spent_words(taken, duration(taken["wait_s"])) if taken else ""


_HELD_S = 0.1
"""Less than this between a runner's start and its command's is start-up, not a wait for others: creation to command took 0.07 to 0.1 s."""


def parts(attempt: Mapping[str, Any], now: float | None = None) -> list[tuple[str, float, float]]:
    """An attempt as (setup | held | work, begin, end) in seconds since 1970. `now` ends what has not ended; without it that is left out.

    `began` comes with the result, so an attempt that still runs or was lost has none: its work then counts from `up`, which is when the
    supervisor noticed the runner and may be a second late, even after `began`.
    """
    last = attempt["ended"] if attempt["ended"] is not None else now
    began = attempt["up"] if attempt["began"] is None else attempt["began"]
    held = attempt["up"] if attempt["up"] is not None and began - attempt["up"] >= _HELD_S else None
    marks = [("setup", attempt["created"]), ("held", held), ("work", began), ("", last)]
    known = [(name, at) for name, at in marks if at is not None]
    return [(name, at, end) for (name, at), (_, end) in pairwise(known) if end > at or name == "work"]


def compared(report: Report) -> bool:
    """Whether the crew's time can be set against a baseline's; without one the figures only repeat the crew's table."""
    return bool(figures := report["figures"]) and figures["sequential_s"] is not None and report["run"]["state"] != "running"


def at_once(report: Report) -> str:
    """The sentence on the crew's time; empty while it is still running, or when a section of its own compares it."""
    ended = report["run"]["state"] != "running"
    return str(report["summary"]["parallel"]) if report["summary"] and ended and not compared(report) else ""


def health_sum(summary: Mapping[str, Any]) -> str:
    """The arithmetic behind the health, to check by hand; empty when there is no score."""
    weights = summary["weights"]
    known = [(weights.get(one["name"], 0), one["score_per_kloc"]) for one in summary["perspectives"] if one["score_per_kloc"] is not None]
    if not known or summary["health"] is None:
        return ""
    terms = " + ".join(f"{weight} × {number(score)}" for weight, score in known)
    return f"({terms}) / {sum(weight for weight, _ in known)} = {number(summary['health'])}"


def formulas(perspective: Mapping[str, Any]) -> list[str]:
    """Of the score per 1,000 lines and of the plain one, as printed: written out, with real multiplication and minus signs."""
    plain, per_kloc = perspective["formula"], perspective["formula_per_kloc"]
    return [text.replace(" x ", " × ").replace(" - ", " − ") for text in (plain if per_kloc == "the same" else per_kloc, plain)]
