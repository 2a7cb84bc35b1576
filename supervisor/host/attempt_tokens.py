"""Tokens of attempts: by its token the gateway and the agents' socket know who asks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from supervisor.kernel.names import attempt_name

# Tokens
# ------
# Attempt tokens: who speaks, at `agents.sock` and at the gateway. Derived from one secret, stored nowhere, and dead with the attempt.
#
#     nct_<task:epoch in base64url>_<40 hex digits of HMAC-SHA256>
#
# The name is in the token so that whoever checks it needs no table; whether the attempt still lives is the ledger's to say.


PREFIX = "nct_"
_DIGITS = 40
_MAX = 512
"""Characters of the longest text that is looked at: a task's id has at most 48."""


def derive(secret: bytes, task: str, epoch: int) -> str:
    """The token of one attempt: letters, digits, `-` and `_`."""
    name = attempt_name(task, epoch)
    return f"{PREFIX}{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}_{_sign(secret, 'attempt ' + name)}"


def check(secret: bytes, token: str) -> tuple[str, int] | None:
    """The task and epoch that a token is for; None when it is not one of ours. The comparison takes the same time for any wrong one."""
    if not token.startswith(PREFIX) or len(token) > _MAX or not token.isascii():
        return None
    text, _, signature = token.removeprefix(PREFIX).rpartition("_")
    try:
        name = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    task, _, epoch = name.rpartition(":")
    if not hmac.compare_digest(signature, _sign(secret, "attempt " + name)) or not epoch.isdigit():
        return None
    return task, int(epoch)


def admin(secret: bytes) -> str:
    """What opens the gateway's own pages (status, metrics, stop). No agent can derive it: agents have no way to the secret."""
    return f"nca_{_sign(secret, 'admin')}"


def is_admin(secret: bytes, token: str) -> bool:
    """Whether it is the admin token; takes the same time for any wrong one."""
    return hmac.compare_digest(token.encode("utf-8", "replace"), admin(secret).encode())


def _sign(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:_DIGITS]
