"""Weigh the work of a request: trivial, simple or complex, by stated signals.

The task's own word decides. Without one the size of the prompt does, then whether the request offers tools, then how long its history is.
The thresholds were chosen for the reasons beside them; how well they part easy from hard requests was not measured.
"""

from __future__ import annotations

from supervisor.gateway.wire.requests import Asked
from supervisor.kernel.spec import RAISED, WORK

SHORT_BYTES = 7_200
"""About 2,000 tokens of 3.6 bytes, where the estimators begin: the prompt leaves half of a slot of 4,096 tokens to the answer."""
LONG_BYTES = 115_200
"""About 32,000 tokens: more than the context that small models are usually served with."""
SHORT_TURNS = 2
"""Messages: a system message and a question, or a question and its repetition with what was wrong."""
LONG_TURNS = 40
"""Messages: twenty calls of tools with their results. An agent that is not done by then has no small task."""


def weigh(asked: Asked, size: int, word: str, *, raised: bool) -> tuple[str, str]:
    """Return the weight of a request of `size` bytes, one of `WORK`, and the reason, for people. `word`: what its task says. `raised`: its
    task failed its gate, so the weight is one stronger."""
    weight, why = (word, "the task says so") if word else _measured(asked, size)
    if raised and weight != WORK[-1]:
        return WORK[WORK.index(weight) + 1], f"{why}; {RAISED}"
    return weight, why


def _measured(asked: Asked, size: int) -> tuple[str, str]:
    if size > LONG_BYTES:
        return "complex", "long prompt"
    if asked.tools:
        return ("complex", "tools and a long history") if asked.turns > LONG_TURNS else ("simple", "tools")
    if size > SHORT_BYTES or asked.turns > SHORT_TURNS:
        return "simple", "no tools"
    return "trivial", "short prompt without tools"
