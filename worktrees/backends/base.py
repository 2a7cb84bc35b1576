"""What every file backend answers, and what several of them share."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from supervisor.host import files
from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import HostError
from worktrees.git import CHECKOUT_S
from worktrees.locks import MountNamespace

if TYPE_CHECKING:
    from worktrees.environments import Environment
    from worktrees.private_repository import Layers
    from worktrees.templates import Template


class Backend(Protocol):
    """A way to give an environment the files of a template. Stateless: what it made is found by looking."""

    @property
    def name(self) -> str:
        """As the ledger writes it."""

    @property
    def caveat(self) -> str:
        """Name what an agent cannot do with the files although the backend works; "" where they behave as ordinary files."""

    def probe(self, directory: Path) -> str | None:
        """Why it does not work for environments in `directory`, found by really doing it there; None when it works."""

    def refuses(self, template: Template) -> str | None:
        """Why it cannot serve this very template, naming the file; None when it can."""

    def plan(self, path: Path, template: Template) -> Layers:
        """The layers that an environment at `path` will have. Touches nothing."""

    def populate(self, env: Environment, template: Template) -> None:
        """Give `env`, which git knows and which has no file yet, its files at `env.base`, and an index that fits them.

        Not repeatable: what a crash left is cleared first. Raises DiskFull, HostError, ToolFailed.
        """

    def open(self, env: Environment) -> AbstractContextManager[MountNamespace | None]:
        """Show the files for the time of the `with`: inside the `MountNamespace` when it gives one, else at `env.path`, where they stay.

        Mounts what is not mounted, also after a reboot. Raises HostError.
        """

    def is_open(self, env: Environment) -> bool:
        """Whether every process of this machine can see the files at `env.path` now."""

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """Unmount; safe to repeat. Raises Refused when somebody stands in there, unless `lazy`: then it disappears, and ends with its last
        user. Never make it `lazy` and open it again: two mounts of one upper layer disturb each other."""


class Visible:
    """The half of a backend whose environments are ordinary directories."""

    caveat = ""

    def refuses(self, template: Template) -> str | None:  # noqa: ARG002 - part of the interface
        """Serves every template."""
        return None

    @contextlib.contextmanager
    def open(self, env: Environment) -> Iterator[MountNamespace | None]:  # noqa: ARG002
        """Nothing to do."""
        yield None

    def is_open(self, env: Environment) -> bool:
        """Always, while the directory is there."""
        return env.path.is_dir()

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """Nothing to do."""


def follow(env: Environment, template: Template) -> None:
    """Bring files and index from the template's commit to that of the environment; only files that differ are touched."""
    if template.base != env.base:
        env.repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", env.base, deadline_s=CHECKOUT_S)


def rewrite(env: Environment, template: Template, top: Path) -> None:
    """Write the template's `anchored` files below `top`, with the environment's path in place of the template's. Raises OSError."""
    here, there = os.fsencode(template.files), os.fsencode(env.path)
    for name in template.anchored:
        source, target = template.files / name, top / name
        _same_directory(source.parent, target.parent)
        target.unlink(missing_ok=True)
        target.write_bytes(source.read_bytes().replace(here, there))
        target.chmod(stat.S_IMODE(source.stat().st_mode))


def _same_directory(source: Path, target: Path) -> None:
    if not target.exists():
        _same_directory(source.parent, target.parent)
        target.mkdir()
        target.chmod(stat.S_IMODE(source.stat().st_mode) | stat.S_IRWXU)


def place_index(env: Environment, data: bytes) -> None:
    """Make `data` the environment's index. Written after the files: an index that is not newer than they are is not believed by git."""
    files.atomic_write(env.admin_dir / "index", data, durable=False)


@contextlib.contextmanager
def trial(directory: Path) -> Iterator[Path]:
    """A directory of ours for a probe. Raises HostError when `directory` cannot be written."""
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(locked_directory(directory, ".nightcrew-probe."))
        except OSError as error:
            raise HostError("cannot write", on=str(directory), why=error.strerror or str(error)) from error
        yield place
