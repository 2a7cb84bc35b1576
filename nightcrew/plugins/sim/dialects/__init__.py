"""The languages that the simulated provider speaks, one a file. Each turns plain nouns into the bytes that the real one sends."""

from __future__ import annotations

from nightcrew.plugins.sim.dialects.anthropic import Anthropic
from nightcrew.plugins.sim.dialects.chat import Chat
from nightcrew.plugins.sim.dialects.gemini import Gemini
from nightcrew.plugins.sim.dialects.responses import Responses
from nightcrew.plugins.sim.dialects.types import WORDS, Answer, Ask, Dialect, Failure, Frame, Gauge, ToolCall, compact

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
