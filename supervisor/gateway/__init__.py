"""The gateway: one loopback process through which all model traffic of the crew goes.

__main__         the process: hardened, locked; running: from ready to gone; gateway: everything put together
request_handler  what a request must pass: browser_guard, identity and roster, routing; then forward, by way of admission where it waits
proxied_request  one request; credentials: what is sent of it; upstreams: connections to the providers; wire: their languages, pure
account          what every request took; recording and replay; prices; metrics; status and status_routes show it
log              the one log, cleaned by redact; keys: where the providers' keys come from; settings: read by a child
sim              a simulated provider; status_client: how other programs ask
"""
