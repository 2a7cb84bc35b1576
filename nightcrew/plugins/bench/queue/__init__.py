"""Measure how fast and how safe the queue of tasks is.

fake_doors   the supervisor whose agents are entries in a table
measure      accepting, starting, attempts a second, the cost of a decision; tasks lost over kills; what a person feels of busy agents
"""
