"""Measure what the gateway costs, on real sockets and with a real account.

load       clients: each connection sends its next request when it has the whole answer
servers    the provider that answers every request with the same stream, and the proxy that only passes requests on
measure    LiteLLM's proxy, the order of the measurements, and the report
"""
