"""Importing this imports whatever a run needs, so that a fork of the process which did needs nothing more."""

import anthropic.resources.messages  # noqa: F401
import anyio._backends._asyncio  # noqa: F401
import genai_prices.data_snapshot  # noqa: F401

from agents.builtin import run  # noqa: F401
