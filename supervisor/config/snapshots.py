"""`[snapshot.NAME]` of the project file: what an environment is prepared with. docs/project.md describes each key.

The tables arrive with a clone. Reading them runs nothing; what they may name is held inside the repository.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supervisor.config.reading import Size, Strict
from supervisor.core.path_globs import normalised
from supervisor.core.snapshots import LOCK_FILES, SnapshotKind, SnapshotSpec

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

MIN_MEMORY = 2**20
"""Less than this and no program starts, which would look like a failure of what it runs."""

Command = Annotated[str, Field(min_length=1, max_length=10_000)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000)]
Module = Annotated[str, Field(max_length=200)]


class SnapshotModel(Strict):
    """One `[snapshot.NAME]` table."""

    kind: Literal["filesystem", "memory"] = "filesystem"
    setup: Annotated[list[Command], Field(max_length=100)] = Field(default_factory=list)
    verify: Annotated[list[Command], Field(max_length=100)] = Field(default_factory=list)
    preload: Annotated[list[Module], Field(max_length=1000)] = Field(default_factory=list)
    copy_: Annotated[list[Pattern], Field(max_length=1000, alias="copy")] = Field(default_factory=list)
    lock_files: Annotated[list[Pattern], Field(max_length=1000)] = Field(default_factory=lambda: list(LOCK_FILES))
    memory_max: Annotated[Size, Field(ge=MIN_MEMORY)] | None = None
    processes_max: Annotated[int, Field(ge=1, le=2**22)] | None = None
    cores: Annotated[int, Field(ge=1, le=4096)] | None = None

    @field_validator("setup", "verify")
    @classmethod
    def _commands(cls, value: list[str]) -> list[str]:
        return [check_command(command) for command in value]

    @field_validator("preload")
    @classmethod
    def _modules(cls, value: list[str]) -> list[str]:
        for name in value:
            if not _MODULE.fullmatch(name):
                raise ValueError(f'{name!r} is no module; preload holds dotted names such as "os.path"')
        return list(dict.fromkeys(value))

    @field_validator("copy_", "lock_files")
    @classmethod
    def _inside(cls, value: list[str]) -> list[str]:
        for pattern in value:
            check_inside(pattern)
            normalised(pattern)
        return list(dict.fromkeys(value))

    @model_validator(mode="after")
    def _something_to_keep(self) -> SnapshotModel:
        if self.preload and self.kind != "memory":
            raise ValueError('preload needs kind = "memory": files remember no imported modules')
        if self.kind == "memory" and not self.preload:
            raise ValueError('kind = "memory" needs preload: the modules that its process imports')
        if not (self.setup or self.preload or self.copy_):
            raise ValueError("a snapshot needs setup, preload or copy; without them it would be a plain worktree")
        return self


def check_name(name: str) -> str:
    """`name`, when a snapshot can have it: it becomes part of paths, ids and command lines. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} cannot be the name of a snapshot: 1 to 32 of a-z, 0-9 and '-', not at either end")
    return name


def check_command(command: str) -> str:
    """`command`, when a shell can be given it. Raises ValueError."""
    if not command.strip() or "\0" in command:
        raise ValueError("a command must not be empty, and cannot hold a NUL character")
    return command


def check_inside(pattern: str) -> str:
    """`pattern`, when all it can match lies in the repository and is not git's own. Raises ValueError."""
    parts = PurePosixPath(pattern).parts
    if not pattern.isprintable():
        raise ValueError("a pattern has no line breaks and no control characters")
    if pattern.startswith(("/", "~")) or ".." in parts:
        raise ValueError(f"{pattern!r} leads out of the repository; give a path or pattern below its root")
    if any(part.casefold() == ".git" for part in parts):  # what a wildcard matches there, whoever copies leaves out
        raise ValueError(f"{pattern!r}: git's own files cannot be named")
    return pattern


def to_spec(name: str, table: SnapshotModel) -> SnapshotSpec:
    """The table in the words of the core."""
    keys: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.model_dump(by_alias=True, exclude_none=True, exclude={"kind"}).items()
    }
    return SnapshotSpec(name=name, kind=SnapshotKind(table.kind), **keys)
