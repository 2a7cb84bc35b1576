"""What a page of elements says: its texts, the rows of its tables, and where its links lead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs


def text(made: Any) -> str:
    """All texts of an element, as a person reads them; a time as its number."""
    if not isinstance(made, list):
        return "" if made is None else str(made)
    tag, attributes, *children = made
    if tag == "table":
        return " ".join(text(cell) for row in children[2] for cell in row)
    return str(attributes["at"]) if tag == "time" else "".join(map(text, children))


def every(made: Any) -> Iterator[list[Any]]:
    """An element and all below it, or those of a page."""
    if isinstance(made, dict):
        for node in made["nodes"]:
            yield from every(node)
    elif isinstance(made, list) and made and isinstance(made[0], str):
        yield made
        children = [cell for row in made[4] for cell in row] if made[0] == "table" else made[2:]
        for child in children:
            yield from every(child)


def cells(page: Any, caption: str) -> list[dict[str, Any]]:
    """The rows of a table by their heads, as elements; none where there is no such table."""
    for one in every(page):
        if one[0] == "table" and one[2] == caption:
            return [dict(zip([head.lstrip("#~") or "#" for head in one[3]], row, strict=True)) for row in one[4]]
    return []


def rows(page: Any, caption: str) -> list[dict[str, str]]:
    """The same as texts."""
    return [{head: text(cell) for head, cell in row.items()} for row in cells(page, caption)]


def commands(made: Any) -> list[str]:
    """What a person can type there."""
    return [one[2] for one in every(made) if one[0] == "command"]


def leads(page: Any, label: str) -> dict[str, str]:
    """The words of the address to which a link leads; nothing where there is no such link."""
    found = next((one[1]["href"] for one in every(page) if one[0] == "a" and text(one) == label), "")
    return {name: values[0] for name, values in parse_qs(found.removeprefix("?")).items()}
