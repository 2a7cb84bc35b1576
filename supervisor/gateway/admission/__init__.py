"""Decide about model traffic: who may send now, what is charged, when the breaker opens. Pure: no clock, no randomness, no I/O.

types    tokens, agents, lanes, pools and settings; events and commands; a request on its way
bucket   what a limit of the provider still allows
breaker  what a refusal means, and when to try again
pool     what is under way with one account, and its limits together
budget   what agents may spend, and what a request is expected to take
queue    who is next
engine_slots  what is under way with an inference engine: its limit is its free slots
traffic  `Traffic.handle(event, now)` gives commands: one brain for all lanes
"""
