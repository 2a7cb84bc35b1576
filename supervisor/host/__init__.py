"""Doors to the operating system, one a file."""
