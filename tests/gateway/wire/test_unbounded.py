"""Input that a body only names: what such requests look like, and what only looks so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.gateway.wire.requests import names_input


def names(**members: Any) -> bool:
    return names_input(json.dumps(members).encode())


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    "members",
    [
        said({"type": "document", "source": {"type": "url", "url": "https://a.b/c.pdf"}}),
        said({"type": "image", "source": {"type": "file", "file_id": "f"}}),
        said({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}),
        said({"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": "https://a.b"}}]}),
        said({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}),
        said({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}),
        {"messages": [], "mcp_servers": [{"url": "https://a.b"}]},
        {"messages": [], "tools": [{"type": "code_execution_20250825", "name": "x"}]},
        {"input": [{"type": "item_reference", "id": "rs_1"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://a.b"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.b"}]}]},
        {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["v"]}]},
        {"input": "x", "tools": [{"type": "mcp", "server_url": "https://a.b"}]},
        {"contents": [{"parts": [{"fileData": {"fileUri": "https://a.b"}}]}]},
        {"contents": [{"parts": [{"inlineData": {"mimeType": "application/pdf", "data": ""}}]}]},
    ],
    ids=lambda members: json.dumps(members)[:60],
)
def test_it_is_known(members: dict[str, Any]) -> None:
    assert names(**members)


@pytest.mark.parametrize(
    "members",
    [
        said({"type": "text", "text": '{"file_id": "f", "type": "url"}'}),
        said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}),
        said({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
        said({"type": "tool_use", "id": "t", "name": "fetch", "input": {"file_id": "f", "type": "url", "url": "https://a.b"}}),
        {"messages": [], "tools": [{"name": "get", "input_schema": {"properties": {"file_id": {"type": "string"}, "url": {}}}}]},
        {"input": "x", "tools": [{"type": "function", "name": "mcp"}, {"type": "web_search"}]},
        {"messages": [], "mcp_servers": []},
    ],
    ids=lambda members: json.dumps(members)[:60],
)
def test_what_is_only_spoken_of_is_not(members: dict[str, Any]) -> None:
    assert not names(**members)
