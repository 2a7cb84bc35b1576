"""What a kind of agent promises beyond its exit status, and what its own words add to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents import protocols
from agents.kinds import Kind
from agents.protocols import Outcome
from supervisor.host import untrusted_fs
from supervisor.kernel import result
from supervisor.kernel.conversations import COULD_NOT
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import listed, money
from supervisor.kernel.result import Spent
from supervisor.kernel.states import End

OUTPUT_MAX = 2**20
WORDS_MAX = 200
HEAD, TAIL = 2**18, 4 * 2**20
"""Bytes of a long log that are read: its session is named first, its result last, within the end that the runner keeps of any log."""
STRUCTURED_MAX = 2**16
DENIALS_SHOWN = 3
CENTS = 0.0001
"""US dollars by which the sums of two accounts of the same requests may differ: each rounds."""
_TOKENS = ("input", "output", "cache_read", "cache_write")


def judge(kind: Kind, directory: Path, end: End, cause: str, *, resumed: bool = False) -> tuple[End, str]:
    """The end of an attempt whose records are in `directory`, given what its exit record says. A kind that promises one line of JSON fails
    without it, and when it fails its last words on stderr are the reason: it speaks for people there. A kind with a protocol is done when
    it says so itself, of all that it was told to do: an exit status of 0 is not enough. One that was `resumed` and could not go on with
    its conversation did nothing: it is lost, and begins anew."""
    if (said := heard(kind, directory)) is not None:
        if resumed and end is End.FAILED and not said.began:
            return (
                End.LOST,
                f"{COULD_NOT}: {said.reason or one_line(untrusted_fs.last_line(directory / 'stderr.log'))[:WORDS_MAX] or cause}",
            )
        return _by_its_words(said, end, cause)
    if kind.output != "one json line":
        return end, cause
    if end is End.FAILED:
        words = one_line(untrusted_fs.last_line(directory / "stderr.log"))[:WORDS_MAX]
        return end, f"{cause}: {words}" if words else cause
    breach = result.not_one_json_line(untrusted_fs.read_plain(directory / "stdout.log", OUTPUT_MAX) or b"") if end is End.DONE else ""
    return (End.FAILED, breach) if breach else (end, cause)


def _by_its_words(said: Outcome, end: End, cause: str) -> tuple[End, str]:
    wrong = "; ".join(filter(None, (said.reason, _denied(said))))
    if end is End.DONE and wrong:
        return End.FAILED, wrong
    if end is End.DONE and not said.ended:
        return End.FAILED, "it exited with 0 but printed no result, so nobody knows whether its work is complete"
    return end, f"{cause}: {wrong}" if end is End.FAILED and wrong else cause


def _denied(said: Outcome) -> str:
    return f"it was not allowed to use {listed(said.denials, DENIALS_SHOWN)}" if said.denials else ""


def heard(kind: Kind, directory: Path) -> Outcome | None:
    """What the agent of an attempt said of its work. None: its kind has no protocol that we read, or it owned its terminal."""
    stdout = printed(kind, directory)
    return None if stdout is None else protocols.read(kind.protocol, stdout) or Outcome()


def printed(kind: Kind, directory: Path) -> bytes | None:
    """What it printed by its protocol; of a long log the beginning and the end."""
    if kind.protocol not in protocols.PROTOCOLS:
        return None
    log = directory / "stdout.log"
    stdout = untrusted_fs.read_plain(log, HEAD + TAIL)
    if stdout is None:
        return None
    if len(stdout) == HEAD + TAIL:
        stdout = stdout[:HEAD] + b"\n" + (untrusted_fs.read_plain(log, TAIL, tail=True) or b"")
    return stdout


def shape(said: Outcome) -> dict[str, Any]:
    """As `agent` in `result.json`."""
    return {
        "message": said.message,
        "denials": list(said.denials),
        "reason": said.reason,
        "steps": said.steps,
        "tokens": None if said.usage is None else {kind: getattr(said.usage, kind) for kind in _TOKENS},
        "cost_usd": None if said.cost_usd is None else round(said.cost_usd, 6),
        "models": list(said.models),
        "session": said.session or None,
        "transcript": said.transcript or None,
    }


def structured(said: Outcome) -> Any:
    """What it gave for the schema that it was asked to fill; None when that is too large for a record."""
    return said.structured if len(json.dumps(said.structured)) <= STRUCTURED_MAX else None


def beyond_exit_status(said: Outcome, spent: Spent, *, first: bool) -> tuple[dict[str, int], float | None] | None:
    """Return the tokens by kind, and the dollars where it says them, that an agent counted, that the gateway never saw and that were not
    charged before; None when there are none. Where the gateway saw some, only far more than that counts, and of a `first` attempt alone:
    one that goes on with a conversation may count what it took before."""
    if said.usage is None or spent.input is None:
        return None
    own = {kind: getattr(said.usage, kind) for kind in _TOKENS}
    known = {kind: getattr(spent, kind) or 0 for kind in _TOKENS}
    seen = sum(known.values()) - spent.past + spent.kept
    if seen > 0 and (not first or (spent.estimated and not spent.past) or sum(own.values()) < 2 * seen + 1000):
        return None
    left = {kind: max(0, own[kind] - known[kind]) for kind in _TOKENS}
    return (left, (said.cost_usd or None) if left == own else None) if any(left.values()) else None


def notes(said: Outcome, spent: Spent) -> tuple[str, ...]:
    """What is odd about it, beside the gateway's account of the same attempt."""
    found = []
    if said.unfinished:
        found.append(f"it ended while this went on in its background: {', '.join(said.unfinished)}")
    if said.structured is not None and structured(said) is None:
        found.append(f"its structured output is larger than {STRUCTURED_MAX} bytes and is in stdout.log only")
    if differ := ", ".join(_differences(said, spent)):
        found.append(f"its own account differs from the gateway's: {differ}")
    return tuple(found)


def _differences(said: Outcome, spent: Spent) -> Iterator[str]:
    """Where neither account is an estimate, and no kept answer was given, they count the same answers. The gateway's has those to cut
    connections and to agents inside the agent as well."""
    if spent.kept:
        return
    if said.usage is not None and spent.input is not None and not spent.estimated:
        for kind in _TOKENS:
            own, known = getattr(said.usage, kind), getattr(spent, kind) or 0
            if own != known:
                yield f"{kind.replace('_', ' ')} {own:,} against {known:,} tokens"
    if said.cost_usd is not None and spent.cost_usd is not None and abs(said.cost_usd - spent.cost_usd) > CENTS:
        yield f"{money(said.cost_usd)} against {money(spent.cost_usd)}"
