"""`[telemetry]` of the user's file: where spans go. A repository's own file cannot say it: what is sent tells of all repositories."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from supervisor.config.reading import Strict
from supervisor.core.telemetry import Terms

_TERMS = Terms()
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00]+")
PATH = "/v1/traces"


class TelemetryModel(Strict):
    """`[telemetry]`."""

    endpoint: Annotated[str, Field(max_length=2000)] = ""
    headers: Annotated[dict[str, Annotated[str, Field(max_length=4000)]], Field(max_length=20)] = Field(default_factory=dict)
    content: bool = _TERMS.content
    sample: Annotated[float, Field(ge=0, le=1)] = _TERMS.sample

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value and not _ENDPOINT.fullmatch(value):
            raise ValueError('give the address of a receiver of OTLP over HTTP, without user and query: "http://127.0.0.1:4318"')
        return value

    @field_validator("headers")
    @classmethod
    def _from_outside(cls, value: dict[str, str]) -> dict[str, str]:
        for name, source in value.items():
            if not _HEADER.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")
            if not _SOURCE.fullmatch(source):
                raise ValueError(f'{name} is neither "env:NAME" nor "file:PATH": a secret does not belong into this file')
        return value

    def terms(self) -> Terms:
        """As the core knows them; an endpoint without a path gets that of the protocol."""
        bare = self.endpoint.count("/") == 2 or (self.endpoint.endswith("/") and self.endpoint.count("/") == 3)
        endpoint = f"{self.endpoint.rstrip('/')}{PATH}" if self.endpoint and bare else self.endpoint
        return Terms(endpoint, self.headers, self.content, self.sample)
