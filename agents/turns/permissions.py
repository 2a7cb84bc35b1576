"""Which requests for permission of an ACP agent are granted: nobody is there to be asked, so the task's list decides. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
"""What the protocol calls the kinds of tools; `other` is also one that says none."""


def kind(call: Mapping[str, Any]) -> str:
    """Of the tool that a call is of."""
    said = call.get("kind")
    return said if isinstance(said, str) and said in KINDS else "other"


def answer(call: Mapping[str, Any], options: Sequence[Mapping[str, Any]], allow: Collection[str]) -> tuple[bool, dict[str, Any]]:
    """Whether the call is granted, and the outcome to answer with. Only this one call is ever granted: an option that grants more is not
    taken. A call that is not granted is refused, or cancelled where the agent offers no refusal."""
    wanted = ("allow_once",) if kind(call) in allow else ("reject_once", "reject_always")
    for sort in wanted:
        for option in options:
            if option.get("kind") == sort:
                return sort == "allow_once", {"outcome": "selected", "optionId": option.get("optionId")}
    return False, {"outcome": "cancelled"}
