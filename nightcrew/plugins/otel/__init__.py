"""The trace of a run as people and programs read it: what it is read from, a waterfall in a terminal, OTLP, and the exporter."""
