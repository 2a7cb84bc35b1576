"""night.md: the report for a terminal, a mail or a pull request, in the order of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from supervisor.faces.night import words
from supervisor.faces.report.escape import code, text
from supervisor.faces.report.markdown import table, tries, waits
from supervisor.faces.report.words import many, seconds

TASKS = 40
"""Rows of a table here; night.html and night.json have all."""


def render(shape: Mapping[str, Any]) -> str:
    """The report (see `shape`) as GitHub's Markdown, ending with a newline."""
    facts = words.shown(shape)
    return "\n\n".join(section for section in _sections(facts) if section) + "\n"


def _sections(facts: Mapping[str, Any]) -> Iterator[str]:
    several = words.zoned(facts)
    yield _head(facts)
    yield _list("Needs you", [_need(one) for one in facts["needs"]])
    yield _list("Did not end well", [_unwell(one) for one in facts["unwell"]])
    yield tries(facts.get("choices") or ())
    yield from _ready(facts)
    yield from _cost(facts)
    yield from _time(facts)
    if found := facts.get("waits"):
        yield waits(found)
    yield from _again(facts, several)
    moments = [one for one in facts["events"] if one["kind"] not in ("outage", "breaker")]
    yield _list("Moments", [_event(one, several) for one in moments])
    yield _list("Not started", [_group(one) for one in facts["unstarted"]])
    if facts["against"]:
        yield _against(facts)
    yield _list("Could not be read", [text(what) for what in facts["trouble"]])
    yield _provenance(facts)


def _list(title: str, lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - TASKS:,} more, in night.html"] if len(lines) > TASKS else []
    return f"## {title}\n\n" + "\n".join([*(f"- {line}" for line in lines[:TASKS]), *more]) if lines else ""


def _head(facts: Mapping[str, Any]) -> str:
    run, found = facts["run"], facts["verdict"]
    trouble = f"Not everything could be read: {facts['trouble'][0]}" if facts["trouble"] else ""
    why = "".join(f"\n\n{text(note)}" for note in (found["why"], trouble) if note)
    return (
        f"# {text(run['title'] or run['id'])}\n\n**{found['sign']} {found['word']}:** {text(found['sentence'])}{why}\n\n"
        f"{code(facts['repository']['root'])}, {text(words.period(run, facts['generated']))}"
    )


def _name(one: Mapping[str, Any]) -> str:
    title = f" ({text(one['title'])})" if one["title"] and one["title"] != one["name"] else ""
    return f"**{text(one['name'])}**{title}"


def _commands(some: Sequence[str]) -> str:
    return ", ".join(map(code, some))


def _need(one: Mapping[str, Any]) -> str:
    return f"{_name(one)}: {text(' '.join(one['question']))} {_commands(one['commands'])}"


def _unwell(one: Mapping[str, Any]) -> str:
    tampering = "".join(f"; **tampering**: {text(what)}" for what in one["tampering"])
    said = f"; {code(one['printed'][-1])}" if one["printed"] else ""
    return f"{_name(one)} {one['state']}: {text(one['reason'])}{said}{tampering}; {_commands(one['commands'])}"


def _ready(facts: Mapping[str, Any]) -> Iterator[str]:
    left = [one for one in facts["ready"] if not one["taken"]]
    yield _list("Ready to take", [_takeable(one, facts["repository"]["on"]) for one in left]) or "## Ready to take\n\nNothing."
    if taken := [one for one in facts["ready"] if one["taken"]]:
        yield f"Taken already: {text(words.names(taken))}."
    yield _list("Commits elsewhere", [f"{_name(one)} {words.ELSEWHERE}: {_commands(one['commands'])}" for one in facts["elsewhere"]])


def _takeable(one: Mapping[str, Any], on: str) -> str:
    gate = {"passed": "gate passed", "": "no gate", None: "no gate"}.get(one["gate"]) or f"gate: {text(one['gate'])}"
    flags = [f"**{text(what)}**" for what in words.conflict(one, on)] + [f"**tampering**: {text(what)}" for what in one["tampering"]]
    size = f"{many(one['commits'], 'commit')}, {many(one['files'], 'file')} (+{one['plus']:,} −{one['minus']:,})"
    return "; ".join([f"{_name(one)}, {size}", gate, *flags, code(one["command"])])


