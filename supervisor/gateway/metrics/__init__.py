"""`/metrics`: the crew and its models for Prometheus.

looks    reads what is new in the ledger and the account, writes down the counters, and only then shows them
gauges   what is so now
page     both as text, in Prometheus' format
metrics  the parts together, and the token that opens the page
"""
