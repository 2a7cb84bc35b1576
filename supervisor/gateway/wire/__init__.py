"""The languages of the providers: bytes and headers in, facts out. Pure: no I/O, no clock.

requests  addresses that are passed on, and a request's body: what it asks for, and the ways in which it is ever changed
answers   an answer read beside the stream: its events, what the provider says was used; batches and their results
headers   rate limits, refusals, headers that carry keys, words that change a price; our own errors; what no agent may see
"""

from supervisor.gateway.wire.answers import Answer, BadEncoding, BatchAsked, BatchResult, Decoder, decoder, read_batch, read_result
from supervisor.gateway.wire.headers import (
    CLIENT_AUTH_HEADERS,
    HOP_BY_HOP,
    KeyFilter,
    auth_headers,
    error,
    failure,
    observed,
    passable,
    reason,
    refusal,
)
from supervisor.gateway.wire.requests import Asked, BadRequest, Endpoint, Recognised, read, recognise, sent_body, target, upgrade_refused

__all__ = [
    "CLIENT_AUTH_HEADERS",
    "HOP_BY_HOP",
    "Answer",
    "Asked",
    "BadEncoding",
    "BadRequest",
    "BatchAsked",
    "BatchResult",
    "Decoder",
    "Endpoint",
    "KeyFilter",
    "Recognised",
    "auth_headers",
    "decoder",
    "error",
    "failure",
    "observed",
    "passable",
    "read",
    "read_batch",
    "read_result",
    "reason",
    "recognise",
    "refusal",
    "sent_body",
    "target",
    "upgrade_refused",
]
