"""A checkout of its own, with the dependencies linked into the template. Works everywhere.

A dependency directory becomes a directory of links, not one link: a pattern such as `node_modules/` matches directories only, and a bare
link would turn up as the agent's own new file. What the links lead to is write-protected, so that one agent does not change
another's dependencies (that does not hold root; a sandbox does). Nothing is changed below an overlay: while one stands on the template,
its dependencies are copied instead, which is slower still.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from worktrees.backends import base
from worktrees.failures import wrap_os_errors
from worktrees.git import CHECKOUT_S
from worktrees.layers import Layers

if TYPE_CHECKING:
    from worktrees.environment import Environment
    from worktrees.templates import Template

_COPIED = ".gitignore"
"""git does not read one through a link."""


class Plain(base.Visible):
    """`read-tree` and links."""

    name = "plain"

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with base.trial(directory) as scratch:
            try:
                (scratch / "link").symlink_to(scratch)
            except OSError as error:
                return f"links: {error.strerror}"
        return None

    def plan(self, path: Path, template: Template) -> Layers:  # noqa: ARG002 - part of the interface
        """See `Backend`."""
        return Layers(self.name, str(template.files))

    def populate(self, env: Environment, template: Template) -> None:
        """See `Backend`."""
        env.repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", env.base, deadline_s=CHECKOUT_S)
        linked = template.protect()
        with wrap_os_errors(env.path):
            for name in template.extras:
                target = env.path / name
                if os.path.realpath(target) == str(target):  # no link of another commit's tree leads out of the worktree
                    _bring(template, name, target, linked=linked)
            base.rewrite(env, template, env.path)


def _bring(template: Template, name: str, target: Path, *, linked: bool) -> None:
    source = template.files / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file():
        return  # this commit has a file of its own there
    if not source.is_dir() or source.is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
        return
    if not linked:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    own = {template.files / inner for inner in template.anchored}
    _link(source, target, own, {folder for file in own for folder in file.parents})


def _link(source: Path, target: Path, own: set[Path], opened: set[Path]) -> None:
    """Make `target` a directory of links to what is in `source`: but not to `own` files, and `opened` directories inside are made alike."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry in own:
            continue
        if entry in opened:
            _link(entry, target / entry.name, own, opened)
        elif entry.name == _COPIED:
            shutil.copyfile(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry)
