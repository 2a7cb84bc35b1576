"""What a request about the memory, mail or leases says. An agent's request is its own text: nothing of it is to be believed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

from supervisor.kernel.errors import UsageError

E = TypeVar("E", bound=StrEnum)


class Args(dict[str, Any]):
    """By name. Its methods raise UsageError for what is not as they say."""

    def text(self, name: str, most: int, *, exact: bool = False) -> str:
        """A text of at most `most` bytes that must be given: without space around it and fit for a file, or with `exact` as it is."""
        given = self.get(name)
        if not isinstance(given, str) or not given.strip():
            raise UsageError("not a request", on=name, why="it must be given, as text")
        plain = given.encode("utf-8", "backslashreplace")
        if len(plain) > most:
            raise UsageError(f"the {name} is too long", why=f"{len(plain)} bytes, at most {most}", hint="put it into a file and name that")
        return given if exact else plain.decode().strip()

    def optional(self, name: str, most: int) -> str | None:
        """A text of at most `most` characters, which may be empty; None when it is not given."""
        given = self.get(name)
        if given is not None and (not isinstance(given, str) or len(given) > most):
            raise UsageError("not a request", on=name, why=f"text of at most {most} characters")
        return given

    def number(self, name: str, default: float, most: float, least: float = 0.0) -> float:
        """A number from `least` to `most`."""
        given = self.get(name, default)
        if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
            raise UsageError("not a request", on=name, why=f"a number from {least:g} to {most:.0f}")
        return given

    def texts(self, name: str, most: int, each: int) -> list[str]:
        """At most `most` texts of at most `each` characters; none when they are not given."""
        given = self.get(name) or []
        if not isinstance(given, list) or len(given) > most or not all(isinstance(one, str) and 0 < len(one) <= each for one in given):
            raise UsageError("not a request", on=name, why=f"a list of at most {most} texts of at most {each} characters")
        return given

    def one_of(self, name: str, default: E) -> E:
        """A word of an enumeration."""
        given, choices = self.get(name, default), type(default)
        if given not in tuple(choices):
            raise UsageError("not a request", on=name, why=f"it is one of {', '.join(choices)}")
        return choices(given)


def find(name: object, known: Iterable[str]) -> str:
    """The operation that a request names."""
    if str(name) not in (names := tuple(known)):
        raise UsageError("not a request", on="op", why=f"it is one of {', '.join(names)}")
    return str(name)
