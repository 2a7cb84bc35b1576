"""Convert dataclasses to JSON and back, and check the arguments of a request: one converter, driven by the types of the fields.

`load` reads a record of ours, also one of an older version: unknown keys are dropped, missing ones take their default, and plain values are
believed. `check` and `arguments` read what somebody else wrote: every value has the type that is written down and stays within its bounds,
text becomes text that a file can hold, and a key that is missing or unknown is refused. An annotation may carry `Bound`, or functions that
return the value or raise ValueError.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

# Codec
# -----


T = TypeVar("T")
Reader = Callable[[Any], Any]
Handler = Callable[..., Coroutine[Any, Any, Any]]
"""Does what a request asks for: its keyword-only parameters are the request."""


class Mismatch(ValueError):
    """A value that does not fit. `where`: the keys that lead to it."""

    def __init__(self, why: str, *where: str | int) -> None:
        super().__init__(why)
        self.where = where


class Bound(NamedTuple):
    """Limits of a number, or of the length of a text or list."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.most == math.inf else f"{self.least:g} to {self.most:.15g}"


def shape(value: Any) -> Any:
    """A dataclass as an object, or a set as a list: what `json.dumps` takes as its `default`."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _defaults(value.__class__)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def brief(value: Any) -> Any:
    """`shape` without the values that are defaults, for a reader of this very version."""
    if not is_dataclass(value):
        return shape(value)
    return {name: one for name, default in _defaults(value.__class__).items() if (one := getattr(value, name)) != default}


dumps = json.JSONEncoder(default=shape).encode
"""Convert a value to JSON, with every dataclass in it as an object. `json.dumps` with a `default` would make an encoder at each call."""


def load(kind: type[T], shape: Mapping[str, Any]) -> T:
    """A record of ours, also a row of a table, which has lists as JSON text and flags as 0 and 1. Raises ValueError or TypeError for what
    is none."""
    if isinstance(shape, kind):
        return shape
    plan: _Plan = _plan(cast("Any", kind), _TRUST)
    given = {name: value for name, value in shape.items() if name in plan.known}
    for name, read in plan.readers.items():
        if name in given:
            given[name] = read(given[name])
    return kind(**given)


def loads(kind: type[T], text: str | bytes) -> T:
    """`load` of text."""
    return load(kind, json.loads(text))


def check(kind: type[T], shape: Any, *, whole: bool = True) -> T:
    """What somebody else wrote. Raises Mismatch. Without `whole`, unknown keys are dropped."""
    mode = _REFUSE if whole else _DROP
    return kind(**_checked(_plan(cast("Any", kind), mode), shape, mode))


def arguments(function: Callable[..., Any], shape: Any) -> dict[str, Any]:
    """Keyword arguments of `function`, from an object that somebody else wrote. Raises Mismatch."""
    return _checked(_signature(function), shape, _REFUSE)


_Mode = Literal["trust", "drop", "refuse"]
"""Plain values are believed; or everything is checked, and unknown keys are dropped or refused."""
_TRUST, _DROP, _REFUSE = get_args(_Mode)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the values of a dataclass, or of a function's keyword-only parameters, are read."""

    known: frozenset[str]
    required: frozenset[str]
    readers: Mapping[str, Reader]
    """Of values that are not taken as they are."""
    more: bool = False
    """Other names are taken too."""


def _checked(plan: _Plan, shape: Any, mode: _Mode) -> dict[str, Any]:
    if not isinstance(shape, Mapping):
        raise Mismatch("it must be an object")
    for name in plan.required - shape.keys():
        raise Mismatch("it must be given", name)
    if mode is _REFUSE and not plan.more and (strange := next((name for name in shape if name not in plan.known), None)) is not None:
        raise Mismatch(f"there is none of that name; there are {', '.join(sorted(plan.known)) or 'no others'}", str(strange)[:40])
    given = {name: value for name, value in shape.items() if plan.more or name in plan.known}
    return {name: _at(name, plan.readers[name], value) if name in plan.readers else value for name, value in given.items()}


