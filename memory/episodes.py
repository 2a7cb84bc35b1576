"""A summary of the records of one day: who did how much of what, and how each begins. The same records give the same text. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from memory.briefing import cut
from memory.pages import record
from memory.plain_text import cleaned

LINES_MAX = 40
"""Groups of records that are named; the others are counted."""
FIRST_MAX = 2
"""Records of a group whose beginning is given."""
TEXT_MAX = 160
SUMMARY_MAX = 4 * 2**10


def path_of(day: str) -> str:
    """Where the summary of the records at `day` lies."""
    return f"semantic/episodes-{_date(day)}.md"


def summary(day: str, text: str) -> str:
    """The note that stands for the records in `text`; `day` is their path. A line that is torn is counted as such."""
    groups: dict[tuple[str, str], list[Mapping[str, object]]] = defaultdict(list)
    torn = 0
    for line in filter(str.strip, text.split("\n")):
        found = record(line)
        if found is None:
            torn += 1
        else:
            groups[_word(found, "agent", "task"), _word(found, "type")].append(found)
    ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    lines = [line for (who, what), held in ordered[:LINES_MAX] for line in _group(who, what, held)]
    if others := sum(len(held) for _, held in ordered[LINES_MAX:]):
        lines.append(f"- and {others} more records of {len(ordered) - LINES_MAX} kinds")
    total = sum(map(len, groups.values()))
    head = (
        f"{total} records of {len({who for who, _ in groups})} agents"
        + (f"; {torn} lines were torn" if torn else "")
        + f". All of them: archive, {day}."
    )
    front = f"---\nkind: semantic\ntitle: What happened on {_date(day)}\ntags: [episodes]\nsource: {day}\n---\n"
    return cut(front + "\n" + "\n".join([head, "", *lines]), SUMMARY_MAX - 1) + "\n"


def _group(who: str, what: str, held: Iterable[Mapping[str, object]]) -> list[str]:
    all_of_them = list(held)
    named = f"- {who or 'somebody'}: {len(all_of_them)} × {what or 'record'}"
    texts = [text for one in all_of_them if (text := _line(one.get("text")))][:FIRST_MAX]
    return [named, *(f"  - {text}" for text in texts)]


def _word(found: Mapping[str, object], *keys: str) -> str:
    return next((text for key in keys if (text := _line(found.get(key)))), "")[:80]


def _line(value: object) -> str:
    """The first line of it that says something."""
    text = cleaned(value if isinstance(value, str) else "")
    return next((cut(line.strip(), TEXT_MAX) for line in text.split("\n") if line.strip()), "")


def _date(day: str) -> str:
    return day.rpartition("/")[2].removesuffix(".jsonl")
