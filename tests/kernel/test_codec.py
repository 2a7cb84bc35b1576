"""One converter between dataclasses and JSON: records of ours are believed, what somebody else wrote is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

import pytest

from supervisor.kernel import codec
from supervisor.kernel.codec import Bound, Mismatch


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Inner:
    name: str
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Outer:
    inner: Inner
    points: tuple[Point, ...] = ()
    tags: frozenset[str] = frozenset()
    numbers: Sequence[int] = ()
    network: bool | tuple[str, ...] = True
    limit: Annotated[float, Bound(0, 10)] | None = None
    how: Literal["all", "any"] = "all"
    env: Mapping[str, int] = field(default_factory=dict)


FULL = Outer(Inner("a", Colour.BLUE), (Point(1, 2),), frozenset({"x", "y"}), (1, 2), ("a.org",), 3.0, "any", {"N": 1})


@pytest.mark.parametrize("value", [FULL, Outer(Inner("b"))], ids=["full", "defaults"])
def test_what_was_written_is_read_back_by_both_readers(value: Outer) -> None:
    for shape in (json.loads(codec.dumps(value)), json.loads(json.dumps(value, default=codec.brief))):
        assert codec.load(Outer, shape) == value and codec.check(Outer, shape) == value
    assert json.loads(json.dumps(Outer(Inner("b")), default=codec.brief)) == {"inner": {"name": "b"}}


def test_a_record_of_another_version_is_read_and_a_request_with_an_unknown_key_is_refused() -> None:
    shape: dict[str, Any] = {"inner": {"name": "a", "newer": 1}, "newer": 2}
    assert codec.load(Outer, shape) == codec.check(Outer, shape, whole=False) == Outer(Inner("a"))
    with pytest.raises(Mismatch, match="there are colour, name") as wrong:
        codec.check(Outer, {"inner": shape["inner"]})
    assert wrong.value.where == ("inner", "newer")


WRONG: list[tuple[Any, tuple[str | int, ...]]] = [
    ([], ()),
    ({}, ("inner",)),
    ({"inner": {"name": 3}}, ("inner", "name")),
    ({"inner": {"name": "a", "colour": "green"}}, ("inner", "colour")),
    ({"inner": {"name": "a"}, "points": [[1, 2], [1]]}, ("points", 1)),
    ({"inner": {"name": "a"}, "points": [[1, True]]}, ("points", 0, 1)),
    ({"inner": {"name": "a"}, "limit": 10.5}, ("limit",)),
    ({"inner": {"name": "a"}, "limit": float("nan")}, ("limit",)),
    ({"inner": {"name": "a"}, "limit": True}, ("limit",)),
    ({"inner": {"name": "a"}, "network": [1]}, ("network",)),
    ({"inner": {"name": "a"}, "how": "none"}, ("how",)),
    ({"inner": {"name": "a"}, "env": {"N": 2**63}}, ("env", "N")),
]


@pytest.mark.parametrize(("shape", "where"), WRONG, ids=str)
def test_a_wrong_value_is_named_by_the_keys_that_lead_to_it(shape: Any, where: tuple[str | int, ...]) -> None:
    with pytest.raises(Mismatch) as wrong:
        codec.check(Outer, shape)
    assert wrong.value.where == where


async def handler(context: object, *, tasks: Annotated[list[str], Bound(1, 2)], wait_s: float = 0.0) -> None:
    """A handler of a request."""


async def passes_on(context: object, *, op: str, **args: Any) -> None:
    """A handler that does not know every argument."""


def test_the_arguments_of_a_request_are_those_of_its_handler() -> None:
    assert codec.arguments(handler, {"tasks": ["a\ud800"]}) == {"tasks": ["a\\ud800"]}, "text that a file can hold"
    assert codec.arguments(passes_on, {"op": "ls", "other": [1]}) == {"op": "ls", "other": [1]}
    both = {"tasks": ["a"]}
    wrong: list[Any] = [{}, {"tasks": []}, {"tasks": ["a"] * 3}, {"tasks": "a"}, {**both, "more": 1}, {**both, "wait_s": "1"}]
    for shape in wrong:
        with pytest.raises(Mismatch):
            codec.arguments(handler, shape)
