"""What is done with the items of a map: one executor, chosen by the `executor` of the map's definition (`what`).

An executor is entered once for a worker. For each shard `begin` is called, then `run` for its items one after the other, then `end`. While
`run` waits it calls `still` about every second. `run` raises nothing for what an item does: a failure is a Result.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from supervisor.core.errors import UsageError

EXECUTORS = {name: f"agents.mapper.{name}" for name in ("command", "call", "prompt", "economy")}
"""Modules by name; each has `make(what, environ) -> Executor`."""
RESULT_MAX = 2**20
"""Characters of a result."""
REASON_MAX = 2_000
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Item:
    """One item, as it is worked on."""

    index: int
    """From 0, in the order of the workload."""
    text: str
    """The path, the line, or the object as JSON. Bytes that are no UTF-8 are surrogates, as in `os.fsdecode`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it: `text` is the result as JSON, or says why there is none."""

    ok: bool
    text: str


class Executor(Protocol):
    """See the module."""

    def begin(self) -> None: ...

    def run(self, item: Item, still: Callable[[], None]) -> Result: ...

    def end(self) -> None: ...


class Shard(Protocol):
    """The items of one answer of the supervisor, and the file of what came of them."""

    def next(self) -> Item | None: ...

    def still(self) -> None: ...

    def write(self, item: Item, result: Result, seconds: float) -> None: ...


@runtime_checkable
class AtOnce(Protocol):
    """An executor that works on several items of a shard at once: its `work` is called in place of `run`."""

    def work(self, shard: Shard) -> None: ...


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Executor:
    """The executor that `what` asks for. Raises UsageError for one that is not known, and what its module raises."""
    name = str(what.get("executor"))
    module = EXECUTORS.get("economy" if name == "prompt" and "group" in what else name)
    if module is None:
        raise UsageError("no executor is called", on=name[:80])
    made: Executor = importlib.import_module(module).make(what, environ)
    return made


def failed(why: str) -> Result:
    """A failure, on one line that is not too long, with nothing in it that no file takes."""
    plain = " ".join(why.encode("utf-8", "backslashreplace").decode().split())
    return Result(ok=False, text=plain[:REASON_MAX])


def done(value: object) -> Result:
    """A result that JSON can hold; else a failure that says why it cannot."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return failed(f"its result is not JSON: {type(error).__name__}: {error}")
    return Result(ok=True, text=text) if len(text) <= RESULT_MAX else failed(f"its result is larger than {RESULT_MAX} characters")
