"""The gateway's decisions: who may send now, what is charged, when the breaker opens. Pure: no clock, no randomness, no I/O.

types       tokens, usage, agents, lanes and pools, and what is shown of them
settings    upstreams, limits, routes, quotas and the policy, as the user's file gives them
events      what the proxy reports
commands    what it is told to do
traffic     Traffic.handle(event, now) -> commands: one brain for all lanes
"""
