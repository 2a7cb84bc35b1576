"""The languages that the simulated provider speaks, one a file. Each turns plain nouns into the bytes that the real one sends."""

from __future__ import annotations

from supervisor.gateway.sim.dialects.anthropic import Anthropic
from supervisor.gateway.sim.dialects.chat import Chat
from supervisor.gateway.sim.dialects.gemini import Gemini
from supervisor.gateway.sim.dialects.responses import Responses
from supervisor.gateway.sim.dialects.types import WORDS, Answer, Ask, Dialect, Failure, Frame, Gauge, ToolCall, compact

__all__ = [
    "WORDS",
    "Answer",
    "Anthropic",
    "Ask",
    "Chat",
    "Dialect",
    "Failure",
    "Frame",
    "Gauge",
    "Gemini",
    "Responses",
    "ToolCall",
    "compact",
]
