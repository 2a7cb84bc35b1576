"""What agents had from a memory, and the graph of waits, for people."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.files import Layout
from memory.versions import BOOK
from supervisor.kernel.errors import LedgerError, one_line
from supervisor.kernel.format import age
from supervisor.store import sqlite

# Memory use
# ----------
# What the agents of a run had from the memory of their project, and what they left in it.


TOP = 10
"""Notes that are named."""
_WRITTEN = """
SELECT count(DISTINCT path) FROM change WHERE state = 'done' AND action IN ('put', 'append', 'approve', 'quarantine')
AND substr(author, 1, length(:run) + 1) = :run || '/'
"""
_READ = """
SELECT path, sum(given) AS given, sum(read) AS asked, count(*) AS agents,
       EXISTS (SELECT 1 FROM change c WHERE c.path = reading.path AND c.state = 'done' AND c.at < :since) AS earlier
FROM reading WHERE substr(task, 1, length(:run) + 1) = :run || '/' GROUP BY path ORDER BY sum(given + read) DESC, path
"""
_BRIEFED = "SELECT task, epoch FROM briefed WHERE substr(task, 1, length(:run) + 1) = :run || '/'"


def of_run(ledger: sqlite3.Connection, run: str, since: float, root: Path) -> dict[str, Any] | None:
    """`root` is the project's directory, `since` when the run was handed over. None where its agents had nothing to do with the memory.

    `written`: files that they wrote; `briefed`: attempts that were told something; `given`, `asked`: how often a note stood before a
    prompt, and how often one was asked for; `from_earlier`: of the notes so read, how many were there before this run; `top`: the most read
    ones, `path`, `given`, `asked`, `agents`, `earlier`; `first_hit_ratio`: share of the first requests of those that were told something
    that the provider read from its cache, None when nobody counted.
    """
    if not Layout(root).book.exists():
        return None
    try:
        with contextlib.closing(sqlite.connect_readonly(Layout(root).book, book=BOOK)) as db:
            read = db.execute(_READ, {"run": run, "since": since}).fetchall()
            written = int(db.execute(_WRITTEN, {"run": run}).fetchone()[0])
            briefed = [(str(row["task"]), int(row["epoch"])) for row in db.execute(_BRIEFED, {"run": run})]
    except LedgerError:  # a report is no place to mend it: the verbs of the memory say so
        return None
    if not read and not written and not briefed:
        return None
    return {
        "written": written,
        "briefed": len(briefed),
        "given": sum(row["given"] for row in read),
        "asked": sum(row["asked"] for row in read),
        "from_earlier": sum(bool(row["earlier"]) for row in read),
        "top": [{**dict(row), "earlier": bool(row["earlier"])} for row in read[:TOP]],
        "first_hit_ratio": _first_hits(ledger, briefed),
    }


def _first_hits(ledger: sqlite3.Connection, briefed: list[tuple[str, int]]) -> float | None:
    cached = total = 0
    for key in briefed:
        row = ledger.execute("SELECT result FROM attempt WHERE task = ? AND epoch = ? AND result IS NOT NULL", key).fetchone()
        first = json.loads(row["result"]).get("first_request") if row is not None else None
        if first:
            cached += first["cache_read"]
            total += first["input"] + first["cache_read"] + first["cache_write"]
    return round(cached / total, 4) if total else None


def sentence(used: Mapping[str, Any]) -> str:
    """All but the list, in one or two sentences."""
    ratio = used["first_hit_ratio"]
    hits = f" {ratio:.0%} of their first requests was read from the provider's cache." if ratio is not None else ""
    return (
        f"Notes stood {used['given']} times before a prompt and were asked for {used['asked']} times; {used['from_earlier']} of them were "
        f"there before this run. The agents wrote {used['written']} files.{hits}"
    )


# Wait graph
# ----------
# The graph of waits, for people and for graphviz. Names and what is waited for may be an agent's words: nothing of them drives a
# terminal, or ends a string of a drawing.


WHAT_MAX = 60
DEPTH_MAX = 12
"""Of the tree; what is deeper is a line of its own further down."""


def wait_graph_lines(shape: Mapping[str, Any], now: float) -> Iterator[str]:
    """As a tree: first those for whom nobody waits, and below each what it waits for and who must act. A task that was drawn already is
    only named."""
    waits: dict[str, list[Mapping[str, Any]]] = {}
    for wait in shape["waits"]:
        waits.setdefault(wait["task"], []).append(wait)
    held = {holder for wait in shape["waits"] for holder in wait["holders"]}
    states = {node["id"]: node["state"] for node in shape["nodes"]}
    drawn: set[str] = set()
    for name in sorted(waits, key=lambda task: task in held):
        if name not in drawn:
            yield _named(name, states)
            yield from _below(name, waits, states, (drawn, now, 1))
    if shape["more"]:
        yield "… and more tasks that have not started: nightcrew status --all"


def _below(
    name: str, waits: Mapping[str, Sequence[Mapping[str, Any]]], states: Mapping[str, str], at: tuple[set[str], float, int]
) -> Iterator[str]:
    """`at`: the tasks that were drawn, the time, and how deep it is."""
    drawn, now, depth = at
    drawn.add(name)
    for wait in waits.get(name, ()):
        yield f"{'  ' * depth}{_words(wait, now)}"
        for holder in wait["holders"]:
            again = holder in drawn and holder in waits
            yield f"{'  ' * (depth + 1)}→ {_named(holder, states)}{' (see above)' if again else ''}"
            if holder not in drawn and depth < 2 * DEPTH_MAX:
                yield from _below(holder, waits, states, (drawn, now, depth + 2))


def _named(name: str, states: Mapping[str, str]) -> str:
    state = states.get(name, "")
    return one_line(name) if state in ("", name) else f"{one_line(name)} ({one_line(state)})"


def _words(wait: Mapping[str, Any], now: float) -> str:
    kind, what = str(wait["kind"]), _cut(wait["what"])
    said = what if what.split(" ")[0] == kind else f"{kind} {what}"
    if wait["any_of"] and len(wait["holders"]) > 1:
        said += ", one of them is enough"
    if wait["since"]:
        said += f", for {age(max(0.0, now - wait['since']))}"
    if wait["until"]:
        said += f", at most {age(max(0.0, wait['until'] - now))} more"
    return said


def dot(shape: Mapping[str, Any]) -> str:
    """For graphviz: `nightcrew mem graph --dot | dot -Tsvg`."""
    nodes = [f"  {_quoted(node['id'])} [label={_quoted(_named(node['id'], {node['id']: node['state']}))}];" for node in shape["nodes"]]
    edges = [
        f"  {_quoted(edge['from'])} -> {_quoted(edge['to'])} [label={_quoted(edge['kind'] + ' ' + _cut(edge['what']))}"
        f"{', style=dashed' if not edge['number'] else ''}];"
        for edge in shape["edges"]
    ]
    return "\n".join(["digraph waits {", "  rankdir=LR;", *nodes, *edges, "}"])


def _cut(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= WHAT_MAX else f"{shown[: WHAT_MAX - 1]}…"


def _quoted(text: str) -> str:
    """A string of the language of graphviz: there a backslash begins an escape, and only a quote ends the string."""
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
