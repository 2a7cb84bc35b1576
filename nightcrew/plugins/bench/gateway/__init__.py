"""What the gateway costs: real sockets, a real account, and a provider and clients that cost as little as they can.

upstream   the provider: a process that answers every request with the same stream
load       the clients: as many connections as asked, each sending the next request when its answer is whole
workspace  a state directory with running attempts, and the gateway's process in it
bare_proxy the floor: a proxy that passes requests on and does nothing else
litellm    LiteLLM's proxy, from an environment of its own
measure    what is run in which order, and the report
learned_limits how limits are learned that nobody told: scenarios before a simulated provider
clients    its clients, which always have a next request
scoring    its figures, from the provider's own account
"""
