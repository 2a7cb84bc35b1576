"""What an attempt took from the models, read from the gateway's account for its result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict

from supervisor.gateway import pages
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.queries import Spans, Totals
from supervisor.gateway.admission.types import Usage
from supervisor.host.paths import Home
from supervisor.kernel.errors import BudgetSpent, DiskFull, NightcrewError
from supervisor.kernel.format import money
from supervisor.kernel.result import Spent
from supervisor.kernel.spec import TaskSpec
from supervisor.store.rows import AttemptRow

SETTLED_S = 2.0
"""A request whose client died is settled within a second."""
_LOOK_S = 0.05


def of_attempt(home: Home, task: str, epoch: int, *, expected: bool) -> Spent:
    """The attempt's sums; its agent must be gone. Blocks for at most about SETTLED_S, while requests of it are still being settled.

    `expected`: it could reach a gateway. All None where it could not, or the account cannot be read; then a note says so. Raises DiskFull.
    """
    if not home.gateway_account.exists():
        return Spent(notes=("its tokens are not known: the gateway keeps no account yet",)) if expected else Spent()
    try:
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            deadline = time.monotonic() + SETTLED_S
            while (totals := reading.usage_of_attempt(db, task, epoch)).under_way and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            first = reading.first_of_attempt(db, task, epoch)
            spans = reading.spans_of_attempt(db, task, epoch)
            past = reading.past(db, task, epoch)
    except DiskFull:
        raise  # there will be room again
    except NightcrewError as error:
        return Spent(notes=(f"its tokens are not known: {error.line()}",))
    return _spent(totals, first, spans, past) if expected or totals.requests or totals.under_way else Spent()


def is_asking(home: Home, task: str, epoch: int) -> bool:
    """Whether a request of the attempt is under way. Raises what reading the account raises."""
    if not home.gateway_account.exists():
        return False
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.usage_of_attempt(db, task, epoch).under_way > 0


def past_of(home: Home, task: str) -> int:
    """Return the tokens that the agents of a task took past the gateway, by their own accounts. Raises what reading the account raises."""
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.past(db, task)


def used_up(home: Home, task: str, cost_max: float, tokens_max: int) -> str:
    """Return why nothing of a task may start or go on: its agent went past the gateway, which can refuse it nothing, and has used up a
    cap by its own account; else empty. Raises what reading the account raises."""
    if not (cost_max or tokens_max) or not home.gateway_account.exists():
        return ""
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        if not reading.past(db, task):
            return ""
        dollars, tokens, _ = reading.spent(db, task)
    if tokens_max and tokens >= tokens_max:
        return f"tokens_max of the task {task} is {tokens_max:,}: {tokens:,} are taken"
    if cost_max and dollars >= cost_max:
        return f"cost_max of the task {task} is {money(cost_max)}: {money(dollars)} is spent"
    return ""


def refuse_used_up(home: Home, task: str, cost_max: float, tokens_max: int, what: str) -> None:
    """Raise BudgetSpent where `used_up` says why. `what`: the words of what is refused."""
    if why := used_up(home, task, cost_max, tokens_max):
        hint = f"nightcrew status {task}; a new task has a budget of its own"
        raise BudgetSpent(what, on=task, why=f"{why}, past the gateway, by its agent's own account", kept="its work", hint=hint)


def unserved(home: Home, task: str, epoch: int) -> str:
    """Why no provider served the last request of an attempt that has ended; empty when one did, or nobody knows."""
    if not home.gateway_account.exists():
        return ""
    with contextlib.suppress(NightcrewError), contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.unserved(db, task, epoch)
    return ""


def dollars(home: Home, task: str) -> float:
    """The most that a task can have cost by now, over all its attempts, with the requests under way. Raises what reading the account
    raises."""
    if not home.gateway_account.exists():
        return 0.0
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.counted_of(db, task) + reading.under_way_usd(db, task)


def charge_past(home: Home, row: AttemptRow, spec: TaskSpec, model: str, took: tuple[Mapping[str, int], float | None], after: int) -> str:
    """Have the gateway count what an attempt took past it, `took` as `kind_protocol.past` gives it, against every cap; empty, or why it
    could not. `after`: the tokens of this attempt that were charged so before; where that is no longer so, nothing is charged. May be
    repeated."""
    tokens, cost = took
    body: dict[str, object] = {
        "task": row.task,
        "epoch": row.epoch,
        "class": str(spec.task_class),
        "model": model,
        "tokens": dict(tokens),
        "cost_usd": cost,
    }
    body["after"] = after
    try:
        pages.fetch(home, pages.PAST, post=True, body=body)
    except NightcrewError as error:
        return f"it took {sum(tokens.values()):,} tokens past the gateway by its own account, and no cap counts them: {error.line()}"
    return ""


def _spent(totals: Totals, first: Usage | None, spans: Spans, past: int) -> Spent:
    late = f"{totals.under_way} of its requests were not settled yet, so its tokens and cost are too low" if totals.under_way else ""
    kept = f"answers that were kept saved it {totals.kept:,} tokens" if totals.kept else ""
    return Spent(
        input=totals.tokens.input,
        output=totals.tokens.output,
        cache_read=totals.tokens.cache_read,
        cache_write=totals.tokens.cache_write,
        estimated=totals.estimated,
        cost_usd=None if totals.cost_usd is None else round(totals.cost_usd, 6),
        models=tuple(map(asdict, totals.models)),
        waited_s=round(totals.wait_s, 3),
        notes=tuple(filter(None, (late, _went_past(past), kept))),
        past=past,
        kept=totals.kept,
        busy=spans.busy,
        queued=spans.queued,
        first=None if first is None else (first.input, first.cache_read, first.cache_write),
    )


def _went_past(tokens: int) -> str:
    if not tokens:
        return ""
    return f"its model calls went past the gateway: {tokens:,} tokens by its own account, which count against its caps"
