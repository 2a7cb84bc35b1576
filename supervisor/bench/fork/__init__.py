"""`nightcrew bench fork`: what a warm start saves, piece by piece, beside what it replaces.

`environment` times the making of an environment in process; everything else goes through real supervisors (`bench/supervised_run.py`), in
directories of their own. `fixtures` is what they work on, `measure` the order of it all, `report` the aims and the table.
"""
