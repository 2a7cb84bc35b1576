"""What an analysis is measured on: a repository, a directory or a source distribution, copied so that nothing of the user's is touched."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path

from supervisor.bench.workspace import by_hand, commit_all
from supervisor.core.errors import UsageError


def bring(source: Path, place: Path) -> Path:
    """A repository of one commit at `place` with the files of `source`: a git repository (its HEAD), any other directory, or a `.tar.gz` or
    `.zip` from a package index. Raises UsageError for anything else, ToolFailed when git cannot."""
    if source.is_dir() and (source / ".git").exists():
        by_hand(["git", "clone", "-q", "--no-local", "--depth", "1", source.resolve().as_uri(), str(place)], place.parent)
        return place
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True)
    else:
        _unpack(source, place)
    commit_all(place)
    return place


def _unpack(archive: Path, place: Path) -> None:
    place.mkdir()
    try:
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(place, filter="data")
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(place)  # noqa: S202 - a zip member never leaves the directory: zipfile drops `..` and roots
        else:
            raise UsageError("nothing to measure", on=str(archive), why="it is no directory, .tar.gz or .zip")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UsageError("cannot unpack", on=str(archive), why=str(error)) from error
