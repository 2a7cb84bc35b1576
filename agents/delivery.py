"""When text may be typed into an agent, and what says that it took it. Pure.

What is known comes from the process first: its terminal, and the record that Claude Code keeps of its session
(`sessions/PID.json`, measured with 2.1.329: `idle`, `busy` or `waiting`, changed 0.3 to 1.1 s after a prompt). Text on the screen can
only hold a text back, when it shows a dialog that is known by its label; it never says that a text may be typed, or that it was taken.

An agent that keeps no such record is `unknown`. It is typed into when it has read all that was typed before, and the result is
`unconfirmed`. Enter is pressed again only where the agent's own record says that nothing began: an unknown program could take a second
Enter for an answer.
"""

from __future__ import annotations

import functools
import json
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

CONFIRM_S = 3.0
"""How long a confirmation is waited for, after each Enter."""
READ_S = 1.0
"""How long a program that confirms nothing is given to read what was typed."""
BEGUN_S = 1.0
"""A program that began less than this many seconds ago may not read yet, or drop what was typed as it sets its terminal up."""
TYPING_S = 2.0
"""A person who pressed a key in the pane within this many seconds is typing."""
CLAUDE = "claude"
"""What the kernel calls Claude Code's process."""
_TAIL = 24
"""Lines at the end of the screen in which a dialog is looked for."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a Claude Code says of its session."""

    status: str
    """`idle`, `busy` or `waiting`; empty while it starts or shows a dialog before its first prompt."""
    waits_for: str = ""
    since: int = 0
    """When its status changed last, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an agent at one moment."""

    session: Session | None = None
    """None when it is no Claude Code that we know of."""
    unread: int = 0
    """Bytes that were typed before and not read."""
    age_s: float = 60.0
    """Seconds since the program in the foreground of its terminal began."""
    line_max: int = 0
    """Bytes of the longest line that its terminal hands on; 0 when it hands on every byte."""
    screen: str = ""
    person_s: float | None = None
    """Seconds since a person who is attached pressed a key; None when nobody is attached."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog of a CLI that is known by its label: all of `lines` stand at the end of the screen, in this order."""

    cli: str
    label: str
    lines: tuple[str, ...]


def session(data: bytes | None, pid: int, ticks: int) -> Session:
    """Read `sessions/PID.json`. A record of another process, as a killed one leaves it, says nothing."""
    shape = _object(data)
    if shape.get("pid") != pid or str(shape.get("procStart")) != str(ticks) or shape.get("status") not in ("idle", "busy", "waiting"):
        return Session("")
    since = shape.get("statusUpdatedAt")
    return Session(shape["status"], str(shape.get("waitingFor") or "")[:100], since if isinstance(since, int) else 0)


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        shape = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return shape if isinstance(shape, dict) else {}


def why_not(known: Known, text: str) -> str:
    """Why `text` may not be typed now; empty when it may."""
    if known.person_s is not None and known.person_s < TYPING_S:
        return "a person types in its pane"
    if known.session is not None and (why := _why_not_session(known.session)):
        return why
    if known.session is None and known.age_s < BEGUN_S:
        return "its program has only just begun"
    if (found := dialog(known.screen)) is not None:
        return f"it shows a dialog: {found.label} ({found.cli})"
    if known.unread:
        return "its program does not read its terminal now"
    return why_never(known, text)


def _why_not_session(said: Session) -> str:
    match said.status:
        case "idle":
            return ""
        case "busy":
            return "it works"
        case "waiting":
            return f"it waits for a person: {said.waits_for or 'a dialog'}"
        case _:
            return "it has not begun its session: it starts, or shows a dialog"


def why_never(known: Known, text: str) -> str:
    """Why its terminal would lose a part of `text`; empty when it would not."""
    longest = max(len(line.encode()) for line in text.split("\n")) + 1
    if known.line_max and longest > known.line_max:
        return f"its program reads whole lines, of at most {known.line_max} bytes; the longest has {longest}"
    return ""


def confirmed(before: Known, after: Known) -> bool:
    """Whether its own record says that it took what was typed between two looks: its status has changed since."""
    return before.session is not None and after.session is not None and after.session.since > before.session.since


def settled(before: Known, after: Known) -> bool:
    """Whether a further look would tell nothing more: it is confirmed, or a program that confirms nothing has read all of it."""
    return confirmed(before, after) or (before.session is None and not after.unread)


def may_press_again(before: Known, after: Known) -> bool:
    """Whether Enter may be pressed once more: its record says that it still waits for a prompt, and no dialog is open."""
    idle = after.session is not None and after.session.status == "idle"
    return idle and not confirmed(before, after) and dialog(after.screen) is None


def why_unconfirmed(after: Known) -> str:
    """What to say of a text that was typed and not confirmed."""
    if after.unread:
        return "its program has not read all of it yet"
    return "nothing says that it took it" if after.session is not None else "a program of its kind does not say what it takes"


def dialog(screen: str) -> Dialog | None:
    """The known dialog at the end of a screen."""
    tail = [line.strip() for line in screen.rstrip().splitlines()[-_TAIL:]]
    return next((one for one in dialogs() if _shows(tail, one.lines)), None)


def _shows(tail: list[str], wanted: tuple[str, ...]) -> bool:
    """Each line begins with what is wanted, whatever cursor stands before it."""
    left = iter(tail)
    return all(any(line.lstrip("❯›> ").startswith(text) for line in left) for text in wanted)


@functools.cache
def dialogs() -> tuple[Dialog, ...]:
    """Every known dialog: `agents/dialogs/CLI.toml`, as recorded in `tests/data/screens/`."""
    found = []
    for file in sorted(resources.files("agents.dialogs").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".toml"):
            shape = tomllib.loads(file.read_text(encoding="utf-8"))
            found += [Dialog(file.name.removesuffix(".toml"), label, tuple(one["lines"])) for label, one in shape.items()]
    return tuple(found)
