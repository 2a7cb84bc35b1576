"""What the simulated provider says. Every text that no test dictated begins with `[simulated]`."""

from __future__ import annotations

import math
from dataclasses import replace

from nightcrew.plugins.sim.account import BYTES_PER_TOKEN
from nightcrew.plugins.sim.dialects.types import Answer, Ask, ToolCall
from nightcrew.plugins.sim.faults import Fault, shell_call
from supervisor.gateway.admission.types import Usage

MARK = "[simulated] "
BIG_LINE = 5_000_000
"""Characters of the one event that `manner: big_line` adds."""

_PLAIN = "No model wrote this. The words only fill the tokens that were asked for. "
_MANIFOLD = "Kein Modell schrieb dies: äöü ßéñ 夜の番 🌙🦉 €. "


def compose(ask: Ask, usage: Usage, fault: Fault, *, per_event: int, answer_id: str, created: int) -> Answer:
    """The answer that takes `usage`, scripted by `fault` where it says something."""
    if fault.command and (call := shell_call(ask.body, fault.command)) is not None:
        fault = replace(fault, tool=call[0], tool_input=call[1])
    text = _text(usage.output, fault)
    pieces = _pieces(text, usage.output, per_event)
    if fault.manner == "big_line":
        pieces.append(("x" * BIG_LINE, 0))
    return Answer(
        id=answer_id,
        created=created,
        chunks=tuple(piece for piece, _ in pieces),
        chunk_tokens=tuple(tokens for _, tokens in pieces),
        tool=ToolCall(fault.tool, fault.tool_input) if fault.tool else None,
        more_tools=tuple(ToolCall(name, given) for name, given in fault.more_tools),
        stop=fault.stop,
        cut_short=not fault.tool and ask.max_tokens is not None and usage.output >= ask.max_tokens,
        usage=_reported(usage, fault),
    )


def _text(output: int, fault: Fault) -> str:
    if fault.text is not None:
        return fault.text
    if fault.tool:
        return f"{MARK}{fault.tool}"
    filler = _MANIFOLD if fault.manner == "split" else _PLAIN
    size = max(len(MARK), round(output * BYTES_PER_TOKEN))
    return (MARK + filler * (size // len(filler) + 1))[:size]


def _pieces(text: str, output: int, per_event: int) -> list[tuple[str, int]]:
    """(text, tokens) of each event: all nearly equal, with at most `per_event` tokens where the text is long enough."""
    if not text:
        return []
    events = max(1, min(len(text), math.ceil(output / per_event)))
    return [
        (text[len(text) * place // events : len(text) * (place + 1) // events], output * (place + 1) // events - output * place // events)
        for place in range(events)
    ]


def _reported(usage: Usage, fault: Fault) -> Usage | None:
    match fault.usage:
        case "missing":
            return None
        case "negative":
            return Usage(-usage.input, -usage.output, -usage.cache_read, -usage.cache_write)
        case "larger":
            return replace(usage, output=usage.output * 10)
        case _:
            return usage
