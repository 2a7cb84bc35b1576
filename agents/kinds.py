"""Kinds of agent: what each needs, as data. Ours are the tables of `kinds.toml`; docs/kinds.md describes the files that a person may add.

description  one line, shown by `kinds ls` and in the docs
mode         "headless": stdout and stderr are pipes, logged, without a controlling terminal; "listening": the same, but the pane is its
             controlling terminal, where it answers Ctrl-C with a question; "terminal": the agent owns the pane
module       optional: a module of ours that this kind runs
sweep        optional: true when nothing is to stay of a task that is done and changed nothing: no worktree, no branch
internal     optional: true when only nightcrew's own commands submit its tasks
preload      optional: modules that a warm process has imported for all tasks of this kind, which are then forked from it
output       optional: "one json line": stdout must be exactly that, or the attempt has failed; "json lines": stdout is for programs,
             and the pane shows stderr alone

timeout      seconds, here; a person's own files may say "4h"

driver       not a key: what gives a headless agent its prompts when `prompt = "stream"`, see `agents.turns`

All other keys are those of `supervisor.kernel.kind.Kind`. A kind with `headless` or `interactive` takes a prompt. One with a module alone
brings its whole command; one with neither has a command in each task.
"""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from supervisor.host import paths
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError, Refused
from supervisor.kernel.kind import Kind

__all__ = ["Kind", "kinds", "of_task", "to_run"]


class Kinds(Mapping[str, Kind]):
    """Every kind that exists, by name. A person's own are read when they are asked for, each time, so that a supervisor and the commands
    see the same; one of ours that is for a program can be replaced so. `[...]` raises ConfigError for a file that is off."""

    def __getitem__(self, name: str) -> Kind:
        file = paths.kind_file(name) if _is_replaceable(name) else None
        if file is None:
            return _ours()[name] if name in _ours() else _of_packages()[name]
        from supervisor.config import kinds as own  # pydantic is slow to import, and most kinds are ours

        return driven(own.load(name, file))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*_ours(), *_own(), *_of_packages()}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in _ours() or name in _own() or name in _of_packages()


def kinds() -> Mapping[str, Kind]:
    """Every kind that exists, by name."""
    return Kinds()


def to_run(name: str) -> Kind:
    """The kind of a task that is to begin. Raises Refused when its file is gone or broken since it was accepted."""
    try:
        return kinds()[name]
    except KeyError:
        why = "it is not a kind of agent any more"
    except NightcrewError as error:
        why = error.line()
    raise Refused("cannot start", on=f"a task of kind {name}", why=why, hint="nightcrew kinds ls") from None


def of_task(name: str) -> Kind:
    """The kind of a task that was accepted. One whose file is gone or broken since is a kind that promises nothing."""
    try:
        return kinds()[name]
    except (KeyError, NightcrewError):
        return Kind(name, "a kind that cannot be read any more")


@functools.cache
def _ours() -> dict[str, Kind]:
    shapes = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: _kind(name, shape) for name, shape in shapes.items()}


@functools.cache
def _of_packages() -> dict[str, Kind]:
    """Return the kinds that other packages add. Raises ConfigError for a file that is wrong, ImportError for a package that is."""
    from supervisor import contract  # most commands need no kind of another package

    found: dict[str, Kind] = {}
    for name, place in [item for feature in contract.others() for item in feature.kinds.items()]:
        from supervisor.config import kinds as own  # as in `Kinds`

        package, _, file = place.partition(":")
        with resources.as_file(resources.files(package) / file) as path:
            found[name] = driven(own.load(name, path))
    return found


def _kind(name: str, shape: Mapping[str, Any]) -> Kind:
    binary, module = shape.get("binary", ""), shape.get("module", "")
    program = (binary,) if binary else (sys.executable, "-I", "-m", module) if module else ()
    return driven(codec.load(Kind, {**shape, "name": name, "program": program, "timeout_s": shape.get("timeout", 0.0)}))


def driven(kind: Kind) -> Kind:
    """With what gives it its prompts, if it takes them by its protocol."""
    if kind.prompt != "stream":
        return kind
    ours = ("--allow", "{allow}", "--model", "{model}") if kind.protocol == "acp" else ()
    words = ("-m", "agents.turns", kind.protocol, "--prompt-file", "{prompt_file}", "--inbox", "{inbox}", *ours, "--")
    return replace(kind, driver=(sys.executable, "-I", *words))


def _own() -> dict[str, Path]:
    """The person's files."""
    return {name: file for name, file in paths.kind_files().items() if _is_replaceable(name)}


def _is_replaceable(name: str) -> bool:
    """Return whether a person's file may describe the kind. Kinds of ours without a program are nightcrew's own machinery."""
    return name not in _ours() or bool(_ours()[name].binary)
