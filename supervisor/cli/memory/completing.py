"""Completion of the paths of a memory: by the files that are there, so no supervisor is asked."""

from __future__ import annotations

import itertools
import os

import click

from supervisor.cli.memory import door
from supervisor.cli.names import NEWEST
from supervisor.core.note_paths import kind_of


def note_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """One whose name no note can have is not offered: it could drive the terminal."""
    return _below(str(door.files() or ""), incomplete)


def waiting_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what waits for a person."""
    return _beside("quarantine", incomplete)


def archived_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what was removed; and of what is there, since an older version of that can be restored."""
    return sorted({*_beside("archive", incomplete), *_below(str(door.files() or ""), incomplete)})[:NEWEST]


def _beside(folder: str, incomplete: str) -> list[str]:
    files = door.files()
    return _below(str(files.parent / folder), incomplete) if files is not None and not door.is_agent() else []


def _below(top: str, incomplete: str) -> list[str]:
    found = (os.path.relpath(f"{folder}/{name}", top) for folder, _, names in os.walk(top) for name in names)
    paths = (path for path in found if kind_of(path) and path.startswith(incomplete))
    return sorted(itertools.islice(paths, NEWEST))
