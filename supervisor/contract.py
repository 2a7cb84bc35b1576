"""The contract of a feature: all that a feature or a plug-in may add to nightcrew.

A `Feature` names its parts as `module:name`, so that a process imports only the parts that it uses. The features of this repository
stand in `supervisor/features/__init__.py`. A package of somebody else adds a `Feature` by an entry point:

    [project.entry-points."nightcrew.features"]
    hello = "nightcrew_hello:FEATURE"

`docs/examples/hello` is a whole package of this kind.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from supervisor.kernel.codec import Handler
from supervisor.kernel.errors import ConfigError

if TYPE_CHECKING:
    from agents.tmux import Tmux
    from supervisor.host.paths import Home
    from supervisor.kernel.audit import Said
    from supervisor.kernel.conversations import Remarks
    from supervisor.kernel.decision import Command
    from supervisor.kernel.spec import Submission
    from supervisor.server.loop import Loop
    from supervisor.store.rows import LaunchRow
    from supervisor.store.sqlite import WriteAccess
    from worktrees.git import Git

GROUP = "nightcrew.features"
"""The group of entry points."""

T = TypeVar("T")
Verb = Handler | Mapping[str, Handler]
"""Answers a request, or one handler for each `op`. A handler is `async handle(context, *, name: type, ...)`: its keyword-only parameters
are the request, each checked by its type before the call. `context` is the `Loop`, and for a request of an agent `Asked`. A handler raises
a NightcrewError, or returns a JSON object of what is committed by then."""


@dataclass(frozen=True, slots=True)
class Feature:
    """Name all that one feature adds. Each string is a place, `module:name`."""

    name: str
    service: str = ""
    """A `Service`: what runs beside the loop for as long as the supervisor does."""
    after: tuple[str, ...] = ()
    """The features whose services begin before this one, and end after it."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Verbs of the person's socket, each with its `Verb`."""
    interrupted: frozenset[str] = frozenset()
    """Those of `requests` that stop when the client disconnects. The others are done to their end."""
    agent_requests: Mapping[str, str] = field(default_factory=dict)
    """Verbs of the agents' socket, each with its `Verb`."""
    needs: str = ""
    """`(loop, watches) -> dict`: parts of the answer that says what needs a person. `watches`: a screen asks, and will ask again."""
    acts: Mapping[str, str] = field(default_factory=dict)
    """`(loop, command) -> None` for classes of commands in `supervisor/kernel/decision.py`: act upon a decision that was committed."""
    begins: str = ""
    """`(ledger, run) -> events` which belong into one decision with the tasks of a run that begins; `run` is empty for all runs, when a
    supervisor begins."""
    step: str = ""
    """`(loop) -> None`, after each step of the loop. It must not block."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Verbs of `nightcrew`, each with its click command. A verb of nightcrew's own goes before one of another package."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds of agent, each with its TOML file as `package:file`. A person's own file goes before it."""
    sections: str = ""
    """`(home) -> list[Section]`: tables on the page More of `nightcrew web`. A thread calls it."""
    tables: tuple[str, ...] = ()
    """Classes that extend `Tables`: what the feature keeps in the ledger."""
    denied: str = ""
    """`(loop, task, epoch, tools) -> Question | None`: what a person should say of an attempt that failed since it was denied tools."""


class Tables:
    """Write what a feature keeps in the ledger. A class of yours extends it with what its service needs; `Ledger.of` finds the object.

    The ledger calls the methods below inside the transaction that commits what they are told of. What they raise keeps all of it from
    being committed."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk

    def submitted(self, run: str, submission: Submission, first: str) -> None:
        """Write what belongs to a run that is new; `first` is the id of its first task."""

    def decided(self, command: Command) -> None:
        """Write what belongs to a command, which is written itself by then."""

    def text_kept(self, task: str, delivery: int, comments: Collection[int] | None, remarks: Remarks | None) -> None:
        """Write that a text for the agent of `task` waits. It holds these comments of a person to its result, by their numbers, and these
        remarks on its pull request; None: it is no such text."""

    def text_dropped(self, task: str, delivery: int) -> None:
        """Write that a text never reached the agent of `task`."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table for a person. Its texts are escaped where they are shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Services:
    """The objects of the services that run now, each found by its class."""

    def __init__(self) -> None:
        self._objects: dict[type, object] = {}

    def put(self, service: object, kind: type | None = None) -> None:
        """Offer an object to requests and to other services: by its class, or by `kind`, which that class extends."""
        self._objects[kind or type(service)] = service

    def find(self, kind: type[T]) -> T | None:
        """Return the object of this class, None when no service has put one."""
        found = self._objects.get(kind)
        return found if isinstance(found, kind) else None

    def get(self, kind: type[T]) -> T:
        """Return the object of this class. Raises LookupError when no service has put one."""
        found = self.find(kind)
        if found is None:
            raise LookupError(f"no service has put a {kind.__name__}")
        return found


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The parts of the running supervisor that a service works with."""

    loop: Loop
    home: Home
    git: Git
    tmux: Tmux
    secret: bytes
    """The supervisor's own, for digests and tokens."""
    settings_file: Path
    alert: Callable[[Said], None]
    """Show a person a sentence. It may be called from any thread."""


class Briefing:
    """A service that briefs agents."""

    async def before(self, task: str, epoch: int, launch: LaunchRow) -> str:  # noqa: ARG002 - the shape of every briefing
        """Return what an agent that begins anew reads before its prompt. Raises nothing: an agent can work without."""
        return ""


class Proof:
    """A service that proves the lines of the journal."""

    @property
    def proven(self) -> int:
        """The line up to which every line is proven; 0 before the first look."""
        return 0


Service = Callable[[Supervisor], AbstractAsyncContextManager[None]]


@functools.cache
def others() -> tuple[Feature, ...]:
    """Return the features of other packages, by name. It reads the metadata of every installed package.

    Raises ConfigError for a package that cannot be imported."""
    from importlib.metadata import entry_points  # 30 ms, which no command pays that needs none of them

    return tuple(load(entry.value) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name))


@functools.cache
def tables() -> tuple[type[Tables], ...]:
    """Return the tables of all features. Raises ConfigError for a part that cannot be imported."""
    features: tuple[Feature, ...] = load("supervisor.features.registry:installed")()
    return tuple(load(place) for feature in features for place in feature.tables)


def load(place: str) -> Any:
    """Return the object at a place. Raises ConfigError when it cannot be imported."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the code of another package raises
        raise ConfigError(
            "cannot import", on=place, why=f"{type(error).__name__}: {error}", hint="mend or uninstall that package"
        ) from error
