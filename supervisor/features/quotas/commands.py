"""`nightcrew quota NAME`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from supervisor.client import common
from supervisor.host.paths import home
from supervisor.kernel.errors import BudgetSpent, NotRunning, TimedOut, UsageError
from supervisor.kernel.format import duration

ANSWER_S = 60.0
"""Beyond what it was asked to wait, a supervisor takes no longer than this to answer."""
SERVED_S = 1.0
"""Who was kept waiting for longer had found a supervisor."""
AWAY_S = 60.0
"""Who waits gives a supervisor so much time to come back from a restart."""


@click.command()
@click.argument("name")
@click.option("--wait", "waiting", is_flag=True, help="Wait for one's turn instead of ending with exit code 7.")
@click.option("--timeout", type=common.Duration(), help='With --wait: give up after this long ("90s", "10m"), with exit code 124.')
@common.json_option
def command(name: str, waiting: bool, timeout: float | None, as_json: bool) -> int:
    """Take a ticket of a quota of config.toml; exit code 7 when there is none now.

    Agents call it before what must not be done too often. Who waits is served in order, and tasks take turns.

    \b
    nightcrew quota search && curl https://search.example/...
    nightcrew quota search --wait --timeout 10m
    """
    if timeout is not None and not waiting:
        raise UsageError("--timeout goes with --wait", hint=f"nightcrew quota {name} --wait --timeout {timeout:g}")
    wait_s = timeout if waiting else 0.0
    answer = _ask(name, wait_s)
    if as_json:
        common.print_json(**answer)
    if answer["taken"]:
        return 0
    if waiting:
        raise TimedOut(
            "no ticket of",
            on=name,
            why=f"{duration(timeout)} passed; the next one in {duration(answer['next_s'])}",
            hint=f"nightcrew quota {name} --wait",
        )
    raise BudgetSpent("no ticket of", on=name, why=f"the next one in {duration(answer['next_s'])}", hint=f"nightcrew quota {name} --wait")


def _ask(name: str, wait_s: float | None) -> dict[str, Any]:
    """The supervisor's answer. One that goes away while we wait is asked again, by its successor too."""
    ends_at = None if wait_s is None else time.monotonic() + wait_s
    away_since: float | None = None
    while True:
        asked_at = time.monotonic()
        left_s = None if ends_at is None else max(0.0, ends_at - asked_at)
        try:
            return _call({"quota": name, "wait_s": left_s}, None if left_s is None else left_s + ANSWER_S)
        except NotRunning:
            now = time.monotonic()
            if away_since is None or now - asked_at > SERVED_S:
                away_since = now
            if wait_s == 0.0 or now - away_since > AWAY_S or (ends_at is not None and now > ends_at):
                raise
            time.sleep(0.2)


def _call(args: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
    from supervisor.client import protocol, start

    if token := os.environ.get("NIGHTCREW_TOKEN", ""):
        door = os.environ.get("NIGHTCREW_AGENTS_SOCKET") or home().agents_socket
        return protocol.call(Path(door), "quota", args, timeout_s=timeout_s, token=token)
    return start.ask(home(), "quota", args, timeout_s=timeout_s)
