"""What a map asks of a model, what it takes for an answer, and what that will cost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.gateway.admission.budget import FIRST_OUTPUT, FIRST_RATIO, FIRST_SPREAD
from supervisor.gateway.admission.types import Usage
from supervisor.kernel.errors import ConfigError, UsageError, one_line
from supervisor.kernel.gateway_settings import Limits
from supervisor.kernel.names import nearest

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


# Map prompt
# ----------
# What a map asks of a model for one item, and what it takes for an answer. The template of a prompt has fields in braces: `{file}`,
# `{content}`, `{line}`, `{item}`, and for JSON items their keys, inner ones after a dot (`{author.name}`). `{{file}}` is the text
# `{file}`; any other brace stands for itself, so that a prompt may show JSON.


_FIELD = re.compile(r"\{\{([A-Za-z_][\w.-]*)\}\}|\{([A-Za-z_][\w.-]*)\}")
_FENCE = re.compile(r"```[A-Za-z]*\n(.*?)\n?```", re.DOTALL)
MAX_TOKENS = 4096
"""Output tokens of one answer, when nobody says how many."""
FAULTS_SHOWN = 5
KEPT_MAX = 4000
"""Characters of the last answer that a failed item keeps."""


@dataclass(frozen=True, slots=True)
class PromptTerms:
    """What is done with each item, as it is kept with the map and given to its workers."""

    template: str
    schema: Any = None
    """The JSON schema of the answer; None: the answer is text."""
    model: str = ""
    max_tokens: int = MAX_TOKENS
    asks: int = 3
    """How often a model is asked for one item: first, and again with what was wrong with its answer."""

    def to_shape(self) -> dict[str, Any]:
        """JSON of it, without `asks`, which changes nothing of what is asked."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "asks"}

    @classmethod
    def from_shape(cls, shape: Mapping[str, Any]) -> PromptTerms:
        """What `to_shape` gave."""
        return cls(**{name: shape[name] for name in cls.__dataclass_fields__ if name in shape})


def fields(template: str) -> tuple[str, ...]:
    """The fields that a template uses, each once, in their order."""
    return tuple(dict.fromkeys(found[2] for found in _FIELD.finditer(template) if found[2]))


def check_fields(template: str, known: Sequence[str], *, open_ended: bool) -> None:
    """Raises UsageError for a field that no item has; `open_ended`: items are JSON, whose keys nobody knows before."""
    if not template.strip():
        raise UsageError("no prompt", why="it is empty")
    for name in fields(template):
        if name not in known and not open_ended:
            why = f"items of this source have {', '.join(known)}; {nearest(name, known)}"
            raise UsageError("no such field", on="{" + name + "}", why=why, hint="write {{" + name + "}} for the text itself")


def render(template: str, values: Mapping[str, Any]) -> str:
    """The prompt. What a value says is never read as a field. Raises KeyError with the name of a field that the item does not have."""

    def fill(found: re.Match[str]) -> str:
        return "{" + found[1] + "}" if found[1] else _text(_value(found[2], values))

    return _FIELD.sub(fill, template)


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    here: Any = values
    for step in name.split("."):
        if not isinstance(here, Mapping) or step not in here:
            raise KeyError(name)
        here = here[step]
    return here


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def instruction(terms: PromptTerms) -> str:
    """What the model is told beside the prompt; empty: nothing."""
    if terms.schema is None:
        return ""
    return (
        f"Answer with one JSON value and nothing else: no prose, no code fence. It must match this JSON schema:\n{json.dumps(terms.schema)}"
    )


def asked_again(faults: Sequence[str]) -> str:
    """The next thing that a model is told whose answer was wrong."""
    shown = "\n".join(f"- {fault}" for fault in faults[:FAULTS_SHOWN])
    return f"That answer cannot be used:\n{shown}\nAnswer again, with one JSON value that matches the schema and nothing else."


class NoJson(ValueError):
    """An answer that is not JSON; its text says why."""


def json_of(answer: str) -> Any:
    """The JSON value of an answer: the whole of it, or the one code block in it. Raises NoJson."""
    blocks = _FENCE.findall(answer)
    text = blocks[0] if len(blocks) == 1 else answer
    if not text.strip():
        raise NoJson("it is empty")
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise NoJson("it is nested too deeply") from None
    except ValueError as error:
        raise NoJson(f"it is not JSON: {error}") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


# Shards that agents work on ---------------------------------------------------------------------------------------------------------

