"""Requests of the verb `map`."""

from __future__ import annotations

import sys
import time
from typing import Any

from agents.agent_client import client
from supervisor.core.errors import Refused

PAUSES_S = (0.2, 1.0, 5.0)
BEAT_S = 2.0
FOR_GOOD = (2, 4, 6)
"""Exit codes of errors that the same request meets again: the attempt has ended, or the map is gone."""


def until_answered(args: dict[str, Any]) -> dict[str, Any]:
    """The supervisor's answer. While there is none, or its disk is full, it is asked again. Raises Refused when this attempt is no worker
    of a map any more."""
    said, tries = "", 0
    while True:
        try:
            return client.ask("map", args)
        except client.Failed as error:
            if error.code in FOR_GOOD:
                raise Refused("the supervisor gives no items", why=str(error)) from error
            if str(error) != said:
                said = str(error)
                print(f"waiting: {said}", file=sys.stderr, flush=True)
        time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
        tries += 1


def beat(args: dict[str, Any]) -> int | None:
    """How many items of the shard are still ours; None when nobody answers, who then knows nothing else."""
    try:
        return int(client.ask("map", {"op": "beat", **args}, patience_s=BEAT_S)["keep"])
    except (client.Failed, OSError):
        return None
