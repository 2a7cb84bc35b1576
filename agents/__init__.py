"""One agent: how to run it and how to read it."""
