"""The door to the models: one loopback process through which all model traffic of the crew goes.

main        the process: hardened, locked; running: from ready to gone; gateway: everything put together
request_handler what a request must pass: guard, identity and roster, routing; then forward, by way of admission where it waits
proxied_request one request, and what is sent of it; upstreams: the door to the providers; wire: their languages, pure
account     what every request took; recording and replay; prices; metrics; status and own_pages show it
log         the one sink, cleaned by redact; keys: where the providers' keys come from; settings: read by a child
sim         a simulated provider; pages: how other programs ask
"""
