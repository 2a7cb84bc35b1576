"""A memory as one file: what goes out comes in, and what nobody exported is refused before anything is written."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from memory import mem_commands as mem
from memory.mem_commands import Archive, Member
from supervisor.kernel.errors import Refused
from supervisor.kernel.path_globs import CORE_MAX, NOTE_MAX

WHOLE = Archive(
    (Member("core.md", "all of you\n", 7.0), Member("semantic/fact.md", "üñí\n", 8.0), Member("episodic/2026-11-23.jsonl", "{}\n", 9.0)),
    {"schema": 1, "files": {"core.md": {"author": "person"}}},
)


def packed(whole: Archive) -> bytes:
    into = io.BytesIO()
    mem.write(whole, into)
    return into.getvalue()


def read(data: bytes) -> Archive:
    return mem.read(io.BytesIO(data), "it")


def tar(*members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], Any] = lambda _: None, **how: Any) -> bytes:
    """A tar of these files, each changed before it is written."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", **how) as made:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            made.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return gzip.compress(into.getvalue())


def refused(data: bytes) -> str:
    with pytest.raises(Refused) as found:
        read(data)
    assert found.value.kept == "the memory as it was"
    return found.value.line()


def test_what_goes_out_comes_in() -> None:
    data = packed(WHOLE)
    assert data == packed(WHOLE), "the same memory is the same file"
    assert read(data) == WHOLE


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE]
)
def test_only_regular_files_are_taken(kind: bytes) -> None:
    def changed(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, "/etc/passwd"

    assert "memory/core.md" in refused(tar(("memory/core.md", b""), change=changed))


@pytest.mark.parametrize(
    "name",
    [
        "memory/../secret", "/etc/passwd", "memory//core.md", "./memory/core.md", "core.md", "memory/semantic/a.sh", "memory/agents/x.md",
        "memory/semantic/.hidden.md", "memory/semantic/\x1b]0;owned\x07.md", "memory/semantic/<script>.md", "memory/semantic/\u202eevil.md",
        "memory/semantic/" + "a" * 200 + ".md", "memory/semantic/sub/a.md",
    ],
)  # fmt: skip
def test_only_paths_of_a_memory_are_taken(name: str) -> None:
    line = refused(tar((name, b"x")))
    assert "no file of a memory is called so" in line and line.isprintable()


@pytest.mark.parametrize(("name", "most"), [("memory/core.md", CORE_MAX), ("memory/semantic/a.md", NOTE_MAX)])
def test_a_file_has_its_size(name: str, most: int) -> None:
    assert read(tar((name, b"x" * most))).members[0].path == name.removeprefix("memory/")
    assert f"at most {most} are taken" in refused(tar((name, b"x" * (most + 1))))


def test_a_file_comes_once_and_is_text() -> None:
    assert "it is there twice" in refused(tar(("memory/core.md", b"a"), ("memory/core.md", b"b")))
    assert "it is not text" in refused(tar(("memory/core.md", b"\xff\xfe")))
    assert "it is not JSON" in refused(tar(("provenance.json", b"{")))


def test_what_unpacks_to_very_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mem, "TOTAL_MAX", 2**20)
    bomb = tar(("memory/core.md", b"x"), format=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 2**21})
    assert len(bomb) < 2**16
    assert "it has more than 1048576 bytes" in refused(bomb)
    monkeypatch.setattr(mem, "FILES_MAX", 2)
    assert "more than 2 files" in refused(tar(*((f"memory/semantic/{number}.md", b"x") for number in range(3))))


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f\x8b", b"\x1f\x8b\x08" + b"\0" * 64, b"x" * 1024, packed(WHOLE)[:200]])
def test_what_is_no_archive_is_said_so(data: bytes) -> None:
    assert refused(data).startswith("not imported it")
