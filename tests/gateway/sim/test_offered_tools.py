"""The tool for commands, found in the requests of every API."""

from __future__ import annotations

from typing import Any

import pytest

from nightcrew.plugins.sim.settings import shell_call

TYPES = {"command": {"type": "string"}, "background": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": TYPES, "required": [*TYPES]}
EXEC = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
GIVEN = {"command": "ls", "background": False}


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ({"tools": [{"name": "Read"}, {"name": "Bash", "input_schema": SCHEMA}]}, ("Bash", GIVEN)),
        ({"tools": [{"type": "function", "function": {"name": "run_shell_command", "parameters": SCHEMA}}]}, ("run_shell_command", GIVEN)),
        (
            {"tools": [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": SCHEMA}]}]},
            ("run_shell_command", GIVEN),
        ),
        (
            {"tools": [{"type": "function", "name": "shell", "parameters": {"properties": {"command": {"type": "array"}}}}]},
            ("shell", {"command": ["bash", "-c", "ls"]}),
        ),
        (
            {"input": [{"type": "additional_tools", "tools": [EXEC]}]},
            ("exec", 'text(await tools.exec_command({cmd: "ls"}))'),
        ),
        ({"tools": [{"name": "Read"}]}, None),
        ({"tools": None, "input": "hello"}, None),
        ({}, None),
    ],
)
def test_it_is_found_and_called_as_the_request_wants_it(body: dict[str, Any], call: tuple[str, Any] | None) -> None:
    assert shell_call(body, "ls") == call
