"""Carrying out a sandbox policy (`supervisor.sandbox.policy`): `executors` is the way in, `probing` says what works here.

    outer       waits outside, where its pid is the agent's for everybody else; nothing of the sandbox outlives it
      init      pid 1 inside: builds the view, gives up every right, collects orphans; its end is everybody's end inside
        agent   the only one that returns into the caller's code
      loopback_proxy outside, only in tier 2: passes connections on that the agent makes to 127.0.0.1

Both executors make this shape. Outer and init are deaf to TERM, INT, HUP and QUIT: whoever stops an agent signals the agent, which then has
its grace, and kills with KILL. An agent that signal n ended becomes exit status 128+n.

Nothing is imported here: `main.py` is on the way of every cold start and lives on `os`, `ctypes` and its few siblings.
"""
