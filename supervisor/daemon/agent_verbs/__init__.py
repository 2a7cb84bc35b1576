"""What agents may ask at `agents.sock`, one verb a file: `async handle(asked) -> value`, which raises our errors.

These verbs are the agents' alone: none of those of `daemon.sock` is among them, even where one has the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.daemon.agent_verbs import quota, whoami
from supervisor.daemon.agent_verbs.asked import Asked

Verb = Callable[[Asked], Coroutine[Any, Any, dict[str, Any]]]

VERBS: Mapping[str, Verb] = {"quota": quota.handle, "whoami": whoami.handle}
