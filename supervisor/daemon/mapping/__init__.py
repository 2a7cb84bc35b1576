"""`nightcrew map`: a workload over many workers.

book        map.db, the file of one map: its items, their results, the leases; and a workload on its way into it
open_map    one map whose workers live: a board (`core.mapping`) and its file, always changed together
desk        all of them, on one thread beside the loop's
shards      what a worker wrote of a shard into its own directory
output      the results in the order of the workload, the summary, and what failed
"""
