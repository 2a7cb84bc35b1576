"""The key `after` of a task: what must have happened before it starts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supervisor.config.reading import Strict
from supervisor.core.note_paths import WHERE, kind_of

NOTES_MAX = 100


class AfterModel(Strict):
    """`after`: which tasks, how they must have ended, and which notes must be there."""

    all: list[str] = Field(default_factory=list)
    any: list[str] = Field(default_factory=list)
    on: Literal["done", "finished"] = "done"
    memory: Annotated[list[str], Field(max_length=NOTES_MAX)] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """A list is short for `{ all = [...] }`."""
        if isinstance(value, list):
            return {"all": value}
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - pydantic reports ValueError, and lets TypeError through
                'give a list of ids, or { all = ["a", "b"], any = ["c", "d"], on = "finished", memory = "semantic/plan.md" }'
            )
        return value

    @field_validator("memory", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        """One path is short for a list of it."""
        return [value] if isinstance(value, str) else value

    @field_validator("memory")
    @classmethod
    def _paths(cls, value: list[str]) -> list[str]:
        for path in value:
            if kind_of(path) is None:
                raise ValueError(f"{path!r} is not a path of the memory: {WHERE}")
        return value
