"""`nightcrew bench map`: a large workload over many workers, beside a plain pool of processes.

fixtures    the repository, and the Python module that both sides call
pool        the other side: `multiprocessing.Pool`, a program of its own
prompt      one-shot prompts against a limit of tokens
measure     the figures
"""
