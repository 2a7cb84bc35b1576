"""Kinds of agent that a person adds, and whether a task's keys fit its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator

from supervisor.config.task_keys import with_keys
from supervisor.config.toml import Once, Strict, into, parse, read_text
from supervisor.kernel import kind as assign
from supervisor.kernel import spec
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.format import size as in_words
from supervisor.kernel.kind import BLOCKS, CONVERSATION, PLACEHOLDERS, STREAMED, TASK_KEYS, Kind, Rule, Trust
from supervisor.kernel.names import nearest
from supervisor.kernel.spec import Repository, Size, TaskSpec
from supervisor.kernel.states import TaskClass

# Kinds
# -----
# A kind of agent that a person adds: `kinds/NAME.toml` beside `config.toml`. docs/kinds.md describes each key.
#
# Only there: what a repository brings is text of a stranger, and a kind says which program is run and what it may do.


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WORDS = ("headless", "interactive", "allow", "sandboxed", "unsandboxed", "gateway", "resume", "fork", "transcript", "login", "mcp")
_BRACES = re.compile(r"\{([a-z_]+)\}")

Word = Annotated[str, Field(max_length=4096)]
Words = Annotated[list[Word], Field(max_length=200)]


class TrustModel(Strict):
    """`[trust]`: see `supervisor.kernel.kind.Trust`."""

    file: Annotated[str, Field(min_length=1, max_length=200)]
    key: Annotated[list[Word], Field(min_length=1, max_length=20)]
    value: bool | Word
    directory: Annotated[str, Field(max_length=1000)] = ""
    variable: Annotated[str, Field(max_length=128)] = ""
    lock: bool = False

    @field_validator("file")
    @classmethod
    def _file(cls, value: str) -> str:
        if not value.isprintable() or "/" in value or not value.endswith((".json", ".toml")):
            raise ValueError("the name of a file that ends in .json or .toml")
        return value


@with_keys(lambda key: key.name in ("timeout", "steps_max", "cost_max"))
class KindModel(Strict):
    """The whole file."""

    description: Annotated[str, Field(min_length=1, max_length=200)]
    binary: Annotated[str, Field(min_length=1, max_length=1000)]
    headless: Words = Field(default_factory=list)
    interactive: Words = Field(default_factory=list)
    prompt: Literal["argument", "stdin", "file", "stream"] = "argument"
    protocol: Literal["", "claude", "codex", "gemini", "qwen", "opencode", "builtin", "acp"] = ""
    version: Annotated[str, Field(max_length=40)] = ""
    allow: Words = Field(default_factory=list)
    sandboxed: Words = Field(default_factory=list)
    unsandboxed: Words = Field(default_factory=list)
    gateway: Words = Field(default_factory=list)
    resume: Words = Field(default_factory=list)
    fork: Words = Field(default_factory=list)
    transcript: Annotated[list[Word], Field(max_length=10)] = Field(default_factory=list)
    mcp: Words = Field(default_factory=list)
    settings: Annotated[str, Field(max_length=2**16)] = ""
    settings_file: Annotated[str, Field(max_length=200)] = ""
    env: Annotated[dict[str, Word], Field(max_length=100)] = Field(default_factory=dict)
    login: Words = Field(default_factory=list)
    trust: TrustModel | None = None

    @field_validator("binary", "description", "version")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("no line breaks and no control characters")
        return value

    @field_validator(*_WORDS)
    @classmethod
    def _words(cls, value: list[str]) -> list[str]:
        for word in value:
            if "\0" in word:
                raise ValueError("a word cannot hold a NUL character")
            for name in _BRACES.findall(word):
                if name not in PLACEHOLDERS and word not in BLOCKS:
                    known = f"{', '.join(PLACEHOLDERS)}, and as words of their own {', '.join(block.strip('{}') for block in BLOCKS)}"
                    raise ValueError(f"{{{name}}} is no placeholder; there are {known}")
        return value

    @field_validator("settings")
    @classmethod
    def _settings(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("it holds a NUL character")
        return value

    @field_validator("settings_file")
    @classmethod
    def _settings_file(cls, value: str) -> str:
        if not value.isprintable() or value.startswith("/") or ".." in value.split("/"):
            raise ValueError("a path of one line below {settings_dir}, without ..")
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name) or name.startswith("NIGHTCREW_"):
                raise ValueError(f"{name!r} cannot be a variable of an agent")
            if "\0" in text:
                raise ValueError(f"{name} holds a NUL character")
        return value

    @model_validator(mode="after")
    def _some_prompt(self) -> KindModel:
        if (self.protocol == "acp" and self.prompt != "stream") or (self.prompt == "stream" and self.protocol not in STREAMED):
            raise ValueError(f'prompt = "stream" goes with protocol = {" or ".join(STREAMED)}, and acp with nothing else')
        if not self.headless and not self.interactive and self.prompt != "stream":
            raise ValueError("give headless or interactive, the arguments of the program")
        needed = {"argument": "{prompt}", "file": "{prompt_file}"}.get(self.prompt, "")
        if self.headless and not any(needed in word for word in self.headless):
            raise ValueError(f'headless has no {needed}; prompt = "{self.prompt}" needs it')
        if (self.resume or self.fork) and CONVERSATION not in (*self.headless, *self.interactive):
            raise ValueError(f"neither headless nor interactive has the word {CONVERSATION}; resume and fork need it")
        return self

    @field_validator("transcript")
    @classmethod
    def _transcript(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not pattern.startswith(("~/", "$", "{out}/")) or ".." in pattern.split("/"):
                raise ValueError(f"{pattern!r} does not begin with ~/, $VARIABLE/ or {{out}}/")
        return value


def load(name: str, file: Path) -> Kind:
    """The person's own kind `name`, read anew each time: a supervisor lives long. Raises ConfigError as every file does."""
    model = parse(read_text(file), KindModel, str(file))
    trust = into(Trust, model.trust) if model.trust is not None else None
    output = "json lines" if model.protocol == "acp" else ""  # a person reads what our client makes of it
    return into(Kind, model, name=name, program=(model.binary,), source=str(file), output=output, trust=trust)


