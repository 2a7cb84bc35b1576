"""The built-in agent: a small coding agent on the anthropic SDK, run as
`python -I -m nightcrew.plugins.builtin` in its worktree.

settings.py      what it is told, from its environment
prompt.py        the system prompt and the tools, the same bytes in every run; what differs goes into the first message
models.py        the default model; context sizes and prices
conversation.py  the messages, the cache's breakpoints, what is shortened when they grow (pure)
budget.py        when a turn is to be the last (pure)
api.py           one request and its stream; which failures are waited out
tools/           bash, read, write, edit, grep, glob
records.py       the JSON lines on standard output, and the same in the transcript
pane.py          what a person reads, on standard error
terminal.py      asking the person who pressed Ctrl-C
agent.py         the loop of requests and tool calls
run.py           one run: signals, the conversation with a person, the last line

Its standard output is a stream of JSON lines in the shape of Claude Code's `stream-json`; docs/builtin.md describes it.
"""
