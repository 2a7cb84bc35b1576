"""The API's description as a page: plain HTML, without a script."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Task API - nightcrew</title>
<link rel="stylesheet" href="/static/web.css"></head>
<body><main id="main"><h1>Task API</h1>
<p>Programs hand tasks over with a token of <code>nightcrew token create</code>, sent as <code>Authorization: Bearer</code>.
The same as <a href="/api/v1/openapi.json">OpenAPI 3.1</a>.</p>
{operations}
<h2>Shapes</h2>
{schemas}
</main></body></html>
"""


def page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document of ours."""
    operations = [
        _operation(method, path, one) for path, methods in document["paths"].items() for method, one in methods.items()
    ]  # fmt: skip
    schemas = [_schema(name, shape) for name, shape in sorted(document["components"]["schemas"].items())]
    return _PAGE.format(operations="\n".join(operations), schemas="\n".join(schemas))


def _operation(method: str, path: str, one: dict[str, Any]) -> str:
    parameters = [
        f"<li><code>{escape(item['name'])}</code> ({item['in']}) {escape(item.get('description', ''))}</li>" for item in one["parameters"]
    ]
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    takes = f"<p>Takes {_link(body)}.</p>" if body else ""
    answers = [
        f"<li>{status}: {escape(answer['description'])} {' '.join(_link(content['schema']) for content in answer['content'].values())}</li>"
        for status, answer in one["responses"].items()
    ]
    return (
        f'<section id="{escape(one["operationId"])}"><h2><code>{method.upper()} {escape(path)}</code></h2>'
        f"<p>{escape(one['description'])}</p>{takes}<ul>{''.join(parameters)}</ul><ul>{''.join(answers)}</ul></section>"
    )


def _link(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else "a stream of events"


def _schema(name: str, shape: dict[str, Any]) -> str:
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3><pre>{escape(json.dumps(shape, indent=2))}</pre></section>'