def _at(place: str | int, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except Mismatch as error:
        raise Mismatch(str(error), place, *error.where) from None
    except ValueError as error:
        raise Mismatch(str(error), place) from None


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {item.name: item.default if item.default_factory is MISSING else item.default_factory() for item in fields(kind)}


@functools.cache
def _plan(kind: Any, mode: _Mode) -> _Plan:
    hints = get_type_hints(kind, include_extras=True)
    made = [item for item in fields(kind) if item.init]
    required = (item.name for item in made if item.default is MISSING and item.default_factory is MISSING)
    return _planned({item.name: hints[item.name] for item in made}, required, mode)


@functools.cache
def _signature(function: Callable[..., Any]) -> _Plan:
    parameters = inspect.signature(function).parameters.values()
    own = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    names = vars(sys.modules[function.__module__])
    kinds = {one.name: eval(one.annotation, names) if isinstance(one.annotation, str) else one.annotation for one in own}  # noqa: S307 - our own annotations
    plan = _planned(kinds, (one.name for one in own if one.default is one.empty), _REFUSE)
    return _Plan(plan.known, plan.required, plan.readers, more=any(one.kind is one.VAR_KEYWORD for one in parameters))


def _planned(kinds: Mapping[str, Any], required: Iterable[str], mode: _Mode) -> _Plan:
    readers = {name: read for name, kind in kinds.items() if (read := _reader(kind, mode)) is not None}
    if mode is _TRUST:
        readers |= {name: bool for name, kind in kinds.items() if kind is bool}
    return _Plan(frozenset(kinds), frozenset(required), readers)


def _reader(kind: Any, mode: _Mode) -> Reader | None:
    """How a value of this type is read; None: any value is taken as it is."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:], mode)
    if origin is Literal:
        return functools.partial(_choice, inner)
    if origin in (Union, types.UnionType):
        return _either(inner, mode)
    if origin in _CONTAINERS:
        listed = _sequence(_CONTAINERS[origin], inner, mode, fixed=origin is tuple and inner[-1] is not Ellipsis)
        return listed if mode is not _TRUST else lambda value: listed(json.loads(value) if isinstance(value, str) else value)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(inner[0], inner[1], mode)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return functools.partial(
            _named, kind, _sequence(tuple, tuple(get_type_hints(kind, include_extras=True).values()), mode, fixed=True)
        )
    if isinstance(kind, type) and issubclass(kind, Enum):
        return functools.partial(_member, kind)
    if is_dataclass(kind):
        made = cast("type[Any]", kind)
        return functools.partial(load, made) if mode is _TRUST else functools.partial(check, made, whole=mode is _REFUSE)
    return _SCALARS.get(kind) if mode is not _TRUST else None


def _annotated(kind: Any, rules: tuple[Any, ...], mode: _Mode) -> Reader | None:
    read = _reader(kind, mode)
    if mode is _TRUST:
        return read

    def within(value: Any) -> Any:
        found = read(value) if read is not None else value
        for rule in rules:
            found = _bounded(rule, found) if isinstance(rule, Bound) else rule(found)
        return found

    return within


def _bounded(bound: Bound, value: Any) -> Any:
    what, measured = ("a number", value) if isinstance(value, int | float) else ("of a length", len(value))
    if not bound.least <= measured <= bound.most:
        raise Mismatch(f"it must be {what}, {bound}")
    return value


def _either(kinds: tuple[Any, ...], mode: _Mode) -> Reader | None:
    some = [kind for kind in kinds if kind is not type(None)]
    readers = [_reader(kind, mode) for kind in some]
    if not any(readers):
        return None
    optional = len(some) < len(kinds)

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        if mode is _TRUST and not isinstance(value, list | dict | str):  # none of the readers is for it
            return value
        why: list[str] = []
        for one in readers:
            try:
                if one is not None:
                    return one(value)
            except (ValueError, TypeError) as error:
                why.append(str(error))
        if None in readers:
            return value
        raise Mismatch(", or ".join(dict.fromkeys(why)))

    return read


_CONTAINERS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    list: list, tuple: tuple, Sequence: tuple, Collection: tuple, set: set, frozenset: frozenset,
}  # fmt: skip


def _sequence(made: Callable[[Iterable[Any]], Any], inner: tuple[Any, ...], mode: _Mode, *, fixed: bool) -> Reader:
    readers = [_reader(kind, mode) for kind in (inner if fixed else inner[:1])]

    def plain(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Mismatch("it must be a list")
        return made(value)

    if not fixed and readers == [None]:
        return plain

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or (fixed and len(value) != len(readers)):
            raise Mismatch(f"it must be a list of {len(readers)}" if fixed else "it must be a list")
        each = readers if fixed else readers * len(value)
        return made(one if how is None else _at(number, how, one) for number, (how, one) in enumerate(zip(each, value, strict=True)))

    return read


def _named(kind: Any, read: Reader, value: Any) -> Any:
    """A NamedTuple, which JSON has as a list."""
    return kind(*read(value))


def _mapping(key: Any, kind: Any, mode: _Mode) -> Reader | None:
    name, read = _reader(key, mode), _reader(kind, mode)
    if mode is _TRUST and name is None and read is None:
        return None

    def every(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch("it must be an object")
        return {_at(one, name, one) if name else one: _at(one, read, found) if read else found for one, found in value.items()}

    return every


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    if value not in choices:
        raise Mismatch(f"it must be one of {', '.join(map(str, choices))}")
    return value


def _member(kind: type[Enum], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise Mismatch(f"it must be one of {', '.join(str(one.value) for one in kind)}, not {repr(value)[:80]}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch("it must be text")
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def _whole(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Mismatch("it must be a whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**1000:
        raise Mismatch("it must be a number")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mismatch("it must be true or false")
    return value


_SCALARS: Mapping[Any, Reader] = {str: _text, int: _whole, float: _number, bool: _flag}


# Arguments
# ---------
# The types of what a request about the memory, mail or leases says. Nothing that an agent says in one is to be believed.


_PROJECT = re.compile(r"[0-9a-f]{12}")


def filled(text: str) -> str:
    """Return a text without the space around it. Raises ValueError for an empty one."""
    if not (found := text.strip()):
        raise ValueError("it must be given, as text")
    return found


def _project(text: str) -> str:
    if not _PROJECT.fullmatch(text):
        raise ValueError("it is 12 hex digits")
    return text


def at_most(most: int) -> Callable[[str], str]:
    """Return a rule for a text that may have so many bytes."""

    def fits(text: str) -> str:
        filled(text)
        if (size := len(text.encode())) > most:
            raise ValueError(f"it is too long: {size} bytes, at most {most}; put it into a file and name that")
        return text

    return fits


Word = Annotated[str, Bound(0, 200), filled]
"""A name or a few words, without space around them."""
Project = Annotated[str, _project]
