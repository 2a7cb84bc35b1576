"""Dialogs of command-line agents, as data: one TOML file a CLI, one table a dialog, named by its label.

lines    how some of its lines begin, in their order, without a cursor in front; all must stand at the end of the screen
end      how a part of the last line that is not blank begins, one of them; parts are separated by a dot in the middle; left out: any does
allow    keys that say yes, as tmux calls them; deny: that say no. Without them it is a person who answers, at the pane
"""
