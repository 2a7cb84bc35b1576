"""The API's description, OpenAPI 3.1, made of its operations and models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from supervisor import __version__
from supervisor.faces.web.api import handlers, models
from supervisor.faces.web.api.operations import Operation
from supervisor.faces.web.api.problems import TYPE

_REF = "#/components/schemas/{model}"
_FAILS = {
    "400": "The body is no JSON, or the request is not one that HTTP allows.",
    "401": "No token, or one that opens nothing.",
    "403": "The token has not the scope, or the request comes from a page of another site.",
    "404": "There is no such task, or it is none of the token's.",
    "409": "It was refused, or the key belongs to another request.",
    "413": "The body is too large.",
    "415": "The content type is not application/json.",
    "421": "The request names another host.",
    "422": "Something in the request is wrong; `errors` names each field.",
    "429": "Too many requests, or the quota is spent; `Retry-After` says when there is room.",
    "503": "No supervisor answers; `next` says what starts it.",
}
_EVENT_ID = r"^[0-9]{1,18}$"
_LOG_ID = r"^[0-9]{1,9}:[0-9]{1,18}$"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """As JSON."""
    operations = tuple(operations)
    shown = [(one.answers, "serialization") for one in operations if one.answers is not None]
    taken = [(one.body, "validation") for one in operations if one.body is not None]
    _, found = models_json_schema([*dict.fromkeys([*taken, *shown, (models.Problem, "serialization")])], ref_template=_REF)  # type: ignore[list-item]
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nightcrew", "version": __version__, "description": "Hand tasks over to the crew, and read what became of them."},
        "paths": paths,
        "components": {
            "schemas": found.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Of `nightcrew token create`."}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation) -> dict[str, Any]:
    scope = f" Needs the scope `{one.scope}`." if one.scope is not None else ""
    shape = {
        "operationId": one.name,
        "summary": one.says,
        "description": f"{one.says}{scope}",
        "parameters": [*_in_path(one), *_in_query(one.query), *_in_headers(one)],
        "responses": {**{str(status): _answer(one) for status in one.status}, **_failures()},
    }
    if one.body is not None:
        shape["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(one.body)}}}
    return shape


def _answer(one: Operation) -> dict[str, Any]:
    if one.answers is None:
        return {"description": one.says, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {"description": one.says, "content": {"application/json": {"schema": _ref(one.answers)}}}


def _failures() -> dict[str, Any]:
    content = {TYPE: {"schema": _ref(models.Problem)}}
    return {**{status: {"description": why, "content": content} for status, why in _FAILS.items()}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _in_path(one: Operation) -> list[dict[str, Any]]:
    patterns = {"run": r"^[0-9]{4}-[a-z0-9]{4}$", "name": r"^[a-z0-9][a-z0-9_-]{0,31}$"}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": patterns[name]}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]


def _in_query(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    return [
        {"name": name, "in": "query", "required": False, "schema": _plain(shape), "description": shape.get("description", "")}
        for name, shape in schema.get("properties", {}).items()
    ]


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """Without null: a parameter is there or not."""
    kept = [one for one in shape.get("anyOf", []) if one.get("type") != "null"]
    found = kept[0] if len(kept) == 1 else shape
    return {name: value for name, value in found.items() if name not in ("title", "description", "default")}


def _in_headers(one: Operation) -> list[dict[str, Any]]:
    log = one.name == "streamLog"
    schemas: dict[str, dict[str, Any]] = {
        handlers.KEY_HEADER: {"type": "string", "minLength": 1, "maxLength": handlers.KEY_MAX, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
        "Last-Event-ID": {"type": "string", "pattern": _LOG_ID if log else _EVENT_ID},
    }
    return [
        {"name": name, "in": "header", "required": False, "schema": schemas[name], "description": says}
        for name, says in one.headers.items()
    ]
