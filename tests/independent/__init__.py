"""Attacks by somebody who read the documentation and not the code."""
