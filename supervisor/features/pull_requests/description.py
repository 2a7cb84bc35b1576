"""The title and the text of a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from supervisor.kernel.errors import one_line
from supervisor.kernel.train_orders import GATE, TASK

# Pull body
# ---------
# What a pull request says of a result. The words of agents and of prompts are data: fenced, bounded, and without what a host would
# act on, such as `@name`, `#1` and `fixes`. Pure.


BEGIN, END = "<!-- nightcrew: what follows is written anew by each push -->", "<!-- nightcrew: end -->"
"""Around what we write. What a person writes outside stays; without these marks the whole body is a person's."""
COMMIT = "Nightcrew-Commit"
TITLE_MAX = 120
PULL_BODY_TEXT_MAX = 4000
"""Characters of a prompt or of last words."""
PULL_BODY_LINES_MAX = 60
LISTED_MAX = 30
_MUTE = "\u200b"
"""A space without a width: it keeps a host from reading a name, a number or a keyword, and nobody sees it."""
_CALLS = re.compile(r"(@)(?=\w)|([#!])(?=\d)|\b([A-Z][A-Z0-9_]+-)(?=\d)|\b((?i:https?):)(?=//)|^(\s*/)(?=\w)|(<)(?=!--)", re.MULTILINE)
"""People, numbers, keys of trackers, links, commands of hosts and of their robots, and our own marks. Without a number behind it no word
closes anything."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is said. Texts are as they came; nothing in them is trusted."""

    task: str
    prompt: str
    """Empty: it is left out."""
    message: str
    """The last words of its agent."""
    commit: str
    warnings: tuple[str, ...]
    """What may make its gate say less."""
    gate: str
    """The gate and what it said, in words; empty: it has none."""
    gate_passed: bool
    notes: tuple[str, ...] = ()
    """Size, cost, time, conflicts: one line each."""


def inert(text: str) -> str:
    """`text` with nothing in it that a host takes for a person, a number, a link or a command."""
    return _CALLS.sub(lambda found: f"{found[0]}{_MUTE}", text)


def title(text: str, task: str) -> str:
    """Of a pull request; one line."""
    words = one_line(next((line.strip() for line in text.splitlines() if line.strip()), task))
    return inert(words if len(words) <= TITLE_MAX else f"{words[: TITLE_MAX - 1]}…")


def body(facts: Facts) -> str:
    """Markdown between BEGIN and END."""
    return "\n\n".join((BEGIN, *_parts(facts), END)) + "\n"


def merged(old: str, new: str) -> str | None:
    """The body of a pull request with our part written anew; None: a person took that out, or it is the same."""
    old = old.replace("\r\n", "\n")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return None
    made = f"{before}{new.rstrip()}{after}"
    return None if made.rstrip() == old.rstrip() else made


def _parts(facts: Facts) -> Iterator[str]:
    if facts.warnings:
        yield "**This may make its gate say less. Look at it first:**\n\n" + _listed(facts.warnings)
    if facts.prompt.strip():
        yield f"**Asked for**\n\n{fenced(facts.prompt)}"
    if facts.message.strip():
        yield f"**Its agent says**\n\n{fenced(facts.message)}"
    gate = _inline(facts.gate) if facts.gate else "no gate ran: its task has none"
    yield "**Checked**\n\n" + _listed((f"gate: {gate}", *map(_inline, facts.notes)), ready=True)
    yield trailers(facts)


def trailers(facts: Facts) -> str:
    """Lines that programs find."""
    said = "none" if not facts.gate else "passed" if facts.gate_passed else "not passed"
    return f"{TASK}: {facts.task}\n{COMMIT}: {facts.commit}\n{GATE}: {said}"


def _listed(lines: Sequence[str], *, ready: bool = False) -> str:
    shown = [f"- {line if ready else _inline(line)}" for line in lines[:LISTED_MAX]]
    more = [f"- and {len(lines) - LISTED_MAX} more"] if len(lines) > LISTED_MAX else []
    return "\n".join((*shown, *more))


def _inline(text: str) -> str:
    """Between backticks, so that no markup in it counts."""
    words = inert(one_line(text))[:400]
    ticks = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{ticks}{pad}{words}{pad}{ticks}"


def fenced(text: str) -> str:
    """A block of at most LINES_MAX lines and TEXT_MAX characters in which no markup counts."""
    lines = [inert(one_line(line.expandtabs(4))) for line in text.strip()[: PULL_BODY_TEXT_MAX + 1].splitlines()]
    cut = len(text.strip()) > PULL_BODY_TEXT_MAX or len(lines) > PULL_BODY_LINES_MAX
    shown = "\n".join(lines[:PULL_BODY_LINES_MAX])[:PULL_BODY_TEXT_MAX]
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{ticks}text\n{shown}\n{ticks}" + ("\n\n(cut)" if cut else "")
