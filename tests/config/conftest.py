"""Hypothesis without its deadline: a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("nightcrew", deadline=None, print_blob=True)
settings.load_profile("nightcrew")
