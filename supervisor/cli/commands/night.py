"""`nightcrew night run`, `list` and what else is about nights; each subverb is a file of `supervisor.cli.night`."""

from __future__ import annotations

from supervisor.cli.lazy_group import LazyGroup

SUBVERBS = {
    "run": "Run a plan until a deadline and within a cost cap.",
    "check": "Look whether a night can go well, before you sleep.",
    "install": "Have a plan run by itself at a time of day.",
    "uninstall": "Remove an installed night.",
    "list": "List the nights, the newest first.",
    "report": "Write the morning report of a night, or of any run.",
}
"""Every subverb in the order in which `--help` shows them, with its line there."""

command = LazyGroup(
    "supervisor.cli.night",
    SUBVERBS,
    name="night",
    help="""Run a plan through the night, within a deadline and a cost cap; docs/night.md.

    \b
    nightcrew night run plan.toml --until 06:30 --cost-max 40
    """,
)
