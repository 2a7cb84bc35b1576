"""The worker of a map: it asks the supervisor for a shard of items, works on them, writes down what came of each, and asks again.

worker      the loop: one shard after another, the beats between, the look at the worktree after each
asking      the requests, repeated until a supervisor answers
executors   what is done with an item: the interface, and which one a map asks for
command     a command for each item
call        a Python function for each item, in a process of its own for each shard
leftovers   the end of what an item started and left behind
worktree    whether a shard left the worktree as it was
"""
