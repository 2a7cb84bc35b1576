"""A directory for foreign objects until they are checked, and how they then get into the object store.

Laid out as git's own (`tmp_objdir`): objects are unpacked into it by a git that has it for its object directory and the store for an
alternate. Nobody else sees them there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from supervisor.host.scratch import locked_directory

_PREFIX = "nightcrew-incoming-"  # not as git's own `tmp_objdir`: a person's `git gc --prune=now` takes whatever begins with tmp_
_KEEP = "nightcrew "
_FANOUT = re.compile(r"[0-9a-f]{2}")
_LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_GIVE_TRIES = 8
_PACK_PARTS = (".keep", ".pack", ".rev", ".idx")  # a reader looks for .idx: it comes last


@contextlib.contextmanager
def quarantine(objects: Path) -> Iterator[Path]:
    """A directory that is locked as long as this process needs it, and gone afterwards; what killed processes of ours left goes first."""
    with locked_directory(objects, _PREFIX) as place:
        _sweep_marks(objects)
        yield place


def _sweep_marks(objects: Path) -> None:
    """Remove what killed processes of ours left on packs."""
    for keep in (objects / "pack").glob("*.keep"):
        with contextlib.suppress(OSError):
            if not (objects / (_keeper(keep) or ".")).exists():
                keep.unlink()


def environment(place: Path, objects: Path) -> Mapping[str, str]:
    """What makes a git write into the quarantine and read the store beside it. Quoted: a colon in the path would part it."""
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(place), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def keep_option(place: Path) -> str:
    """For `index-pack`: no repack of a person's takes the pack away, until `let_go`."""
    return f"--keep={_KEEP}{place.name}"


def _keeper(keep: Path) -> str:
    """The name of the quarantine that a pack is kept for; "" when the mark is not ours."""
    with keep.open("rb") as file:
        text = os.fsdecode(file.read(256)).strip()
    return text.removeprefix(_KEEP) if text.startswith(_KEEP + _PREFIX) else ""


def let_go(place: Path, objects: Path) -> None:
    """Let git repack what came: it has a ref now, or none."""
    for keep in (place / "pack").glob("*.keep"):
        with contextlib.suppress(OSError):
            if _keeper(objects / "pack" / keep.name) == place.name:
                (objects / "pack" / keep.name).unlink()


def migrate(place: Path, objects: Path) -> None:
    """Give every file of the quarantine its name in the store. What is there already stays: the same name is the same object."""
    touched = set()
    for shard in _shards(place):
        for file in _files(shard):
            if _give(file, objects, shard.name):
                touched.add(objects)
            touched.add(objects / shard.name)
    for directory in sorted(touched):
        with contextlib.suppress(FileNotFoundError):  # a person's git packed what it held
            _sync(directory)


def is_migrated(place: Path, objects: Path) -> bool:
    """Whether the store has every file of the quarantine. What was packed since counts as missing."""
    return all((objects / shard.name / file.name).exists() for shard in _shards(place) for file in _files(shard))


def _shards(place: Path) -> list[Path]:
    """Its directories of objects; what a git that failed left beside them is no object."""
    return sorted(shard for shard in place.iterdir() if shard.is_dir() and (shard.name == "pack" or _FANOUT.fullmatch(shard.name)))


def _files(shard: Path) -> list[Path]:
    """In the order in which the store may get them."""
    if _FANOUT.fullmatch(shard.name):
        return [file for file in shard.iterdir() if _LOOSE.fullmatch(file.name)]
    parts = [file for file in shard.iterdir() if file.name.startswith("pack-") and file.suffix in _PACK_PARTS]
    return sorted(parts, key=lambda file: _PACK_PARTS.index(file.suffix))


def _give(file: Path, objects: Path, shard: str) -> bool:
    """Whether the directory was made for it. A person's `git gc` removes one that is empty, even one of a moment ago."""
    if file.suffix in {".idx", ".rev"}:
        _sync(file)  # not part of `core.fsync=committed`, but a pack whose index is empty after a power cut is none
    made, target = False, objects / shard / file.name
    for left in reversed(range(_GIVE_TRIES)):
        made |= _give_directory(objects, shard)
        try:
            _link_or_copy(file, target)
        except FileNotFoundError:
            if left and file.exists():
                continue
            raise
        break
    return made


def _give_directory(objects: Path, name: str) -> bool:
    """Whether it was made; with the mode of the store, which `core.sharedRepository` may have chosen."""
    try:
        (objects / name).mkdir()
    except FileExistsError:
        return False
    with contextlib.suppress(FileNotFoundError):
        (objects / name).chmod(objects.stat().st_mode & 0o7777)
    return True


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        _copy_to(file, target)


def _copy_to(file: Path, target: Path) -> None:
    handle, name = tempfile.mkstemp(prefix="tmp_obj_", dir=target.parent)
    try:
        with file.open("rb") as data, os.fdopen(handle, "wb") as out:
            shutil.copyfileobj(data, out)
            os.fchmod(out.fileno(), file.stat().st_mode & 0o7777)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
