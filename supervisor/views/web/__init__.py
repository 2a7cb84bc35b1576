"""`nightcrew web`: the crew on a page of this machine, and what else its server answers.

app        the application: features, static files, and what every request passes     guard     host, origin, method and size (pure)
feature    what a page or an API brings: pages, routes, topics of events              sessions  tokens, the cookie and its key
events     one reader for all browsers: a snapshot, then what changed                 shell     the frame of every page
crew_page, agent_page   the two pages of the crew                                     wire      rows, lines and diffs as JSON (pure)
pages, records, limits  the pages of rows and charts                                  plain     what hides in a stranger's text, as escapes

Each page is a feature in files of its own, named in `supervisor.views.web.serving`. A server decides nothing: it reads by the protocols
that it is given, and acts as the verbs do.
"""
