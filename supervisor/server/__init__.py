"""The one process that supervises the crew: the loop, its doors wired, recovery, and one handler a verb."""
