"""Packs as a stranger may make them, byte by byte; and an agent's own repository, of which packs are sent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMIT, TREE, BLOB = 1, 2, 3
REF_DELTA = 7
KINDS = {COMMIT: "commit", TREE: "tree", BLOB: "blob"}


@dataclass(frozen=True)
class Thing:
    """One object of a pack. `size` is what it claims; `packed` its bytes on the wire."""

    kind: int
    data: bytes = b""
    base: bytes = b""
    """Of a delta: the object id of its base."""
    size: int = -1
    packed: bytes = b""

    @property
    def oid(self) -> str:
        return hashlib.sha1(f"{KINDS[self.kind]} {len(self.data)}\0".encode() + self.data, usedforsecurity=False).hexdigest()

    def wire(self) -> bytes:
        head = _number(self.kind, self.size if self.size >= 0 else len(self.data))
        return head + self.base + (self.packed or zlib.compress(self.data))


def _number(kind: int, size: int) -> bytes:
    out = [kind << 4 | size & 15]
    size >>= 4
    while size:
        out[-1] |= 128
        out.append(size & 127)
        size >>= 7
    return bytes(out)


def varint(size: int) -> bytes:
    out = [size & 127]
    while size := size >> 7:
        out[-1] |= 128
        out.append(size & 127)
    return bytes(out)


def pack_of(things: Sequence[Thing], count: int = -1) -> bytes:
    body = b"PACK" + (2).to_bytes(4, "big") + (count if count >= 0 else len(things)).to_bytes(4, "big")
    body += b"".join(thing.wire() for thing in things)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def blob(data: bytes) -> Thing:
    return Thing(BLOB, data)


def tree(*entries: tuple[str, str, Thing]) -> Thing:
    """Of (mode, name, object), in the order given."""
    return Thing(TREE, b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(thing.oid) for mode, name, thing in entries))


def commit(top: Thing | str, *parents: str, who: str = "A <a@b> 1 +0000", text: bytes = b"x\n", extra: bytes = b"") -> Thing:
    lines = [f"tree {top if isinstance(top, str) else top.oid}", *(f"parent {parent}" for parent in parents), f"author {who}"]
    lines.append(f"committer {who}")
    return Thing(COMMIT, "".join(f"{line}\n" for line in lines).encode() + extra + b"\n" + text)


@contextlib.contextmanager
def sent(data: bytes) -> Iterator[int]:
    """A descriptor that yields `data`. Of a file: what waits is tested with pipes."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        yield file.fileno()


def packed(where: Path, *revs: str) -> bytes:
    """What git itself sends for `revs` (`^base` excludes): a thin pack."""
    return subprocess.run(
        ["git", "pack-objects", "--revs", "--thin", "--stdout", "-q"],
        cwd=where,
        input="\n".join(revs).encode() + b"\n",
        capture_output=True,
        check=True,
    ).stdout
