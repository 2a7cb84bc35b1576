"""Importing once what every fork will have, and refusing what a fork cannot have: another thread."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agents.runner import venv
from agents.runner import warm as warm_programs
from supervisor.core.errors import Refused
from supervisor.host.procfs import slurp

_LEAVE_OUT = "leave it out of preload"
_THEIRS = "preload what is installed in .venv; the repository's own modules each agent imports by itself, because it changes them"


def warm(modules: Sequence[str], path: Sequence[str]) -> None:
    """Import `modules`, from the `site-packages` directories `path` alone when there are any, else from our own.

    Raises Refused, naming the module that cannot be imported, that started a thread (a fork would have its locks but not the thread), or
    that is not of `path`.
    """
    gc.disable()
    with _among(path) if path else contextlib.nullcontext():
        for name in modules:
            _preload(name, _THEIRS if path else _LEAVE_OUT)


def _preload(name: str, hint: str) -> None:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Refused("cannot be preloaded", on=name, why=f"{type(error).__name__}: {error}", hint=hint) from error
    if (count := threads()) != 1:
        hint = f"{_LEAVE_OUT}; OPENBLAS_NUM_THREADS=1 and the like keep some libraries single-threaded"
        raise Refused("cannot be preloaded", on=name, why=f"importing it started {count - 1} more thread(s)", hint=hint)


def freeze() -> None:
    """Collect, then take everything that lives out of the collector's sight, so that it writes into no page that forks share."""
    gc.collect()
    warm_programs.prepare()
    gc.freeze()
    gc.enable()


def threads() -> int:
    """Threads of this process, those that Python does not know too where the system tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def resident() -> int:
    """Bytes of this process in memory."""
    pages = slurp("/proc/self/statm").split()
    if pages:
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which has no /proc


@contextlib.contextmanager
def _among(packages: Sequence[str]) -> Iterator[None]:
    """While the body imports, this is an interpreter of the other environment: nothing of ours can get into what it imports.

    That environment's `.pth` files are left to its forks, each of which has its own: so the repository's own modules, which agents change
    and which such files lead to, cannot be imported here. Afterwards `packages` come before our own.
    """
    path, finders = list(sys.path), list(sys.meta_path)
    at = next((at for at, entry in enumerate(path) if Path(entry).name in ("site-packages", "dist-packages")), len(path))
    apart = {name: sys.modules.pop(name) for name in list(sys.modules) if not _is_standard(name)}
    sys.path[:] = [*path[:at], *packages]
    sys.meta_path[:] = bare = [finder for finder in finders if getattr(finder, "__module__", "").startswith("_frozen_importlib")]
    yield
    files = _files({name for name in sys.modules if not _is_standard(name)}, packages)
    for name in apart:
        if name in sys.modules and name.partition(".")[0] in warm_programs.OURS:
            raise Refused("cannot be preloaded", on=name, why="nightcrew's own process has a package of this name", hint=_LEAVE_OUT)
    if len(packages) == 1:
        venv.note(packages[0], files, sys.meta_path, [name for name in apart if name not in sys.modules])
    sys.modules.update({name: module for name, module in apart.items() if name not in sys.modules})
    sys.meta_path[:] = [*finders, *(finder for finder in sys.meta_path if finder not in bare)]
    sys.path += path[at:]


def _files(modules: Iterable[str], packages: Sequence[str]) -> list[str]:
    """The files of `modules`, all of which must lie below `packages`. Raises Refused."""
    files = []
    for name in sorted(modules):
        file = getattr(sys.modules[name], "__dict__", {}).get("__file__")  # some modules make what they are asked for
        if not isinstance(file, str):
            continue
        if not file.startswith(tuple(f"{directory}/" for directory in packages)):
            raise Refused("cannot be preloaded", on=name, why=f"{file} is not among the packages of the environment", hint=_THEIRS)
        files.append(file)
    return files


def _is_standard(name: str) -> bool:
    return name == "__main__" or name.startswith("_sysconfigdata_") or name.partition(".")[0] in sys.stdlib_module_names
