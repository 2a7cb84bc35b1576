"""`nightcrew doctor`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.core.errors import one_line


@click.command()
@click.option("--fix", is_flag=True, help="Mend what is safe, and say each; then look again.")
@common.json_option
def command(fix: bool, as_json: bool) -> int:
    """Check this machine, the programs that nightcrew needs, and what it keeps here. Exit code 1 when something does not work.

    --fix sets the mode of our own directories, removes our own dead sockets, closes sessions of ours without an attempt when no
    supervisor runs, and makes git forget worktrees of ours that were removed by hand. For the rest it prints what a person does.

    \b
    nightcrew doctor
    nightcrew doctor --fix
    nightcrew doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    from supervisor.doctor import examine, page, place

    here = place.here()
    checked = examine.examine(here)
    mended = examine.mend(checked) if fix else []
    for one in mended:
        common.say(one_line(f"{one['name']}: {one['what']}" if one["done"] else f"{one['name']} could not be mended: {one['what']}"))
    if mended:
        checked = examine.without_failed(examine.examine(here), mended)
    if as_json:
        common.print_json(**page.shape(checked, mended))
    else:
        for line in page.lines(checked, common.width(), color=common.use_color()):
            common.show(line)
        common.say(page.summary(checked))
    return 1 if page.counts(checked)["fail"] else 0
