"""The languages of the providers: bytes and headers in, facts out. Pure: no I/O, no clock.

requests  addresses that are passed on, and a request's body: what it asks for, and the ways in which it is ever changed
answers   an answer read beside the stream: its events, what the provider says was used; batches and their results
headers   rate limits, refusals, headers that carry keys, words that change a price; our own errors; what no agent may see
"""
