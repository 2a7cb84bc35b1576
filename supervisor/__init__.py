"""nightcrew: a local supervisor for many AI coding agents."""

__version__ = "0.1.0"
