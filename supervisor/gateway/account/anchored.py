"""The rows of the account that the audit log proves: one for each model call."""

from __future__ import annotations

from supervisor.gateway.account.rows import CRASHED
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.gateway.account.writer import RETRIED_S
from supervisor.ledger.anchored import Followed

_SETTLED_S = 60.0
"""A row that was settled at the last moment is written by then."""

CALLS = Followed(
    "account",
    ACCOUNT,
    "request",
    "id",
    # Every column: none changes once the request is over, but those that `final` waits for.
    "at, agent, epoch, class, model, asked, api, model_class, long_context, account, upstream, attempt_no, session, body_key, queued_ms, "
    "bound_input, bound_output, bound_cache_read, bound_cache_write, bound_usd, "
    "expected_input, expected_output, expected_cache_read, expected_cache_write, seen_input, seen_output, seen_cache_read, "
    "seen_cache_write, seen_cache_write_1h, end, status, input, output, cache_read, cache_write, cache_write_1h, "
    "estimated, cost_usd, counted_usd, "
    "first_byte_ms, total_ms, retries, breaker, flags, trace, "
    "input_sha256, output_sha256",
    # What a request took that was cut by a crash may still be told by the next answer to the same body.
    f"end IS NOT NULL AND (end <> '{CRASHED}' OR flags <> '' OR at < :now - {RETRIED_S + _SETTLED_S})",
    f"at + CASE end WHEN '{CRASHED}' THEN {RETRIED_S + _SETTLED_S} ELSE coalesce(total_ms, 0) / 1000 END",
)
