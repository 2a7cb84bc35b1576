"""The built-in agent: a small coding agent on the anthropic SDK, run as `python -I -m nightcrew.plugins.builtin` in its worktree.

settings.py      what it is told, by its environment
conversation.py  what it sends: the prompt and tools, the messages, budgets and models (pure)
api.py           one request and its stream; which failures are waited out
tools.py         bash, read, write, edit, grep, glob, memory
agent.py         one run: the loop of requests and tool calls, signals, the conversation with a person
preload.py       what a fork of a warm process finds done

`agents/printing.py` prints its JSON lines and what a person reads in the pane. Its standard output is a stream of JSON lines in the
shape of Claude Code's `stream-json`; docs/builtin.md describes it.
"""
