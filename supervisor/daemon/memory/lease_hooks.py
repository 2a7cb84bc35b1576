"""What an agent's command line is told before it writes a file, by the hook that it calls then.

Claude Code and Codex read the same words on the hook's stdout (`hookSpecificOutput`): a decision `deny` with its reason, which the model
is shown, or `additionalContext`, which it is shown beside the tool's result. Codex writes files by `apply_patch`, whose patch names them.
"""

from __future__ import annotations

import re
from typing import Any

from supervisor.daemon.loop import Loop
from supervisor.daemon.memory.lease_verbs import PATH_MAX, asker, said_of
from supervisor.daemon.memory.leases import LeaseDesk, Said
from supervisor.host.paths import Home

EVENT = "PreToolUse"
PATHS_MAX = 200
"""Files of one patch that are looked at."""
_FILE = {"Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_PATCHES = frozenset({"apply_patch"})
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.MULTILINE)


def answer(loop: Loop, home: Home, desk: LeaseDesk, key: tuple[str, int], name: str, event: dict[str, Any] | None) -> dict[str, Any]:
    """What the hook of a living attempt gets: `print`, the object to print, or nothing."""
    if name != EVENT or not event or not (paths := written(event)):
        return {}
    who, cwd = asker(loop, *key), event.get("cwd")
    said = [said_of(loop, home, desk, who, path, cwd if isinstance(cwd, str) else "")[0] for path in paths]
    if denied := next((one for one in said if one.decision == "deny"), None):
        return _printed({"permissionDecision": "deny", "permissionDecisionReason": denied.why})
    warned = next((one for one in said if one.decision == "warn" and one.is_new), Said())
    return beside(warned.why) if warned.why else {}


def beside(text: str) -> dict[str, Any]:
    """Return the answer that shows the model a text beside the tool's result."""
    return _printed({"additionalContext": text})


def written(event: dict[str, Any]) -> list[str]:
    """The files that a tool is about to write, as it names them."""
    tool, given = event.get("tool_name"), event.get("tool_input")
    if not isinstance(given, dict) or not isinstance(tool, str):
        return []
    if tool in _PATCHES:
        patch = next((text for text in (given.get("command"), given.get("input"), given.get("patch")) if isinstance(text, str)), "")
        found: list[Any] = [match[1] for match in _PATCHED.finditer(patch)][:PATHS_MAX]
    else:
        found = [given.get(_FILE.get(tool, ""))]
    return [path for path in found if isinstance(path, str) and 0 < len(path) <= PATH_MAX]


def _printed(more: dict[str, str]) -> dict[str, Any]:
    return {"print": {"hookSpecificOutput": {"hookEventName": EVENT, **more}}}
