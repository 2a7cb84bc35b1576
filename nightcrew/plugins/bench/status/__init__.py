"""`nightcrew bench status`: how soon it is known how an agent is, what watching costs, and what a crew of real agents comes to.

living     a crew that lives in real sessions and runs our hook's client: time until it is known, the supervisor's processor time
claude     the real Claude Code in a pane: texts delivered to it, and what its session file says
builtin    the built-in agent as a fork of a warm process, beside a bare loop on the same SDK; a process of its own
crew       real Claude Code agents that share one provider's limit, with the gateway and without
measure    what is run in which order, the report and its aims
"""
