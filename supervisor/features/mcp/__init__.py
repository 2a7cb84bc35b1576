"""`nightcrew mcp`: the crew as tools of the Model Context Protocol, over stdio, by the official SDK.

`person` serves who sits at this machine, by the same handlers and read models as the verbs; `agent` serves an agent that may add tasks,
over `agents.sock` with its attempt's token, and reaches what that may. The SDK takes most of a second to import: only they import it.
"""
