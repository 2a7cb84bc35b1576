"""`[notify]` of the user's file: where messages go, which, and when. A repository's own file cannot say it: an address is a secret."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, field_validator

from supervisor.config.moments import WindowOfDay
from supervisor.config.reading import Strict
from supervisor.core.notify import HERE, Kind, Receiver, Terms
from supervisor.core.window import Window

_TERMS = Terms()
_ENV = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"file:[^\x00]+")
_ADDRESS = re.compile(r"[a-z0-9]+://\S+", re.IGNORECASE)
What = Literal["needs_person", "failed", "breaker_open", "cap_near", "night_done"]

Channel = Literal["bell", "tmux", "desktop"]


class NotifyModel(Strict):
    """`[notify]`."""

    here: list[Channel] = Field(default_factory=lambda: list[Channel](("bell", "tmux")))
    here_on: list[What] | None = None
    urls: Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=20)] = Field(default_factory=list)
    on: list[What] | None = None
    urgent: list[What] | None = None
    quiet_hours: WindowOfDay | None = None
    text: bool = _TERMS.text

    @field_validator("urls")
    @classmethod
    def _urls(cls, value: list[str]) -> list[str]:
        for number, url in enumerate(value):
            if not any(form.fullmatch(url) for form in (_ENV, _FILE, _ADDRESS)) or url.lower().startswith(("env://", "file://")):
                raise ValueError(f'number {number + 1} is none of "env:NAME", "file:PATH" and an address of apprise such as "ntfy://TOPIC"')
        if len(set(value)) < len(value):
            raise ValueError("an address stands there twice")
        return value

    def terms(self, quiet: Window | None = None) -> Terms:
        """As the core knows them. `quiet`: the hours that hold where none are set here."""
        return Terms(
            receivers=tuple(_receiver(number, url) for number, url in enumerate(self.urls)),
            on=_TERMS.on if self.on is None else frozenset(map(Kind, self.on)),
            urgent=_TERMS.urgent if self.urgent is None else frozenset(map(Kind, self.urgent)),
            quiet=self.quiet_hours or quiet,
            text=self.text,
        )

    def terms_here(self, quiet: Window | None = None) -> Terms:
        """The same of what is told on this machine."""
        on = self.on if self.here_on is None else self.here_on
        return replace(
            self.terms(quiet),
            receivers=tuple(Receiver(name, name) for name in dict.fromkeys(self.here)),
            on=_TERMS.on if on is None else frozenset(map(Kind, on)),
            pace=HERE,
        )


def _receiver(number: int, url: str) -> Receiver:
    named = _ENV.fullmatch(url) or _FILE.fullmatch(url)
    return Receiver(url if named else f"urls[{number}]", url)