# Kind keys
# ---------
# Whether the keys of a task fit its kind of agent.


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong with a task."""

    key: str
    why: str
    what: str = "bad value"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a task says that depends on its kind."""

    given: Collection[str]
    """The keys that the task itself has; what it inherits may be for other kinds."""
    command: bool
    prompt: str | None
    interactive: bool


def misfit(kind: Kind, asked: Asked) -> Misfit | None:
    """The first thing that is wrong; None when all fits."""
    if kind.internal:
        return Misfit("kind", f"tasks of kind {kind.name} are nightcrew's own")
    return _of_agent(kind, asked) if kind.is_agent else _of_command(kind, asked)


def values(kind: Kind, model: str | None, allow: list[str] | None, interactive: bool) -> Mapping[str, Any]:
    """Those fields of a `TaskSpec` that only agents have: what others inherit means nothing to them."""
    if not kind.is_agent:
        return {}
    return {"model": model or "", "allow": tuple(allow) if allow is not None else None, "interactive": interactive}


def bounds(kind: Kind, said: Mapping[str, float | None], *, bounded: bool) -> Mapping[str, Any]:
    """`timeout_s`, `steps_max` and `cost_max` of a task, and which of them its kind says. `said`: what its plan does. `bounded`: it works
    by itself and may add no others, so that the kind's count."""
    if not kind.is_agent:
        said = {**said, "steps_max": None}
    given = {name: value for name, value in said.items() if value}
    usual = {name: getattr(kind, name) for name in said if bounded and name not in given and getattr(kind, name)}
    none = {"timeout_s": 0.0, "steps_max": 0, "cost_max": 0.0}
    return {**none, **usual, **given, "assumed": tuple(sorted(usual))}


def _of_command(kind: Kind, asked: Asked) -> Misfit | None:
    if asked.command and kind.program:
        return Misfit("command", f"a task of kind {kind.name} brings its own command; give it params")
    if not asked.command and not kind.program:
        return Misfit("command", f"a task of kind {kind.name} needs a command", "missing key")
    unknown = next((key for key in (*TASK_KEYS, "interactive") if key in asked.given), "")
    return Misfit(unknown, f"a task of kind {kind.name} has no {unknown}") if unknown else None


def _of_agent(kind: Kind, asked: Asked) -> Misfit | None:
    name, prompt, interactive = kind.name, asked.prompt, asked.interactive
    if kind.takes_command and not asked.command:
        return Misfit("command", f"a task of kind {name} needs the command of its agent; write it into a plan", "missing key")
    if asked.command and not kind.takes_command:
        return Misfit("command", f"a task of kind {name} takes a prompt and no command; for a command say kind = 'shell'")
    if not kind.template(interactive=interactive):
        why = "only works by itself" if interactive else "only works with a person at it: say interactive = true"
        return Misfit("interactive", f"kind {name} {why}")
    if prompt is None and not interactive:
        return Misfit("prompt", f"a task of kind {name} needs a prompt", "missing key")
    if prompt is not None and not prompt.strip():
        return Misfit("prompt", "a prompt must not be empty")
    if prompt is not None and "\0" in prompt:
        return Misfit("prompt", "a prompt cannot hold a NUL character")
    if prompt is not None and not kind.takes_prompt(interactive=interactive):
        return Misfit("prompt", f"kind {name} takes no prompt {'with a person at it' if interactive else 'when it works by itself'}")
    unknown = next((key for key in TASK_KEYS if key in asked.given and not kind.knows(key, interactive=interactive)), "")
    return Misfit(unknown, f"kind {name} has no {unknown}{' with a person at it' if interactive else ''}") if unknown else None


def no_parent(parent: str, theirs: str | None, kind: str, known: Collection[str]) -> str:
    """Why a task of `kind` cannot go on with a copy of the conversation of `parent`, whose kind is `theirs`; empty when it can."""
    if theirs is None:
        return f"no task has the id {parent!r}; {nearest(parent, known)}"
    return f"{parent} is of kind {theirs}; only a task of that kind can go on with its conversation" if theirs != kind else ""


def at_one_path(tasks: Sequence[TaskSpec], said: Collection[str]) -> tuple[TaskSpec, ...]:
    """Those whose conversation is copied, and the copies, see their worktrees at one path, so that the paths in it stay true; but for the
    tasks in `said`, which say themselves, and those without a sandbox."""
    parents = {task.continue_from for task in tasks}
    ours = {task.name for task in tasks if task.continue_from or task.name in parents} - set(said)
    return tuple(replace(task, same_path=True) if task.name in ours and task.sandbox != 0 else task for task in tasks)


# Choosing
# --------
# What the user's config.toml chooses for a task that does not say it: kind and model by `[[assign]]`, and by `[size.NAME]` what a
# task of its size gets.


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
        said["size"], why = spec.auto_size(self._prompt(said), self._measured[0])
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
