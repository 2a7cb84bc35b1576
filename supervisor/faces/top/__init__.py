"""`nightcrew top`: the crew on one screen.

app        keys to acts, and what was read to widgets      crew_list  the groups on the left
page       the lines on the right                          heading    figures above, what was said below
asking     one line, yes or no, a new task                 palette    every verb
help       the keys                                        sgr        text of strangers to what is painted (pure)
doors      what the app is given: reading and acts
"""
