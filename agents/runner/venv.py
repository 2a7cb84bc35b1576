"""The virtual environment that a zygote has preloaded from, and others that hold the very same files.

An agent's worktree has its own copy of the template's `.venv`, at another path. Its program may be served what was preloaded from the
template as long as importing it anew would run the same code. `matching` compares pyvenv.cfg, the names in `site-packages` (installing or
removing anything changes those), and what was preloaded: a directory with the template's inode number and times is the template's, whose
files do not change (an overlay shows it so until something in it is written, a link always); in any other, each preloaded file must have
the template's size and time, by which Python decides whether a `.pyc` fits its source. (Directories first, because a preload of 3,000
modules in 99 directories costs 45 ms to compare by files.)

`enter` then does in the fork what `site` does when an interpreter of that environment starts, its `.pth` files included. What was preloaded
keeps its `__file__` and `__path__` in the template, which holds the same bytes and can be read, but never changed, in every sandbox:
writing thousands of attributes anew would copy the memory that they lie in. What is imported later comes from the worktree, submodules too.
"""

from __future__ import annotations

import os
import pkgutil
import site
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory with preloaded files."""

    identity: tuple[int, int, int]
    """Of `_identity`."""
    files: tuple[tuple[str, int, int], ...]
    """Name, bytes, and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Preloaded:
    """The environment that modules were imported from, as it was then."""

    packages: str
    """Its `site-packages`."""
    names: frozenset[str]
    """What lies in there."""
    folders: Mapping[str, Folder]
    """Of each directory in there that something was preloaded from."""
    config: str
    """Its pyvenv.cfg."""
    path: tuple[str, ...]
    """`sys.path` without any other environment: the standard library, `packages`, and what preloaded modules added."""
    finders: tuple[Any, ...]
    """`sys.meta_path`, likewise."""
    apart: tuple[str, ...]
    """Names of modules in memory that are no part of it: nightcrew's own, and those it depends on."""

    @property
    def prefix(self) -> str:
        return _above(self.packages, 3)


_known: list[Preloaded] = []
_kept: list[object] = []


def note(packages: str, modules: Iterable[str], finders: Iterable[Any], apart: Iterable[str]) -> None:
    """Remember that the files `modules`, all below `packages`, are preloaded; for forks to come. Does nothing when that is in no virtual
    environment, or in one that shares the packages of its base. Call it with the `sys.path` that they were imported with."""
    try:
        config = _text(f"{_above(packages, 3)}/pyvenv.cfg")
        names = _names(packages)
        folders = _folders(packages, modules)
    except OSError:
        return
    if not _shares(config):
        _known.append(Preloaded(packages, names, folders, config, tuple(sys.path), tuple(finders), tuple(apart)))


def matching(prefix: str) -> Preloaded | None:
    """What was preloaded, if the environment `prefix` would import the same; None when it would not, or has changed since."""
    for one in _known:
        inside = os.path.relpath(one.packages, one.prefix)
        packages = f"{prefix}/{inside}"
        try:
            config = _text(f"{prefix}/pyvenv.cfg")
            if config != one.config.replace(_above(one.prefix, 1), _above(prefix, 1)) or _names(packages) != one.names:
                continue
            if all(_is_same(f"{packages}/{name}", folder) for name, folder in one.folders.items()):
                return one
        except OSError:
            continue
    return None


def enter(preloaded: Preloaded, prefix: str) -> None:
    """Make this interpreter one of the environment `prefix`, which matches `preloaded`."""
    sys.prefix = sys.exec_prefix = prefix
    site.PREFIXES[:] = [prefix]
    site.ENABLE_USER_SITE = False
    _forget_configuration()
    sys.meta_path[:] = preloaded.finders
    if prefix != preloaded.prefix:
        _lead(preloaded.prefix, prefix)
    sys.path.clear()
    for entry in preloaded.path:
        if entry == preloaded.packages:
            site.addsitepackages(site.removeduppaths(), [prefix])
        else:
            sys.path.append(_moved(entry, preloaded.prefix, prefix) or entry)
    site.execsitecustomize()


def _lead(there: str, here: str) -> None:
    """From now on whatever is searched for below `there`, where preloaded packages look for their submodules, is found below `here`."""

    def hook(entry: str) -> Any:  # a PathEntryFinder
        moved = _moved(entry, there, here)
        finder = pkgutil.get_importer(moved) if moved else None
        if finder is None:
            raise ImportError(entry)
        return finder

    sys.path_hooks.insert(0, hook)
    _kept.append(sys.path_importer_cache)  # to empty it would write into the memory of all that it holds
    sys.path_importer_cache = {}


def _moved(entry: str, there: str, here: str) -> str | None:
    return here + entry[len(there) :] if entry.startswith(f"{there}/") else None


def _forget_configuration() -> None:
    """`sysconfig` remembers the prefix of the interpreter that imported it."""
    sysconfig: Any = sys.modules.get("sysconfig")
    if sysconfig is not None:
        sysconfig._PREFIX, sysconfig._EXEC_PREFIX, sysconfig._CONFIG_VARS = sys.prefix, sys.exec_prefix, None


def _shares(config: str) -> bool:
    keys = dict(line.lower().replace(" ", "").partition("=")[::2] for line in config.splitlines())
    return keys.get("include-system-site-packages") != "false"


def _names(packages: str) -> frozenset[str]:
    return frozenset(os.listdir(packages)) - {"__pycache__"}


def _folders(packages: str, files: Iterable[str]) -> dict[str, Folder]:
    inside: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = os.path.relpath(file, packages).rpartition("/")
        inside.setdefault(folder, []).append(name)
    return {
        folder: Folder(_identity(f"{packages}/{folder}"), tuple((name, *_stamp(f"{packages}/{folder}/{name}")) for name in names))
        for folder, names in inside.items()
    }


def _is_same(place: str, folder: Folder) -> bool:
    return _identity(place) == folder.identity or all(_stamp(f"{place}/{name}") == (size, time) for name, size, time in folder.files)


def _identity(folder: str) -> tuple[int, int, int]:
    """A directory that an overlay had to copy, to change something in it, has kept its number and its time of change, but not its ctime."""
    seen = os.stat(folder)
    return seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns


def _stamp(file: str) -> tuple[int, int]:
    seen = os.stat(file)
    return seen.st_size, seen.st_mtime_ns


def _text(file: str) -> str:
    with open(file, encoding="utf-8", errors="surrogateescape") as opened:
        return opened.read()


def _above(path: str, levels: int) -> str:
    for _ in range(levels):
        path = os.path.dirname(path)
    return path
