"""When text may be typed into an agent, and texts in its inbox."""

from __future__ import annotations

import contextlib
import functools
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import agent_state
from agents.agent_state import AgentState, Evidence, Source, fuse
from supervisor.kernel.errors import one_line

# Delivery
# --------
# When text may be typed into an agent, and what says that it took it. Pure.
#
# The agent's own words decide, fused by `agents.agent_state`: its hooks, and the record that Claude Code keeps of its session
# (`sessions/PID.json`, measured with 2.1.329: `idle`, `busy` or `waiting`, changed 0.3 to 1.1 s after a prompt). A turn that ends
# before Claude Code writes `busy` leaves that record as it was; its history of prompts (`history.jsonl`) tells of it. Text on the screen
# can only hold a text back, when it shows a dialog that is known by its label; it never says that a text may be typed, or that it
# was taken.
#
# An agent that says nothing is `unknown`. It is typed into when it has read all that was typed before, and the result is
# `unconfirmed`. Enter is pressed again only where the agent's own words say that nothing began: an unknown program could take a
# second Enter for an answer.


PRESS_AGAIN_S = 3.0
"""How long an agent that has read all of it is given to begin, before Enter is pressed once more."""
CONFIRM_S = 90.0
"""How long one is waited for in all: Claude Code says that it works about a second after a prompt; of six that began at once on two busy
cores five took more than six, and at a load of 30 one took more than 30."""
RECORD_S = 20.0
"""How long a prompt counts as a turn that is on, in seconds, while Claude Code's record of its session is older than the prompt: of six
that began at once on two busy cores five wrote `busy` more than six seconds after it."""
READ_S = 1.0
"""How long a program that confirms nothing is given to read what was typed."""
BEGUN_S = 1.0
"""A program that began less than this many seconds ago may not read yet, or drop what was typed as it sets its terminal up."""
TYPING_S = 2.0
"""A person who pressed a key in the pane within this many seconds is typing."""
UNKNOWN = "unknown"
"""Label of what looks like a dialog and is none of the known ones."""
CLAUDE = "claude"
"""What the kernel calls Claude Code's process."""
_TAIL = 24
"""Lines at the end of the screen in which a dialog is looked for."""
_READY = frozenset({AgentState.IDLE, AgentState.INTERRUPTED})
"""An agent that asked something (`waiting_input`) shows a dialog, which is never typed into."""
_STATES = {"idle": AgentState.IDLE, "busy": AgentState.WORKING, "waiting": AgentState.WAITING_PERMISSION}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an agent at one moment."""

    words: tuple[Evidence, ...] = ()
    """What it says of itself: the newest of its hooks, and its session file."""
    session: str = ""
    """The session that is its own, by its hooks."""
    begins: bool = False
    """A Claude Code is in the foreground of its terminal that keeps no record of a session yet."""
    looked: float = 0.0
    """When this was read, wall-clock seconds."""
    prompted: float = 0.0
    """When its session took a prompt last, wall-clock seconds, by Claude Code's history; 0: not known."""
    unread: int = 0
    """Bytes that were typed before and not read."""
    age_s: float = 60.0
    """Seconds since the program in the foreground of its terminal began."""
    line_max: int = 0
    """Bytes of the longest line that its terminal hands on; 0 when it hands on every byte."""
    screen: str = ""
    title: str = ""
    """Of its pane."""
    printed: float = 0.0
    """When its pane printed anything last, wall-clock seconds; 0: not known."""
    person_s: float | None = None
    """Seconds since a person who is attached pressed a key; None when nobody is attached."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog of a CLI that is known by its label: all of `lines` stand at the end of the screen, in this order."""

    cli: str
    label: str
    lines: tuple[str, ...]
    allow: tuple[str, ...] = ()
    """Keys, by tmux's names, that allow what it asks; none: nobody knows them."""
    deny: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    """Beginnings of the last line that is not blank, one of which a part of it must have; empty: any line fits."""


def evidence(known: Known, now: float) -> list[Evidence]:
    """What it says of itself; a dialog on its screen, which keeps one from starting that has said nothing yet; and what its title and its
    silence hint at. `now`: wall-clock seconds."""
    found = dialog(known.screen)
    state = AgentState.WAITING_INPUT if known.words else AgentState.BLOCKED_STARTUP
    said = _shows_dialog(found) if found is not None else ""
    shown = [Evidence(Source.SCREEN, state, known.printed or now, said)] if said else []
    found_hints = (agent_state.title(known.title, now), agent_state.silence(known.printed, now))
    return [*known.words, *shown, *(piece for piece in found_hints if piece is not None)]


def session_file(data: bytes | None, pid: int, ticks: int) -> Evidence | None:
    """What `sessions/PID.json` says: of the very process, whatever session it is in by now. A record of another process, as a killed one
    leaves it, says nothing."""
    shape = _object(data)
    state, since = _STATES.get(str(shape.get("status"))), shape.get("statusUpdatedAt")
    if state is None or shape.get("pid") != pid or str(shape.get("procStart")) != str(ticks) or not isinstance(since, int):
        return None
    asked = str(shape.get("waitingFor") or "a dialog") if state is AgentState.WAITING_PERMISSION else ""
    return Evidence(Source.SESSION_FILE, state, since / 1000, one_line(asked)[:100])


