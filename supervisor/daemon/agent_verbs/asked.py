"""What a verb of `agents.sock` is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.daemon.loop import Loop


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a living attempt. `args` is the agent's own text: nothing of it is to be believed."""

    loop: Loop
    task: str
    epoch: int
    args: dict[str, Any]
