"""The command line: parse, call, print; nothing else. Only click and the standard library at import time."""