def last_prompt(history: bytes, record: bytes | None) -> float:
    """Return when the session that `record` names took its last prompt, in wall-clock seconds; 0 when `history` does not say.

    `history` is the end of Claude Code's `history.jsonl`, to which every session of its home adds a line for each prompt. The first and
    the last line may be parts."""
    session = _object(record).get("sessionId")
    for line in reversed(history.splitlines()):
        shape = _object(line)
        at = shape.get("timestamp")
        if session and shape.get("sessionId") == session and isinstance(at, int):
            return at / 1000
    return 0.0


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
    if known.words:
        status = fuse(known.words, known.session)
        if status.state not in _READY:
            return f"it is {status.state}" + (f": {status.detail}" if status.detail else "")
        if _turn_is_unrecorded(known):
            return f"it is {AgentState.WORKING}"
    elif known.begins:
        return "it has not begun its session: it starts, or shows a dialog"
    elif known.age_s < BEGUN_S:
        return "its program has only just begun"
    if (found := dialog(known.screen)) is not None:
        return _shows_dialog(found)
    if known.unread:
        return "its program does not read its terminal now"
    return why_never(known, text)


def _turn_is_unrecorded(known: Known) -> bool:
    """Return whether the agent took a prompt that is newer than all its own words, and had no time to say that it works."""
    newest = max(piece.at for piece in known.words)
    return known.prompted > newest and known.looked - known.prompted < RECORD_S


def why_never(known: Known, text: str) -> str:
    """Why its terminal would lose a part of `text`; empty when it would not."""
    longest = max(len(line.encode()) for line in text.split("\n")) + 1
    if known.line_max and longest > known.line_max:
        return f"its program reads whole lines, of at most {known.line_max} bytes; the longest has {longest}"
    return ""


def confirmed(before: Known, after: Known) -> bool:
    """Whether its own words say that it took what was typed between two looks: that it works or asks something, or that it did."""
    if after.prompted > before.looked:
        return True
    earlier = {piece.source: piece for piece in before.words}
    own = [piece for piece in after.words if not after.session or piece.session in ("", after.session)]
    return any(_tells_of_a_turn(earlier.get(piece.source), piece) for piece in own)


def _tells_of_a_turn(before: Evidence | None, now: Evidence) -> bool:
    """A turn that is over already was two hooks at least; one alone that says idle is a notice that nobody wrote. The session file
    changes only with its status."""
    if before is not None and now.at <= before.at:
        return False
    turns = now.sequence - (before.sequence if before is not None else 0) > 1
    return now.state not in _READY or turns or (now.source is Source.SESSION_FILE and before is not None)


def settled(before: Known, after: Known) -> bool:
    """Whether a further look would tell nothing more: it is confirmed, or a program that confirms nothing has read all of it."""
    return confirmed(before, after) or (not before.words and not after.unread)


def may_press_again(before: Known, after: Known) -> bool:
    """Whether Enter may be pressed once more: all that was typed is read, its own words say that it still waits for a prompt, and no dialog
    is open."""
    ready = fuse(after.words, after.session).state in _READY
    return ready and not after.unread and not confirmed(before, after) and dialog(after.screen) is None


def why_unconfirmed(after: Known) -> str:
    """What to say of a text that was typed and not confirmed."""
    if after.unread:
        return "its program has not read all of it yet"
    return "nothing says that it took it" if after.words else "a program of its kind does not say what it takes"


def dialog(screen: str) -> Dialog | None:
    """Return the dialog at the end of a screen; one that is known by its words goes before one that only looks like one."""
    tail = [line.strip() for line in screen.rstrip().splitlines()[-_TAIL:]]
    return next((one for one in dialogs() if _shows(tail, one.lines) and _ends(tail, one.end)), None)


def _ends(tail: list[str], wanted: tuple[str, ...]) -> bool:
    return not wanted or any(part.startswith(wanted) for line in tail[-1:] for part in line.split(" · "))


def _shows_dialog(found: Dialog) -> str:
    return "it shows a dialog that nightcrew does not know" if found.label == UNKNOWN else f"it shows a dialog: {found.label} ({found.cli})"


def _shows(tail: list[str], wanted: tuple[str, ...]) -> bool:
    """Each line begins with what is wanted, whatever cursor stands before it."""
    left = iter(tail)
    return all(any(line.lstrip("❯›> ").startswith(text) for line in left) for text in wanted)


@functools.cache
def dialogs() -> tuple[Dialog, ...]:
    """Return every known dialog: those of `agents/dialogs.toml`, recorded in `tests/data/screens/`."""
    known = tomllib.loads(Path(__file__).with_name("dialogs.toml").read_text(encoding="utf-8"))
    found = [
        Dialog(cli, label, *(tuple(one.get(key, ())) for key in ("lines", "allow", "deny", "end")))
        for cli, labels in known.items()
        for label, one in labels.items()
    ]
    return tuple(sorted(found, key=lambda one: one.label == UNKNOWN))


# Inbox
# -----
# Texts that people sent to a running agent: files `NUMBER.txt` in one directory, each whole from the start. The numbers grow.


NUMBER = "nightcrew_input"
"""Key of the `user` line which says that a text was given to the agent; its value is the text's number."""


class Inbox:
    """The texts of one attempt, each handed out once."""

    def __init__(self, directory: str) -> None:
        """`directory` may be empty: nobody can send anything then."""
        self._directory = directory
        self._last = 0

    def next(self) -> tuple[int, str] | None:
        """The oldest text that was not handed out, with its number; None when none waits now."""
        try:
            names = [file.name for file in Path(self._directory).iterdir()] if self._directory else []
        except OSError:  # it is made with the first text
            return None
        numbers = [int(name[:-4]) for name in names if name.endswith(".txt") and name[:-4].isdecimal()]
        for number in sorted(number for number in numbers if number > self._last):
            self._last = number
            with contextlib.suppress(FileNotFoundError):  # taken back: its agent read it in another way
                return number, Path(self._directory, f"{number}.txt").read_text(encoding="utf-8")
        return None
