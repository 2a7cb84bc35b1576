"""Every error a person can meet, as one tree.

    NightcrewError            exit 1
    ├── UsageError            2    the command line is off
    ├── ConfigError           3    a plan, project or user file is off: file:line and key
    ├── NotFound              4    no such task, run, session or result
    ├── NotRunning            5    no supervisor answers
    ├── Refused               6    it would lose or endanger something, so it was not done
    │   ├── Tampered               an agent changed what only nightcrew may change
    │   ├── Deadlock               a wait that could never end, so it was not begun
    │   │   └── Chosen                 one that was given up, since others changed and it could never end
    │   ├── KeyTaken               an idempotency key was used for another request
    │   ├── TokenRefused           an access token does not hold, or not for this
    │   └── StaleEpoch             a newer attempt owns the task: the late writer changes nothing
    ├── BudgetSpent           7    nothing is left of a budget now; more comes with time
    ├── NeedsHuman            8    only a person can decide
    ├── TimedOut              124  a wait ran out
    └── HostError             2    a tool or the machine does not do what we need
        ├── ToolMissing            tmux or git absent or too old, or an agent's program absent
        ├── ToolFailed             tmux, git or the kernel answered with an error
        │   └── ToolHung               git did nothing, or worked too long, and was stopped
        ├── DiskFull               no space left where we must write
        └── LedgerError            the ledger is damaged, newer, or not writable

Exit codes 0 and 130 (interrupted) have no class here: 0 is no error, 130 is click's own `Abort`.

Every error says five things, and `line()` puts them on one line: what failed, on which object, why, what was kept, and the
next command. `what` is the only one that must be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from supervisor.kernel.format import listed


class NightcrewError(Exception):
    """Base of the tree.

    `what` failed; `on` is the object (an id or a path); `why`; `kept` says what is safe; `hint` is the next command.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, on: str = "", why: str = "", kept: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.on = on
        self.why = why
        self.kept = kept
        self.hint = hint

    def line(self) -> str:
        """The whole error on one line, with control characters and line breaks made harmless."""
        parts = (" ", self.on), (": ", self.why), ("; kept: ", self.kept), ("; next: ", self.hint)
        return one_line(self.what + "".join(f"{mark}{text}" for mark, text in parts if text))

    def __str__(self) -> str:
        return self.line()

    def to_wire(self) -> dict[str, str]:
        """The shape that crosses a socket; `from_wire` rebuilds the same class."""
        return {"error": type(self).__name__, "what": self.what, **{name: getattr(self, name) for name in _MORE}}


_MORE = ("on", "why", "kept", "hint")


class UsageError(NightcrewError):
    """The command line is off: the person typed something we cannot act on."""

    exit_code = 2


class ConfigError(NightcrewError):
    """A file a person wrote is off; `on` is `file:line`."""

    exit_code = 3


class NotFound(NightcrewError):
    """Nothing has that name."""

    exit_code = 4


class NotRunning(NightcrewError):
    """No supervisor answers on the socket."""

    exit_code = 5


class Refused(NightcrewError):
    """We could, but it would lose or endanger something."""

    exit_code = 6


class Tampered(Refused):
    """A file that only nightcrew writes was changed by somebody else."""


class Deadlock(Refused):
    """Whoever asked and those it would wait for would wait for each other; `why` is the whole cycle."""


class Chosen(Deadlock):
    """A wait that had begun was given up, so that others of its cycle can go on."""


class KeyTaken(Refused):
    """The same idempotency key came with another request before."""


class TokenRefused(Refused):
    """An access token was revoked, its time is over, or it does not reach so far."""


class StaleEpoch(Refused):
    """The writer belongs to an attempt that is no longer the task's newest."""


class BudgetSpent(NightcrewError):
    """Nothing is left of a budget at this moment; `why` says when there is more."""

    exit_code = 7


class NeedsHuman(NightcrewError):
    """Only a person can decide this."""

    exit_code = 8


class TimedOut(NightcrewError):
    """A wait ran out before its condition came true."""

    exit_code = 124


class HostError(NightcrewError):
    """A tool or the machine does not do what we need."""

    exit_code = 2


class ToolMissing(HostError):
    """A program we need is absent or too old."""


class ToolFailed(HostError):
    """A program we called answered with an error, or not in time."""

    exit_code = 1


class ToolHung(ToolFailed):
    """A program we called did nothing, or not in time, and was stopped. Another try costs as long again."""


class DiskFull(HostError):
    """No space is left where we must write."""

    exit_code = 1


class LedgerError(HostError):
    """The ledger cannot be used as it is; it is never replaced by an empty one."""

    exit_code = 1


_WIRE: dict[str, type[NightcrewError]] = {
    cls.__name__: cls
    for cls in (
        NightcrewError, UsageError, ConfigError, NotFound, NotRunning, Refused, Tampered, Deadlock, Chosen, KeyTaken, TokenRefused,
        StaleEpoch, BudgetSpent, NeedsHuman, TimedOut, HostError, ToolMissing, ToolFailed, ToolHung, DiskFull, LedgerError,
    )
}  # fmt: skip


def from_wire(shape: dict[str, str]) -> NightcrewError:
    """Rebuild an error that `to_wire` wrote; a name this version does not know becomes the base class."""
    cls = _WIRE.get(shape.get("error", ""), NightcrewError)
    more = {name: shape.get(name, "") for name in _MORE}
    return cls(shape.get("what", "the supervisor reported an error"), **more)


def last_line(text: str) -> str:
    """The last line of `text` that is not empty, without the white space around it: most programs say there why they failed."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def one_line(text: str) -> str:
    """`text` with every control character, line break, direction override and character that nobody sees shown as an escape: it cannot
    drive a terminal, and a person reads all that a model would."""
    return text if text.isprintable() else "".join(map(_shown, text))


def some_of(names: Sequence[str], at_most: int = 10, more: int = 0) -> str:
    """`src/a.py, src/b.py and 3 more`, for people, of names of files as `os.fsdecode` text: a stranger's. `more` were not even listed."""
    raw = (name.encode("utf-8", "surrogateescape") for name in names[:at_most])
    shown = [one_line(name.decode("utf-8", "backslashreplace")) for name in raw]
    return listed(shown, more=len(names) - len(shown) + more)


_UNSEEN = ((0x180E, 0x180E), (0x200B, 0x200B), (0x2060, 0x2064), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F))
UNSEEN = frozenset(chr(code) for first, last in _UNSEEN for code in range(first, last + 1))
"""Spaces and marks without a width, and tags, a second ASCII that no terminal draws and models read. Those that join letters or emoji
(U+200C, U+200D) are not among them: some languages need them."""
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c")


def _shown(char: str) -> str:
    code = ord(char)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    if char in _BIDI or char in UNSEEN or char in "\u2028\u2029" or 0xD800 <= code <= 0xDFFF:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char
