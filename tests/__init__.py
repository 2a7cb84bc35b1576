"""Tests mirror the rooms; tests/faults breaks things on purpose and then runs the checker."""
