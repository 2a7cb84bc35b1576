"""The server of an agent, as `$NIGHTCREW_AGENT mcp` starts it in a sandbox."""

from supervisor.features.mcp.agent import serve

serve()