ANSWER = "answer.json"
"""File in $NIGHTCREW_OUT that an agent writes its answer into, when there is a schema."""
NAMES = ("file", "line", "item")


def shards(positions: Sequence[int], each: int, groups: Sequence[Sequence[int]] = ()) -> list[list[int]]:
    """`positions` cut into pieces of `each`; with `groups` one piece for each group, of those of it that are among the positions."""
    if not groups:
        return [list(positions[at : at + each]) for at in range(0, len(positions), each)]
    wanted = set(positions)
    pieces = [[position for position in group if position in wanted] for group in groups]
    return [piece for piece in pieces if piece]


def for_agent(terms: PromptTerms, items: Sequence[Mapping[str, Any]]) -> str:
    """The prompt of the task that works on these items, each with its fields. The template is filled for each item. Raises KeyError with a
    field that one does not have."""
    parts = [render(terms.template, one) for one in items]
    if len(items) > 1:
        parts = [
            f"[{number} of {len(items)}: {one['item']}]\n{part}" for number, (one, part) in enumerate(zip(items, parts, strict=True), 1)
        ]
        parts.insert(0, "Do each of the following, one after the other.")
    return "\n\n".join(parts)


def where_to_answer(names: Sequence[str], schema: Any) -> str:
    """What an agent is told behind its prompt that answers by a schema."""
    one = "a JSON value"
    several = f"a JSON object with one member for each of {json.dumps(list(names), ensure_ascii=False)}, whose values are JSON values"
    return (
        f"At the end write your answer into the file $NIGHTCREW_OUT/{ANSWER} (the variable is set in your shell): "
        f"{one if len(names) == 1 else several} matching this JSON schema, and nothing else:\n{json.dumps(schema)}"
    )


def answers(data: bytes | None, names: Sequence[str]) -> list[Any]:
    """The answer to each item, from what an agent wrote into ANSWER. Raises NoJson."""
    if data is None:
        raise NoJson(f"it is not there: nothing was written to $NIGHTCREW_OUT/{ANSWER}")
    value = json_of(data.decode("utf-8", "replace"))
    if len(names) == 1:
        return [value]
    if not isinstance(value, dict):
        raise NoJson("it is no JSON object with one member for each item")
    missing = [name for name in names if name not in value]
    if missing:
        raise NoJson(f"it is without {', '.join(missing[:FAULTS_SHOWN])}")
    return [value[name] for name in names]


# Map forecast
# ------------
# What the prompts of a map will take, said before any is sent: tokens, US dollars and minutes, each with what it is at least and at
# most.
#
# Input tokens are counted by characters, as the gateway does for an agent that it does not know yet; what a model will put out
# nobody knows before, so its bounds are wide. Once items of this map or of a run of it were answered, their mean replaces the
# guess.


