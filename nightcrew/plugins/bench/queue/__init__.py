"""`nightcrew bench queue`: how fast, how fair and how safe the queue of tasks is, beside the usual one.

engine       accepting, starting, attempts a second, the cost of a decision; fake_doors is the supervisor that it measures
order        bursts, shares, ageing, in virtual time (`virtual`) with the real `decide`
kills        tasks lost over kills, on the real path; redis_queue is the one beside it
crowd        what a person feels of busy agents
measure      what is run in which order, the report and its aims
"""
