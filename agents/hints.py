"""What a terminal's title and its silence hint at: reasons to look, and never more. Both are an agent's own doing: anything that runs in a
pane sets its title. Pure.
"""

from __future__ import annotations

from agents.status import AgentState, Evidence, Source
from supervisor.core.errors import one_line

SILENT_S = 600.0
"""Nothing printed for so many seconds is worth a look of who works: tools and thinking are often silent for minutes."""
TITLE_MAX = 80
"""Characters of a title that are looked at."""
_ASKS = "[ ! ] Action Required"
"""How Codex 0.169.0 begins its title while it waits for a person."""
_RESTS = "✳ "
"""How Claude Code 2.1.329 begins its title while it does not work: at a prompt and in a dialog."""


def title(text: str, now: float) -> Evidence | None:
    """What the title of a pane hints at; None for one that is no agent's. `now`: wall-clock seconds."""
    shown = one_line(text[:TITLE_MAX])
    if text.startswith(_ASKS):
        return Evidence(Source.TITLE, AgentState.WAITING_PERMISSION, now, f"its title says: {shown}")
    if text.startswith(_RESTS):
        return Evidence(Source.TITLE, AgentState.IDLE, now, f"its title says that it rests: {shown}")
    spins = "\u2800" <= text[:1] <= "\u28ff" and text[1:2] == " "
    return Evidence(Source.TITLE, AgentState.WORKING, now, f"its title says that it works: {shown}") if spins else None


def silence(printed: float, now: float) -> Evidence | None:
    """What it means that nothing was printed since `printed`; None while that is not long ago."""
    if not printed or now - printed < SILENT_S:
        return None
    return Evidence(Source.SILENCE, AgentState.UNKNOWN, printed, f"it has printed nothing for {int((now - printed) // 60)} minutes")