def _cost(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "## Cost and tokens\n\n" + table(["", ""], [[name, text(value)] for name, value in words.facts(facts)])
    if facts["models"]:
        heads = ["Model", "Cost:", "Requests:", "Input:", "To cache:", "From cache:", "Output:", "Cache ratio:"]
        yield table(heads, [_model(one) for one in facts["models"]])
    tasks = sorted((one for one in facts["tasks"] if one["attempts"]), key=lambda one: -one["spent"]["known_usd"])
    if tasks:
        heads = ["Task", "State", *(f"{head}:" for head in words.TASK_FIGURES)]
        more = f"\n\nand {len(tasks) - TASKS:,} more, in night.html" if len(tasks) > TASKS else ""
        yield table(heads, [_task(one) for one in tasks[:TASKS]]) + more


def _model(one: Mapping[str, Any]) -> list[str]:
    kinds = [f"{one['tokens'][kind]:,}" for kind in ("input", "cache_write", "cache_read", "output")]
    return [
        code(one["model"] or "not known any more"),
        text(words.price(one)),
        f"{one['requests']:,}",
        *kinds,
        words.share(one["cache_hits"]),
    ]


def _task(one: Mapping[str, Any]) -> list[str]:
    return [code(one["name"]), one["state"], *(text(cell) for _, cell in words.task_figures(one))]


def _time(facts: Mapping[str, Any]) -> Iterator[str]:
    times = facts["figures"]["times"]
    if not facts["lanes"]["rows"]:
        return
    rows = [[name, words.lasted(value), words.share(part)] for _, name, value, part in words.time_rows(times)]
    yield "## Where the time went\n\n" + (
        table(["All agents together", "Time:", "Part:"], rows) if times["measured"] else "Nobody measured it."
    )
    if times["unmeasured"]:
        yield f"Without an account of their time: {many(times['unmeasured'], 'attempt')} (still at work, or lost)."
    yield f"{text(words.alone(facts))}\n\n_{facts['alone']['how']}_"


def _again(facts: Mapping[str, Any], several: bool) -> Iterator[str]:
    troubles = [_event(one, several) for one in facts["events"] if one["kind"] in ("outage", "breaker")]
    tries = [
        f"{text(one['name'])}, attempt {each['epoch']} at {words.clock(each['at'], several)}: {text(each['cause'] or words.NO_CAUSE)}"
        for one in facts["again"]
        for each in one["tries"]
    ]
    yield _list("Retries and outages", [*troubles, *tries])


def _event(one: Mapping[str, Any], several: bool) -> str:
    lasted = f" ({seconds(one['seconds'])})" if one["seconds"] else ""
    return f"{words.event_time(one, several)}{lasted}: {text(one['words'])}"


def _group(one: Mapping[str, Any]) -> str:
    return f"**{one['state']}**: {text(one['reason'])}; {many(len(one['tasks']), 'task')}: {text(words.names(one['tasks']))}"


def _against(facts: Mapping[str, Any]) -> str:
    other = facts["against"]
    rows = [[name, text(this), text(that)] for name, this, that in words.compared(facts)]
    said = f"With {text(other['title'] or other['run'])}, {text(words.day(other['began']))}. {text(other['verdict'])}"
    return f"## Compared\n\n{said}\n\n" + table(["", "This one:", f"{other['run']}:"], rows)


def _provenance(facts: Mapping[str, Any]) -> str:
    run, repository = facts["run"], facts["repository"]
    return (
        f"---\n\nRun {code(run['id'])} of {code(repository['root'])}, {code(repository['base'])} = {code(repository['commit'])}; "
        f"written {text(words.day(facts['generated']))} by nightcrew {text(facts['nightcrew'])}"
    )
