"""`nightcrew mem` and its subverbs, which are in `supervisor.cli.memory`."""

from __future__ import annotations

import click

from supervisor.cli.memory import crew, moving, reading, writing


@click.group(name="mem")
def command() -> None:
    """What the agents of this repository know together: files that you can read and edit; docs/memory.md.

    \b
    nightcrew mem ls
    nightcrew mem search flaky payment tests
    """


for _verb in (reading.ls, reading.show, reading.search, reading.log, reading.brief):
    command.add_command(_verb)
for _verb in (writing.put, writing.rm, writing.restore, writing.prune, writing.quarantine, writing.approve):
    command.add_command(_verb)
for _verb in (crew.wait, crew.leases, crew.graph, moving.export, moving.import_):
    command.add_command(_verb)
