"""What the user's config.toml chooses for a task that does not say it: kind and model by `[[assign]]`, and by `[size.NAME]` what a task of
its size gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from supervisor.config.reading import Once, read_text
from supervisor.core import assign, size
from supervisor.core.assign import Rule
from supervisor.core.errors import ConfigError
from supervisor.core.size import Repository, Size
from supervisor.core.states import TaskClass
from supervisor.core.units import size as in_words

Keys = TypeVar("Keys", bound=BaseModel)
"""The keys of a task, as `plan.TaskModel`."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is to choose by."""

    rules: tuple[Rule, ...] = ()
    sizes: Mapping[str, Size] = field(default_factory=dict)
    repository: Callable[[str], Repository | None] = lambda _: None
    """Measures the repository at a revision; asked for `size = "auto"` alone."""


NONE = Choices()


@dataclass(slots=True)
class Chooser:
    """The choices for the tasks of one plan, which all start from `base`."""

    choices: Choices
    base: str
    place: Path
    """Where files that the plan names are."""
    files: Once = field(default_factory=Once)
    _measured: list[Repository | None] = field(default_factory=list)

    def choose(self, task: Keys) -> tuple[Keys, str]:
        """The task with what it gets, and what that was and by what, for people."""
        said: dict[str, Any] = dict(task)
        words = [self._size(said), self._assign(said, task.model_fields_set), self._give(said)]
        return task.model_copy(update={key: value for key, value in said.items() if value != getattr(task, key)}), "; ".join(
            filter(None, words)
        )

    def _size(self, said: dict[str, Any]) -> str:
        if said["size"] != "auto":
            return ""
        if not self._measured:
            self._measured.append(self.choices.repository(self.base))
        said["size"], why = size.auto(self._prompt(said), self._measured[0])
        return f"size {said['size']} by {why}"

    def _prompt(self, said: Mapping[str, Any]) -> str | None:
        if said["prompt_file"] is None:
            return None if said["prompt"] is None else str(said["prompt"])
        try:
            return read_text(self.place / said["prompt_file"], files=self.files)
        except ConfigError:  # whoever makes the task says so
            return None

    def _assign(self, said: dict[str, Any], own: Collection[str]) -> str:
        """One that runs a command of its own takes neither kind nor model."""
        if not _is_prompted(said):
            return ""
        kind, model = (said[key] or "" if key in own else "" for key in ("kind", "model"))
        asked = assign.Task(TaskClass(said["task_class"]), said["size"] or "", said["tags"], kind, model)
        given = assign.assign(self.choices.rules, asked)
        said |= {key: value for key, value in (("kind", given.kind), ("model", given.model)) if value}
        return given.by

    def _give(self, said: dict[str, Any]) -> str:
        found = self.choices.sizes.get(said["size"] or "", Size())
        model = found.models.get(said["kind"], "") if _is_prompted(said) else ""
        gets: dict[str, Any] = {"cores": found.cores, "memory_max": found.memory_max, "model": model}
        new = {key: value for key, value in gets.items() if value and not said[key]}
        said |= new
        what = ", ".join(f"{key} {in_words(value) if key == 'memory_max' else value}" for key, value in new.items())
        return f"{what} by size.{said['size']}" if what else ""


def _is_prompted(said: Mapping[str, Any]) -> bool:
    return said["command"] is None and (said["prompt"] is not None or said["prompt_file"] is not None or said["interactive"])


def inherit(task: Keys, defaults: BaseModel | None) -> Keys:
    """The task with those keys of `defaults` that neither it nor its plan's `[defaults]` sets."""
    if defaults is None:
        return task
    missing = defaults.model_fields_set - task.model_fields_set
    return task.model_copy(update={name: getattr(defaults, name) for name in missing})


def given(task: BaseModel, defaults: BaseModel) -> set[str]:
    """The keys that the task itself has, and does not share with `[defaults]`."""
    shared = {key for key in defaults.model_fields_set if getattr(defaults, key) == getattr(task, key)}
    return task.model_fields_set - shared
