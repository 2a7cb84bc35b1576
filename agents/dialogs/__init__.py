"""Dialogs of command-line agents, as data: one TOML file a CLI, one table a dialog, named by its label.

lines    how some of its lines begin, in their order, without a cursor in front; all must stand at the end of the screen
"""
