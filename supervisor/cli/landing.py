"""Following a train, and what is said of it at its end."""

from __future__ import annotations

import contextlib
import shlex
import time

from supervisor.cli import common
from supervisor.core.errors import NeedsHuman
from supervisor.core.landing import EntryState, Train, TrainState, is_open
from supervisor.faces import landing as text
from supervisor.host.paths import Home
from supervisor.ledger import trains
from supervisor.ledger.trains import TrainRow

LOOK_S = 0.2
_NEWS = frozenset({EntryState.PASSED, EntryState.EJECTED, EntryState.CONTAINED, EntryState.REPAIRING})


def follow(where: Home, name: str, *, quiet: bool) -> TrainRow:
    """Print what is decided of each result, until the train rests."""
    shown: dict[int, EntryState] = {}
    supervisor = common.SupervisorWatch(where)
    into = ""
    try:
        with contextlib.closing(common.ledger(where)) as db:
            while True:
                row = trains.one(db, name)
                into = shlex.quote(row.train.branch)
                if not quiet:
                    _news(row.train, shown)
                if not is_open(row.train.state):
                    return row
                supervisor.look()
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        common.say(f"the train goes on; nightcrew land --follow, nightcrew land --stop --into {into}")
        raise


def _news(train: Train, shown: dict[int, EntryState]) -> None:
    for entry in train.entries:
        if entry.state in _NEWS and shown.get(entry.position) is not entry.state:
            shown[entry.position] = entry.state
            common.show(text.line(train, entry))


def conclude(row: TrainRow) -> None:
    """Say what came of it and what to do next."""
    train = row.train
    landed, out = _count(train, EntryState.LANDED), _count(train, EntryState.EJECTED)
    match train.state:
        case TrainState.LANDED:
            common.say(f"{train.branch} is at {train.tip[:12]} with {landed} result{'s' if landed != 1 else ''}; {out} left out")
            _next(train)
        case TrainState.EMPTY:
            common.say(
                f"nothing landed: {out} left out, {_count(train, EntryState.CONTAINED)} had nothing new; {train.branch} is as it was"
            )
            _next(train)
        case _:
            common.say(f"{text.summary(train)}; {train.branch} is as it was")
            if train.by_hand:
                common.show(train.by_hand)
            common.say(
                f"next: nightcrew land --resume --into {shlex.quote(train.branch)}" + (", or the line above" if train.by_hand else "")
            )


def _next(train: Train) -> None:
    if left := [entry.task for entry in train.entries if entry.state is EntryState.EJECTED]:
        more = f", and {len(left) - 1} more" if left[1:] else ""
        common.say(f"to see what was left out: nightcrew review {left[0]}{more}; then retry it, or take what you mend by hand")


def exit_code(train: Train) -> int:
    """0 when every result is in, 1 when one was left out, 8 when a person has to do something."""
    if train.state is TrainState.STOPPED:
        return NeedsHuman.exit_code
    return 1 if any(entry.state is EntryState.EJECTED and not _replaced(train, entry.repair) for entry in train.entries) else 0


def _replaced(train: Train, repair: str) -> bool:
    return bool(repair) and any(entry.task == repair and entry.state is EntryState.LANDED for entry in train.entries)


def _count(train: Train, state: EntryState) -> int:
    return sum(entry.state is state for entry in train.entries)
