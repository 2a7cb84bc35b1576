"""Who sends a request: the attempt token in it, wherever the client puts its key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.core import tokens
from supervisor.core.gateway.types import Agent
from supervisor.gateway.roster import Roster

_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


class Caller(NamedTuple):
    """An agent, and whether its request also carries a login of its client's own, which an upstream with `key = "client"` passes on."""

    agent: Agent
    own_login: bool


@dataclass(frozen=True, slots=True)
class Stranger:
    """The sender is not known. `why` is for the client and for the log; no token is in it."""

    why: str
    ended: bool = False
    """Its attempt has ended."""


async def identify(roster: Roster, headers: Mapping[str, str], in_address: str) -> Caller | Stranger:
    """`headers` has lower-case names; `in_address` is the token that the address carries, or empty. Raises LedgerError.

    Claude Code sends two keys when its environment holds two, so whatever is not ours is passed over; two tokens of ours that differ
    are refused: nobody has both by right.
    """
    keys = list(carried(headers))
    ours = {text for text in (in_address, *keys) if text.startswith(tokens.PREFIX)}
    if len(ours) != 1:
        return Stranger("there are tokens of two attempts in it" if ours else "there is no attempt token in it")
    token = ours.pop()
    agent = await roster.agent(token)
    if agent is None:
        name = roster.name(token)
        return Stranger(f"the attempt of its token has ended ({name})", ended=True) if name else Stranger("its attempt token is wrong")
    return Caller(agent, own_login=any(not text.startswith(tokens.PREFIX) for text in keys))


def carried(headers: Mapping[str, str]) -> Iterator[str]:
    """Each key that the headers carry, without the scheme."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        yield _password(value)
    elif value.strip():
        yield value.strip()
    yield from (text for name in _KEY_HEADERS if (text := headers.get(name, "").strip()))


def _password(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
