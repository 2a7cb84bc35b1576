"""The JSON schema that a person gives for answers: read, checked, and held against an answer. Nothing is fetched from anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.kernel.errors import ConfigError, one_line

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

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
