"""Inference engines on this machine: they are started on first need, watched, adopted and stopped here."""
