"""The project's file: `nightcrew.toml` at the root of the main worktree, committed next to the code. docs/project.md describes each key.

It arrives with a clone, so it is text of a stranger until somebody has read it. That decides what it may say: how tasks that a person
starts are run, what an analysis looks at, and how generated files are made anew. Nothing runs because the file is there: the commands of a
snapshot run when a person asks for that snapshot by its name, so `[defaults]` may name none, and those of `[[generated]]` when a person
lands results, in a sandbox. `[defaults]` loosens no isolation, and it sets no variable of an agent's
environment (`params`): which variables make a program run or send something else (LD_PRELOAD, NODE_OPTIONS, ANTHROPIC_BASE_URL ...) no
list can know.
"""

from __future__ import annotations

import contextlib
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from supervisor.config import toml
from supervisor.config.task_keys import Pattern, Shared, SnapshotModel, SnapshotsCommand, check_command, check_inside, check_name, to_spec
from supervisor.config.toml import Duration, Once, Strict, into, line_of, parse, read_text
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Kind
from supervisor.kernel.names import nearest
from supervisor.kernel.path_globs import normalised
from supervisor.kernel.retry import TIMEOUT_S
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.train_orders import REPAIRS_MAX, WIDTH_MAX, GeneratedRule, Method
from supervisor.results.findings import Perspective

NAME = "nightcrew.toml"
_REFUSED = {
    "params": "a file that comes with a clone sets no environment variables of your agents; write params into the plan",
    "allow": "a file that comes with a clone gives no agent a tool; write allow into the plan",
    "interactive": "a file that comes with a clone decides no night of yours; say interactive where the task is",
    "children_max": "a file that comes with a clone lets no agent add tasks; say children_max where the task is",
    "depth_max": "a file that comes with a clone lets no agent add tasks; say depth_max where the task is",
    "gate": "a file that comes with a clone runs no command for every task; say gate where the task is",
    "gate_timeout": "a file that comes with a clone runs no command for every task; say gate_timeout where the task is",
    "snapshot": "a file that comes with a clone runs no set-up of its own for every task; name the snapshot in the plan",
}
_NOT_LOOSER = "a file that comes with a clone may tighten isolation and never loosen it"


class DefaultsModel(Shared):
    """`[defaults]`: the keys of a plan's `[defaults]`, but for those of _REFUSED and for whatever would loosen isolation."""

    @field_validator(*_REFUSED, mode="before")
    @classmethod
    def _refused(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ARG003 - whatever it holds
        raise ValueError(_REFUSED[str(info.field_name)])

    @field_validator("sandbox")
    @classmethod
    def _best_tier(cls, value: int | None) -> int | None:
        if value != 2:
            raise ValueError(f"{_NOT_LOOSER}: only 2 can be said here")
        return value

    @field_validator("network")
    @classmethod
    def _no_network(cls, value: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        if value is not False:  # neither a list: it would open the network of those whose settings say sandbox = 2
            raise ValueError(f"{_NOT_LOOSER}: only false can be said here")
        return value


class AnalyzeModel(Strict):
    """`[analyze]`: what `nightcrew analyze` looks at."""

    agents: Annotated[list[str], Field(min_length=1)] = Field(default_factory=lambda: [str(one) for one in Perspective])
    exclude: Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=1000)] = Field(default_factory=list)
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = 600.0

    @field_validator("agents")
    @classmethod
    def _agents(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in set(Perspective):
                raise ValueError(f"{name!r} is no analyst; {nearest(name, [str(one) for one in Perspective])}")
        return list(dict.fromkeys(value))

    @field_validator("exclude")
    @classmethod
    def _exclude(cls, value: list[str]) -> list[str]:
        if any(not pattern.isprintable() for pattern in value):
            raise ValueError("a pattern has no line breaks and no control characters")
        return value


class GeneratedModel(Strict):
    """`[[generated]]`: files that a command makes out of others."""

    paths: Annotated[list[Pattern], Field(min_length=1, max_length=100)]
    command: Annotated[SnapshotsCommand, AfterValidator(check_command)]

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: list[str]) -> list[str]:
        forms = [normalised(check_inside(pattern)) for pattern in value]
        if "**" in forms:
            raise ValueError("not every file is made by a command: name those that it writes")
        return list(dict.fromkeys(forms))


class LandModel(Strict):
    """`[land]`: how `nightcrew land` brings results home."""

    gate: toml.Command | None = None
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = TIMEOUT_S
    method: Literal["merge", "squash", "rebase"] = "merge"
    repairs: Annotated[int, Field(ge=0, le=REPAIRS_MAX)] = 1
    width: Annotated[int, Field(ge=1, le=WIDTH_MAX)] | None = None
    snapshot: str = ""

    @field_validator("snapshot")
    @classmethod
    def _snapshot(cls, value: str) -> str:
        return check_name(value) if value else value


