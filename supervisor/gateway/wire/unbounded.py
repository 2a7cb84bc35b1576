"""Input that a request's body only names: its size is not that of the body, so nothing bounds what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_HINTS = re.compile(
    rb'"(?:url|image_url|file_id|file_url|file_data|fileUri|file_uri|item_reference|mcp_servers|application/pdf)"|"(?:mcp|file_search|code_)'
)
"""What stands in every body that names such input; most have none of it, and are not looked through."""
_SENT = ("messages", "system", "input", "contents", "systemInstruction")
_NAMES = ("file_id", "file_url", "file_data", "fileUri", "file_uri")
_TOOLS = ("mcp", "file_search", "code_execution", "code_interpreter")
"""Tools that the provider runs and that read what it keeps."""
_OTHERS = {"tool_use": "input", "server_tool_use": "input", "mcp_tool_use": "input"}
"""Parts that hold what a model wrote for a tool: any JSON."""


def names_input(body: bytes) -> bool:
    """Whether a request, a JSON object, refers to a file, an address, a PDF or a tool whose text the provider adds. Costs a search through
    the body, and of a request with such a word in it that it is parsed: for requests that a cap holds for.

    A PDF counts although it is sent whole: a page of it is thousands of tokens in a few bytes. Searches in the web are not among it:
    agents offer them in every request, and docs/gateway.md says what that means.
    """
    if _HINTS.search(body) is None:
        return False
    values = json.loads(body)
    if values.get("mcp_servers"):
        return True
    tools = values.get("tools")
    named = [str(tool.get("type", "")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return any(name.startswith(_TOOLS) for name in named) or any(map(_is_named, _parts([values.get(name) for name in _SENT])))


def _parts(top: list[Any]) -> Iterator[dict[str, Any]]:
    """Every object below, but for what a model wrote."""
    rest = top
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, dict):
            yield value
            without = _OTHERS.get(str(value.get("type")))
            rest.extend(inner for name, inner in value.items() if name != without and isinstance(inner, dict | list))


def _is_named(part: dict[str, Any]) -> bool:
    image = part.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    kind = part.get("media_type", part.get("mimeType", part.get("mime_type")))
    return (
        any(isinstance(part.get(name), str) for name in _NAMES)
        or (isinstance(address, str) and not address.startswith("data:"))
        or kind == "application/pdf"
        or part.get("type") in ("url", "item_reference")
        or part.keys() == {"id"}
    )
