"""What both servers share: errors of ours as errors of a tool, and the start over stdio."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from supervisor import __version__
from supervisor.core.errors import NightcrewError

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Tool = Callable[..., Any]


def server(instructions: str, tools: dict[Tool, ToolAnnotations]) -> MCPServer[Any]:
    """A server of these tools, each named and described as its function is."""
    made: MCPServer[Any] = MCPServer("nightcrew", instructions=instructions, version=__version__, log_level="WARNING")
    for tool, hints in tools.items():
        made.add_tool(_explained(tool), annotations=hints, structured_output=True)
    return made


def _explained(tool: Tool) -> Tool:
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
