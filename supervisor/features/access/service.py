"""Access tokens are made and revoked. Their secrets do not come here: who makes one keeps it, and hands over its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisor.features.access import rules as access_rules
from supervisor.features.access.rows import from_shape
from supervisor.host.failpoint import failpoint
from supervisor.kernel.errors import UsageError

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`op`, and by `op`:

    `create`: `token`, the shape of one, and `places`, of each of its repositories `project root common_dir`.
    `revoke`: `tokens`, ids; returns those that held, `revoked`. `used`: `tokens`, which were used just now.
    Raises UsageError, NotFound, Refused.
    """
    held = loop.ledger.access
    match args.get("op"):
        case "create":
            token = _read(args["token"])
            for place in args["places"]:
                loop.ledger.know_project(str(place["project"]), str(place["root"]), str(place["common_dir"]))
            held.create(token)
            failpoint("token.created")
            return {"id": token.id}
        case "revoke":
            return {"revoked": [token for token in map(str, args["tokens"]) if held.revoke(token)]}
        case "used":
            held.used([str(token) for token in args["tokens"]])
            return {}
    raise UsageError("not a request", on=str(args.get("op")))


def _read(shape: dict[str, Any]) -> access_rules.Token:
    try:
        token = from_shape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError("not a token", why=f"{type(error).__name__}: {error}") from None
    access_rules.check(token)
    return token
