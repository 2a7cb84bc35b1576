"""The layers of an environment's files: the frozen template below, the attempt's own layer above. Kept as text in the ledger."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from supervisor.host import files
from supervisor.host.foreign import open_plain, remove_tree

_RECORD = "layers.json"
_RECORD_MAX = 2**16
_REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Layers:
    """Absolute paths. `lower` is the template's tree; `upper` and `work` are "" where the files are the worktree's own."""

    backend: str
    lower: str
    upper: str = ""
    work: str = ""

    @property
    def template(self) -> Path:
        """Where the template lies."""
        return Path(self.lower).parent

    def options(self, *, user: bool) -> str:
        """The data of mount(2) for a writable overlay. `user`: for a mount in a user namespace, where renaming a directory of the lower
        layer answers EXDEV, as it does between file systems; without it such a rename works."""
        own = "userxattr" if user else "redirect_dir=on,metacopy=off"
        return f"lowerdir={_escaped(self.lower)},upperdir={_escaped(self.upper)},workdir={_escaped(self.work)},index=off,{own}"

    def view_options(self) -> str:
        """The data of mount(2) for a read-only view of both layers, in a user namespace: it never writes, so it may stand beside a live
        mount of the same layers."""
        return f"lowerdir={_escaped(self.upper)}:{_escaped(self.lower)},index=off,userxattr"


def beside(path: Path) -> Path:
    """The directory of ours that belongs to the environment at `path`: its layers, and the record of them."""
    return path.with_name(f".{path.name}")


def record(path: Path, layers: Layers) -> None:
    """Make `beside(path)` (0700) and write the record. Raises OSError, or as `files.atomic_write`."""
    folder = beside(path)
    folder.mkdir(mode=0o700, exist_ok=True)
    files.atomic_write(folder / _RECORD, json.dumps({"schema": 1, **asdict(layers)}).encode(), durable=False)


def recorded(path: Path) -> Layers | None:
    """The layers of the environment at `path`; None when it has none. Raises OSError or ValueError when the record is damaged."""
    file = beside(path) / _RECORD
    if not file.exists():
        return None
    with open_plain(file) as data:
        shape = json.loads(data.read(_RECORD_MAX))
    return Layers(*(str(shape[name]) for name in ("backend", "lower", "upper", "work")))


def mark_removed(path: Path) -> None:
    """Note that nothing in `beside(path)`, if there is one, is to be kept once git's record of the worktree is gone. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(beside(path) / _REMOVED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def is_removed(path: Path) -> bool:
    """Whether that was noted: a removal was cut off where the directory is still there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return (names := os.listdir(beside(path))) == [] or _REMOVED in names  # noqa: PTH208 - a few names
    return False


def remove_beside(path: Path) -> None:
    """Remove `beside(path)`, the note that says so last. Raises OSError."""
    remove_tree(beside(path), keep=(_REMOVED,))
    remove_tree(beside(path))


def _escaped(path: str) -> str:
    """overlayfs splits its options at commas, and the lower directories at colons."""
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
