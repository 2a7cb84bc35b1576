"""The gateway: one loopback process through which all model traffic of the crew goes.

__main__    the process: hardened, locked; lifecycle: its lock, its record, its settings; keys: the providers' keys, and the log
proxy       gateway: everything put together; front: what a request must pass; forward: its life; upstreams: the providers; batches
wire        the languages of the providers, pure
admission   who is served when, pure
account     what every request took
replay      recordings, and the answers to a run again; pages: how other programs ask
"""
