"""What Prometheus is told of the crew: the names (catalog), the counters (counts), and how rows become counters (folding).

Pure. `supervisor/gateway/metrics` reads the rows and serves the page; docs/observability.md explains each name.
"""