_LEAST_OUTPUT = 0.1
"""Part of the guessed output below which answers are not expected. A guess: nothing was measured."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number with what it is at least and at most."""

    low: float
    expected: float
    high: float

    def to_shape(self) -> dict[str, float]:
        """JSON of it, rounded to what can be known."""
        return {name: float(f"{getattr(self, name):.4g}") for name in ("low", "expected", "high")}

    def scaled(self, factor: float) -> Range:
        """The same so many times."""
        return Range(self.low * factor, self.expected * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Seen:
    """What items that were answered took, in all."""

    items: int = 0
    input: int = 0
    """Tokens of all kinds of input."""
    output: int = 0
    sizes: int = 0
    """Bytes of their prompts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`cost_usd` None: the model's price is not known. `minutes` None: no limit is known. `binding`: the limit that it is, or empty."""

    calls: int
    input: Range
    output: Range
    cost_usd: Range | None
    minutes: Range | None
    binding: str = ""

    def to_shape(self) -> dict[str, Any]:
        """JSON of it."""
        ranges = {name: getattr(self, name) for name in ("input", "output", "cost_usd", "minutes")}
        return {"calls": self.calls, **{name: one and one.to_shape() for name, one in ranges.items()}, "binding": self.binding or None}


def forecast(
    sizes: Sequence[int], max_tokens: int, limits: Limits | None, cost: Callable[[Usage], float | None], seen: Seen = Seen()
) -> Forecast:
    """For one call for each of `sizes`, the bytes of the prompts, schema included. `cost` gives US dollars of tokens."""
    calls, given = len(sizes), sum(sizes)
    read, made = _input(given, seen), _output(calls, max_tokens, seen)
    low, expected, high = (cost(Usage(round(getattr(read, at)), round(getattr(made, at)))) for at in ("low", "expected", "high"))
    money = None if low is None or expected is None or high is None else Range(low, expected, high)
    minutes, binding = _minutes(calls, read, made, limits)
    return Forecast(calls, read, made, money, minutes, binding)


def _input(given: int, seen: Seen) -> Range:
    if seen.sizes:
        return Range(0.95, 1.0, 1.05).scaled(given * seen.input / seen.sizes)
    tokens = given / FIRST_RATIO
    return Range(tokens * (1 - FIRST_SPREAD), tokens, tokens * (1 + FIRST_SPREAD))


def _output(calls: int, max_tokens: int, seen: Seen) -> Range:
    if seen.items:
        mean = seen.output / seen.items
        spread = 1 / seen.items**0.5
        return Range(mean * max(0.5, 1 - spread), mean, min(max_tokens, mean * (1 + spread))).scaled(calls)
    guess = min(FIRST_OUTPUT, max_tokens)
    return Range(guess * _LEAST_OUTPUT, guess, max_tokens).scaled(calls)


def _minutes(calls: int, read: Range, made: Range, limits: Limits | None) -> tuple[Range | None, str]:
    """By the limit that takes longest. What a full bucket lends at the beginning is not counted: others may have taken it."""
    if limits is None:
        return None, ""
    total = Range(read.low + made.low, read.expected + made.expected, read.high + made.high)
    asked = {"requests": Range(calls, calls, calls), "input": read, "output": made, "tokens": total}
    takes = {name: asked[name].scaled(1 / limit) for name, limit in limits.known().items()}
    if not takes:
        return None, ""
    binding = max(takes, key=lambda name: takes[name].expected)
    return Range(*(max(getattr(one, at) for one in takes.values()) for at in ("low", "expected", "high"))), binding


# Answer schema
# -------------
# The JSON schema that a person gives for answers: read, checked, and held against an answer. Nothing is fetched from anywhere.


SCHEMA_MAX = 64 * 2**10
"""Bytes: it is told to a model with every item."""
FAULTS_MAX = 20
_FAULT_MAX = 300


def load(path: Path) -> Any:
    """The schema in a file. Raises ConfigError when that cannot be read or is no schema."""
    try:
        with path.open("rb") as file:
            data = file.read(SCHEMA_MAX + 1)
        if len(data) > SCHEMA_MAX:
            raise ValueError(f"it is larger than {SCHEMA_MAX} bytes")
        shape = json.loads(data)
    except (OSError, ValueError) as error:
        raise ConfigError("cannot read the schema", on=str(path), why=one_line(str(error))) from None
    AnswerSchema(shape, str(path))
    return shape


class AnswerSchema:
    """A checked schema. Raises ConfigError, named `where`, when `shape` is none."""

    def __init__(self, shape: Any, where: str = "schema") -> None:
        import jsonschema  # 0.1 s, and most commands need none
        import referencing

        try:
            if not isinstance(shape, dict | bool):
                raise jsonschema.SchemaError("it is no JSON object")
            kind = jsonschema.validators.validator_for(shape, default=jsonschema.Draft202012Validator)
            kind.check_schema(shape)  # type: ignore[arg-type]  # true and false are schemas, too
        except jsonschema.SchemaError as error:
            raise ConfigError("not a JSON schema", on=where, why=one_line(f"{_place(error)}{error.message}")[:_FAULT_MAX]) from None
        self._checks: Validator = kind(shape, registry=referencing.Registry())

    def faults(self, value: Any) -> list[str]:
        """What is wrong with an answer, one line each, at most FAULTS_MAX; empty: it matches. Raises ConfigError for a schema with a
        reference that leads nowhere."""
        import itertools

        from referencing.exceptions import Unresolvable

        try:
            found = sorted(itertools.islice(self._checks.iter_errors(value), FAULTS_MAX), key=lambda error: list(map(str, error.path)))
        except (Unresolvable, RecursionError) as error:
            raise ConfigError("cannot use the schema", why=one_line(f"{type(error).__name__}: {error}")[:_FAULT_MAX]) from None
        return [one_line(f"{_place(error)}{error.message}")[:_FAULT_MAX] for error in found]


def _place(error: Any) -> str:
    """Where in the answer, as `$.scores[0]: `."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return f"${steps}: " if steps else ""
