"""The tool for commands among those that a request offers, in any of the APIs' shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

SHELLS = ("bash", "run_shell_command", "exec_command", "shell", "exec", "shell_command", "run_command", "execute_command", "terminal")
"""Lower case, the likelier first."""
_FILLED = {"string": "Run it", "boolean": False, "integer": 60_000, "number": 60_000, "array": []}


def shell_call(body: Mapping[str, Any], command: str) -> tuple[str, Mapping[str, Any] | str] | None:
    """The name and the input of the call that runs `command`; None when the request offers no tool for that. Raises nothing."""
    offered = {name.lower(): (name, schema) for name, schema in _tools(body)}
    for shell in SHELLS:
        if shell in offered:
            name, schema = offered[shell]
            return name, _script(command) if schema is None else _input(schema, command)
    return None


def _tools(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """(name, JSON schema of its input; None: it takes a text) of each tool."""
    items = body.get("input")
    added = [item for item in items if isinstance(item, dict) and "tools" in item] if isinstance(items, list) else []
    for tool in [*_flat(body), *(one for item in added for one in _flat(item))]:
        if isinstance(name := tool.get("name"), str):
            schema = tool.get("input_schema") or tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            yield name, None if tool.get("type") == "custom" else schema


def _flat(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tools that it lists, without what they are wrapped in: Gemini's declarations, Chat's functions, namespaces of Responses."""
    listed = holder.get("tools")
    for tool in listed if isinstance(listed, list) else []:
        if "tools" in tool:
            yield from _flat(tool)
        else:
            yield from tool.get("functionDeclarations") or tool.get("function_declarations") or [tool.get("function") or tool]


def _input(schema: Mapping[str, Any], command: str) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    key = next((name for name in ("command", "cmd") if name in properties), "command")
    words = str((properties.get(key) or {}).get("type", "string")).lower() == "array"
    filled = {name: _FILLED.get(str((properties.get(name) or {}).get("type")).lower(), "Run it") for name in schema.get("required") or ()}
    return {**filled, key: ["bash", "-c", command] if words else command}


def _script(command: str) -> str:
    """Codex's newest models run all tools from one script in JavaScript."""
    return f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}))"
