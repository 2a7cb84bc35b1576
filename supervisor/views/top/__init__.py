"""`nightcrew top`: the crew on one screen.

app        keys to acts, and what was read to widgets      crew_list  the groups on the left
page       the lines on the right                          heading    figures above, what was said below
asking     one line, yes or no, a new task                 palette    every verb
help       the keys                                        sgr        text of strangers, painted

What it is given, reading and acts, is in `supervisor.views.crew`.
"""
