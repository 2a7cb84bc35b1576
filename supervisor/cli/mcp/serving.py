"""What both servers share: errors of ours as errors of a tool, and the start over stdio."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations

from supervisor import __version__
from supervisor.core.errors import NightcrewError

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Function = Callable[..., Any]


def server(instructions: str, tools: dict[Function, ToolAnnotations]) -> MCPServer[Any]:
    """A server of these tools, each named and described as its function is."""
    made = [_strict(Tool.from_function(_explained(tool), annotations=hints, structured_output=True)) for tool, hints in tools.items()]
    return MCPServer("nightcrew", instructions=instructions, version=__version__, log_level="WARNING", tools=made)


def _strict(tool: Tool) -> Tool:
    """The same, which refuses an argument that it does not know: one that is dropped may have been a restriction."""
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": {**tool.parameters, "additionalProperties": False}})


def _explained(tool: Function) -> Function:
    """The same with our errors as what the model reads: what failed, why, what was kept, and what to do next."""
    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def later(*args: Any, **kwargs: Any) -> Any:
            try:
                return await tool(*args, **kwargs)
            except NightcrewError as error:
                raise ToolError(error.line()) from None

        return later

    @functools.wraps(tool)
    def now(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except NightcrewError as error:
            raise ToolError(error.line()) from None

    return now
