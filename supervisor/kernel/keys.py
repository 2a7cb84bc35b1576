"""What a key of a task is: how it is spelled, within which bounds, what it means, and who may give it.

Each field of `TaskSpec` that a person, a project, an agent or a program can give carries a `Key`. The models of plan and project file, the
options of `nightcrew add` and `start`, the task API, the agents' socket, the tools of MCP and the table in docs/plan.md follow from it.
"""

from __future__ import annotations

import functools
import keyword
from dataclasses import MISSING, dataclass, fields, replace
from enum import Flag, auto
from typing import Any, get_args, get_origin, get_type_hints


class By(Flag):
    """Where a key may be given, beside one task of a plan."""

    PLAN = auto()
    """`[defaults]` of a plan."""
    PROJECT = auto()
    """`[defaults]` of a project file, and of a plan."""
    ADD = auto()
    """`nightcrew add`."""
    START = auto()
    """`nightcrew start`."""
    API = auto()
    """The task API."""
    AGENT = auto()
    """An agent that adds tasks."""
    TOOL = auto()
    """The tool `add_task` of a person's session."""
    AGENT_TOOL = auto()
    """The tool `add_task` of an agent."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a task."""

    help: str
    by: By
    name: str = ""
    """As a plan spells it; empty: as its field is named."""
    least: float | None = None
    above: float | None = None
    """Like `least`, which it must exceed."""
    most: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    """`s`: a duration, `B`: a size, `moment`, or none."""
    metavar: str = ""
    """What stands for a value in the help of a command; empty: as its type says."""
    field: str = ""
    type: Any = str
    """Of its field, without None; the type of one item, of several."""
    many: bool = False
    unset: Any = None
    """What it is where it was not given; None where no value that can be given means the same."""

    @property
    def parameter(self) -> str:
        """The name of a parameter that holds it."""
        return self.field if keyword.iskeyword(self.name) else self.name

    @property
    def bounds(self) -> dict[str, float]:
        """Named as pydantic does."""
        given = {"ge": self.least, "gt": self.above, "le": self.most}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def words(self) -> str:
        """Its type and its bounds, for people."""
        if self.choices:
            return ", ".join(f'`"{choice}"`' for choice in self.choices)
        kind = {"s": "duration", "B": "size", "moment": "moment"}.get(self.unit) or _WORDS[self.type]
        low = f"from {self.least:g}" if self.least else f"above {self.above:g}" if self.above is not None else ""
        return ", ".join(filter(None, (f"list of {kind}s" if self.many else kind, low, f"up to {self.most:.12g}" if self.most else "")))


_WORDS = {int: "number", float: "number", bool: "boolean", str: "text"}


@functools.cache
def of(spec: Any) -> dict[str, Key]:
    """The keys of a dataclass, by the name that a plan has for them."""
    found = {}
    kinds = get_type_hints(spec, include_extras=True)
    for item in fields(spec):
        for key in getattr(kinds[item.name], "__metadata__", ()):
            if isinstance(key, Key):
                made = _of_field(item.name, get_args(kinds[item.name])[0], item.default, key)
                found[made.name] = made
    return found


def _of_field(field: str, kind: Any, default: Any, key: Key) -> Key:
    """`kind` is the field's type: a plain one, one or None, or a tuple of them."""
    plain = next((one for one in get_args(kind) if get_origin(one) is tuple), kind)
    many = get_origin(plain) is tuple
    inner = next((one for one in (plain, *get_args(plain)) if one in _WORDS), str)
    low = default in (None, 0, "") and bool(key.choices or key.least or key.above is not None)
    return replace(key, name=key.name or field, field=field, type=inner, many=many, unset=None if low or default is MISSING else default)


def number(key: Key, value: Any) -> Any:
    """The number that a text is, where the key is one; whatever else stays as it is."""
    if isinstance(value, str) and key.type in (int, float) and not key.unit:
        try:
            return int(value) if value.lstrip("-").isdecimal() else float(value)
        except ValueError:
            return value
    return value


def given_by(spec: Any, by: By) -> dict[str, Key]:
    """The keys that may be given there."""
    return {name: key for name, key in of(spec).items() if key.by & by}
