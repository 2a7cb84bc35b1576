"""The languages of the providers: bytes and headers in, facts out. Pure: no I/O, no clock.

asked       what an address names, and what a request asks for
addresses   which addresses are passed on, and to where
batches     a batch of requests, and its results
reading     a request's body, and the two ways in which it is ever changed
sse         a response cut into its events or elements while it passes
usages      what the providers say was used, cleaned and brought to one form
answer      one response, read beside the stream
headers     rate limits, waiting, the headers that carry keys
refusals    why an upstream did not serve
encodings   the Content-Encoding of an answer, undone
tiers       words of a request that change its price
scrub       our key and what no client could read, taken out of an answer
errors      our own answers, in each API's shape
"""

from supervisor.gateway.wire import tiers
from supervisor.gateway.wire.answers import Answer, BadEncoding, BatchAsked, BatchResult, Decoder, decoder, read_batch, read_result
from supervisor.gateway.wire.headers import CLIENT_AUTH_HEADERS, HOP_BY_HOP, auth_headers, error, observed
from supervisor.gateway.wire.masking import KeyFilter, passable, reason
from supervisor.gateway.wire.refusals import failure, refusal
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
    "tiers",
    "upgrade_refused",
]
