"""A file's bytes as a syntax tree, whatever the bytes are."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file that could be parsed."""

    file: str
    lines: int
    is_test: bool
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why there is no tree, and in which line (0: no certain one)."""

    why: str
    line: int = 0


def parse(data: bytes) -> ast.Module | Unparsable:
    """Decoded as Python does it (PEP 263: byte order mark, coding cookie, else UTF-8)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes and the like, said while parsing
            return ast.parse(data)
    except SyntaxError as error:
        return Unparsable(error.msg or "invalid syntax", max(0, error.lineno or 0))
    except (RecursionError, MemoryError):  # the parser's words for its own limits, not for the machine's
        return Unparsable("it is nested too deeply")
    except ValueError as error:  # null bytes, before Python 3.11.4
        return Unparsable(str(error))


@contextlib.contextmanager
def without_cycles() -> Iterator[None]:
    """Switch the cycle collector off: trees have no cycles, and looking for some takes a quarter of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def deep(limit: int = 50_000) -> Iterator[None]:
    """Allow visitors to go as deep as a tree can be. Not while parsing: there the same limit guards the stack of the C code."""
    was = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, was))
    try:
        yield
    finally:
        sys.setrecursionlimit(was)
