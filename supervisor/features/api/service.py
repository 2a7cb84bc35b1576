"""Access tokens are made and revoked. Their secrets do not come here: who makes one keeps it, and hands over its digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from supervisor.features.api import rules as api_rules
from supervisor.features.api.rows import Access
from supervisor.features.api.rules import Token
from supervisor.host.failpoint import failpoint
from supervisor.kernel import codec

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


class Place(NamedTuple):
    """A repository that a token reaches: its id, its root and git's directory."""

    project: str
    root: str
    common_dir: str


async def create(loop: Loop, *, token: Token, places: list[Place]) -> dict[str, Any]:
    """Keep a new token. Raises UsageError, Refused."""
    api_rules.check(token)
    for place in places:
        loop.ledger.know_project(*place)
    loop.ledger.of(Access).create(token)
    failpoint("token.created")
    return {"id": token.id}


async def revoke(loop: Loop, *, tokens: list[str]) -> dict[str, Any]:
    """Returns those that held, `revoked`."""
    return {"revoked": [token for token in tokens if loop.ledger.of(Access).revoke(token)]}


async def used(loop: Loop, *, tokens: list[str]) -> dict[str, Any]:
    """Note that they were used just now."""
    loop.ledger.of(Access).used(tokens)
    return {}


OPS: Mapping[str, codec.Handler] = {"create": create, "revoke": revoke, "used": used}
"""The verb `token`."""
