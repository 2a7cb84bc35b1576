"""What an analyst is asked to do, from its environment.

ANALYST           the perspective: security, complexity, docstrings, tests or structure
ANALYST_SHARD     which part of the files, `2/3`; default `1/1`
ANALYST_TIMEOUT   seconds that each command it runs may take; default 300
ANALYST_EXCLUDE   patterns of files to leave out, one a line: see `Excluded`
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.core.analysis.types import Perspective, Shard
from supervisor.core.errors import UsageError

DEFAULT_TIMEOUT_S = 300.0


class Excluded:
    """Whether a file is left out.

    A pattern is a shell pattern for the path from the top of the repository. `*` and `?` match a `/` as well, and a pattern that
    matches a directory takes everything below it: `vendor`, `*/migrations`, `docs/*.py`.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._forms = [
            re.compile(fnmatch.translate(stem)) for pattern in patterns if (stem := pattern.strip().removeprefix("./").rstrip("/"))
        ]

    def __call__(self, path: str) -> bool:
        if not self._forms:
            return False
        steps = path.split("/")
        places = ["/".join(steps[:depth]) for depth in range(1, len(steps) + 1)]
        return any(form.match(place) for form in self._forms for place in places)


@dataclass(frozen=True, slots=True)
class Parameters:
    """One analyst's job."""

    perspective: Perspective
    shard: Shard
    timeout_s: float
    excluded: Excluded


def read(environ: Mapping[str, str]) -> Parameters:
    """Raises UsageError, which names the variable."""
    return Parameters(
        perspective=_perspective(environ.get("ANALYST", "")),
        shard=_shard(environ.get("ANALYST_SHARD") or "1/1"),
        timeout_s=_timeout(environ.get("ANALYST_TIMEOUT") or str(DEFAULT_TIMEOUT_S)),
        excluded=Excluded(environ.get("ANALYST_EXCLUDE", "").split("\n")),
    )


def _perspective(text: str) -> Perspective:
    try:
        return Perspective(text)
    except ValueError:
        raise _off("ANALYST", text, f"it is one of {', '.join(Perspective)}") from None


def _shard(text: str) -> Shard:
    found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if not found or int(found[1]) > int(found[2]):
        raise _off("ANALYST_SHARD", text, "it is a part and a number of parts, such as 2/3")
    return Shard(int(found[1]), int(found[2]))


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise _off("ANALYST_TIMEOUT", text, "it is a number of seconds above 0")
    return seconds


def _off(name: str, text: str, why: str) -> UsageError:
    return UsageError(f"{name} is off", on=repr(text[:80]), why=why)
