"""Where the items of a map come from: files of a commit, lines, objects of a JSONL file, or what a command prints."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from supervisor.core.errors import ToolFailed, UsageError
from supervisor.daemon.mapping.book import Item
from worktrees.git import BULK_S
from worktrees.repository import Repository

ITEMS_MAX = 5_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """A workload."""

    form: str
    """`file`, `line` or `jsonl`."""
    words: dict[str, Any]
    """What was asked for: with what is done to an item it names the map."""
    items: list[Item]


@dataclass(frozen=True, slots=True)
class Blob:
    """A plain file of a commit."""

    name: bytes
    oid: str
    size: int


def tree(repo: Repository, commit: str) -> list[Blob]:
    """The plain files of `commit`, in git's order. Raises ToolFailed."""
    listed = repo.git.run(repo.store, "ls-tree", "-r", "-l", "-z", "--full-tree", commit, deadline_s=BULK_S)
    found = []
    for entry in listed.out.split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        if facts.startswith(b"100"):
            _, _, oid, size = facts.split()
            found.append(Blob(name, oid.decode(), int(size)))
    return found


def of_files(blobs: Iterable[Blob], patterns: Sequence[str]) -> Source:
    """The files that any of `patterns` matches, by the content that the commit has."""
    forms = [re.compile(glob(pattern), re.DOTALL) for pattern in patterns]
    names = ((os.fsdecode(blob.name), blob) for blob in blobs)
    items = [Item(blob.name, blob.oid, blob.size) for name, blob in names if any(form.fullmatch(name) for form in forms)]
    return Source("file", {"form": "file", "files": list(patterns)}, items)


def glob(pattern: str) -> str:
    """A regular expression for a shell pattern: `*` and `?` match no `/`, `**/` any directories, `**` all that is left."""
    text, at = "", 0
    pattern = pattern.removeprefix("./")
    while at < len(pattern):
        if pattern.startswith("**/", at):
            text, at = f"{text}(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            text, at = f"{text}.*", at + 2
        elif (found := re.compile(r"\[(!?)([^\]/]+)\]").match(pattern, at)) is not None:
            inside = found[2].replace("\\", "\\\\").replace("^", "\\^")
            text, at = f"{text}[{'^' if found[1] else ''}{inside}]", found.end()
        else:
            text, at = text + {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at])), at + 1
    return text


def of_lines(path: str) -> Source:
    """The lines of a file that are not empty; `-` is stdin."""
    return Source("line", {"form": "line", "lines": _named(path)}, _lines(_read(path)))


def of_objects(path: str) -> Source:
    """The objects of a JSONL file. Raises UsageError for a line that is none."""
    items = [_object(path, number, line) for number, line in enumerate(_read(path).split(b"\n"), 1) if line.strip()]
    return Source("jsonl", {"form": "jsonl", "jsonl": _named(path)}, items)


def of_command(text: str, where: Path) -> Source:
    """The lines that a shell command prints. Raises ToolFailed when it fails."""
    done = subprocess.run(["/bin/sh", "-c", text], cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ToolFailed("could not read the items from the command", on=text[:200], why=f"exit code {done.returncode}")
    return Source("line", {"form": "line", "command": text}, _lines(done.stdout))


def _lines(data: bytes) -> list[Item]:
    return [Item(line, digest(line), len(line)) for line in data.split(b"\n") if line]


def digest(data: bytes) -> str:
    """The key of a text."""
    return hashlib.sha256(data).hexdigest()[:32]


def _object(path: str, number: int, line: bytes) -> Item:
    try:
        shape = json.loads(line.decode("utf-8-sig"), parse_constant=_no_number)
        data = json.dumps(shape, allow_nan=False).encode()
    except UnicodeDecodeError:
        why = "it is no UTF-8"
    except json.JSONDecodeError as error:
        why = f"it is no JSON: {error.msg}, at character {error.pos + 1}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
    else:
        why = "" if isinstance(shape, dict) else "it is no JSON object"
    if why:
        raise UsageError("cannot read", on=f"{path}:{number}", why=why)
    return Item(data, digest(data), len(data))


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _named(path: str) -> str:
    return path if path == "-" else os.fspath(Path(path).resolve())


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError("cannot read", on=path, why=error.strerror or str(error)) from None


def named_files(words: Iterable[str], blobs: Iterable[Blob], call: str) -> Iterator[tuple[str, str]]:
    """The tracked files that a definition names, each with its content: a word that is a path, and the module of `call`. A change there is
    another map."""
    module = call.partition(":")[0].replace(".", "/")
    asked = {*words, *(name for root in ("", "src/") for name in (f"{root}{module}.py", f"{root}{module}/__init__.py") if module)}
    asked = {os.path.normpath(word) for word in asked if word}
    return ((os.fsdecode(blob.name), blob.oid) for blob in blobs if os.fsdecode(blob.name) in asked)