class ProjectModel(Strict):
    """The whole file."""

    base: Annotated[str, Field(min_length=1)] | None = None
    defaults: DefaultsModel = Field(default_factory=DefaultsModel)
    analyze: AnalyzeModel = Field(default_factory=AnalyzeModel)
    land: LandModel = Field(default_factory=LandModel)
    snapshot: Annotated[dict[str, SnapshotModel], Field(max_length=100)] = Field(default_factory=dict)
    generated: Annotated[list[GeneratedModel], Field(max_length=100)] = Field(default_factory=list)

    @field_validator("snapshot")
    @classmethod
    def _names(cls, value: dict[str, SnapshotModel]) -> dict[str, SnapshotModel]:
        for name in value:
            check_name(name)
        return value


@dataclass(frozen=True, slots=True)
class Analyze:
    """What an analysis looks at when the command line does not say otherwise."""

    agents: tuple[Perspective, ...] = tuple(Perspective)
    exclude: tuple[str, ...] = ()
    """Glob patterns of paths that no analyst reads."""
    timeout_s: float = 600.0
    """Of each analyst."""


@dataclass(frozen=True, slots=True)
class Land:
    """How results are brought home when the command line does not say otherwise."""

    gate: str = ""
    """As a person would type it; empty: the project has none."""
    timeout_s: float = TIMEOUT_S
    """Of each gate."""
    method: Method = Method.MERGE
    repairs: int = 1
    """How often the agent of a result that does not fit is asked to mend it."""
    width: int | None = None
    """Gates that run side by side; None: as many as there are cores."""
    snapshot: str = ""
    """What gates start from."""


@dataclass(frozen=True, slots=True)
class Project:
    """What a repository says about itself. Without a file: all defaults."""

    file: Path | None = None
    """Where it was read; None when there is none."""
    base: str | None = None
    """Revision at which runs start when neither the command line nor the plan names one."""
    defaults: Shared = field(default_factory=Shared)
    """Only the keys in its `model_fields_set` were given: they are for tasks that do not have them."""
    analyze: Analyze = field(default_factory=Analyze)
    land: Land = field(default_factory=Land)
    snapshots: Mapping[str, SnapshotSpec] = field(default_factory=dict)
    """By name. None of them is made, nor any of their commands run, before a person asks for it by that name."""
    generated: tuple[GeneratedRule, ...] = ()
    """In the order in which they are written. None of their commands runs before a person lands results."""


def load(root: Path, kinds: Mapping[str, Kind] | None = None, files: Once | None = None) -> Project:
    """The project file of the repository whose main worktree is at `root`. `kinds` as for `plan.load`; None: any name may be a kind.
    The file is as `files` has it.

    Raises ConfigError with `file:line`, the key, and what is allowed or nearest; also for anything but a plain file of that name.
    """
    file = root / NAME
    files = files or Once()
    if not _there(file, files):
        return Project()
    text = read_text(file, empty=True, files=files)
    model = parse(text, ProjectModel, str(file))
    if kinds is not None:
        _check_kind(model.defaults.kind, kinds, f"{file}:{line_of(text, ['defaults', 'kind'])} defaults.kind")
    analyze, land = model.analyze, model.land
    return Project(
        file=file,
        base=model.base,
        defaults=model.defaults,
        analyze=into(Analyze, analyze),
        land=into(Land, land, gate=_typed(land.gate)),
        snapshots={name: to_spec(name, table) for name, table in model.snapshot.items()},
        generated=tuple(GeneratedRule(tuple(rule.paths), rule.command) for rule in model.generated),
    )


def _typed(command: str | list[str] | None) -> str:
    return shlex.join(command) if isinstance(command, list) else command or ""


def _check_kind(kind: str, kinds: Mapping[str, Kind], on: str) -> None:
    if kind not in kinds:
        raise ConfigError("bad value", on=on, why=f"{kind!r} is not a kind of agent; {nearest(kind, kinds)}")
    if kinds[kind].program and not kinds[kind].is_agent:
        raise ConfigError("bad value", on=on, why=f"a task of kind {kind} brings its own command, so not every task can be one")


def _there(file: Path, files: Once) -> bool:
    """Whether `files` has it. A link could lead to any file of this machine, and to a pipe that is never written."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(file.lstat().st_mode):
                raise ConfigError("cannot read", on=str(file), why="it is not a plain file", hint="put a file there, or remove it")
        files.raw(file)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError("cannot read", on=str(file), why=error.strerror or str(error)) from None
    return True


def template() -> str:
    """What `nightcrew init` writes: prose after `# `, keys after `#`, so that taking the one `#` away gives a key."""
    return Path(__file__).with_name("project_template.toml").read_text(encoding="utf-8")
