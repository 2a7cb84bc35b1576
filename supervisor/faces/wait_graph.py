"""The graph of waits, for people and for graphviz. Names and what is waited for may be an agent's words: nothing of them drives a terminal,
or ends a string of a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from supervisor.core.errors import one_line
from supervisor.faces.status import age

WHAT_MAX = 60
DEPTH_MAX = 12
"""Of the tree; what is deeper is a line of its own further down."""


def lines(shape: Mapping[str, Any], now: float) -> Iterator[str]:
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
