"""`nightcrew doctor`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.core.errors import UsageError, one_line
from supervisor.host.paths import home

_SHOWN = 100
"""Lines of what was lost."""


@click.command()
@click.option("--fix", is_flag=True, help="Mend what is safe, and say each; then look again.")
@click.option("--recover-ledger", "ledger", is_flag=True, help="Make a whole ledger of what can be read of a damaged one.")
@click.option("--recover-account", "account", is_flag=True, help="The same for the gateway's account of requests.")
@common.json_option
def command(fix: bool, ledger: bool, account: bool, as_json: bool) -> int:
    """Check this machine, the programs that nightcrew needs, and what it keeps here. Exit code 1 when something does not work.

    --fix sets the mode of our own directories, closes sessions of ours without an attempt when no supervisor runs, and makes git forget
    worktrees of ours that were removed by hand. For the rest it prints what a person does.

    --recover-ledger reads a damaged ledger row by row and puts a whole one in its place. It says what was lost, keeps the damaged file
    beside it, and is refused while a supervisor runs.

    \b
    nightcrew doctor
    nightcrew doctor --fix
    nightcrew doctor --json | jq '.checks[] | select(.state != "ok")'
    nightcrew doctor --recover-ledger
    """
    if ledger or account:
        if fix or (ledger and account):
            raise UsageError("one of these at a time", on="--fix, --recover-ledger, --recover-account")
        return _recover("ledger" if ledger else "account", as_json)
    from supervisor.doctor import check_context, examine, output

    here = check_context.here()
    checked = examine.examine(here)
    mended = examine.mend(checked) if fix else []
    for one in mended:
        common.say(one_line(f"{one['name']}: {one['what']}" if one["done"] else f"{one['name']} could not be mended: {one['what']}"))
    if mended:
        checked = examine.without_failed(examine.examine(here), mended)
    if as_json:
        common.print_json(**output.shape(checked, mended))
    else:
        for line in output.lines(checked, common.width(), color=common.use_color()):
            common.show(line)
        common.say(output.summary(checked))
    return 1 if output.counts(checked)["fail"] else 0


def _recover(name: str, as_json: bool) -> int:
    from supervisor.doctor import recovery

    report = {"ledger": recovery.ledger, "account": recovery.account}[name](home())
    kept = str(report.kept) if report.kept is not None else None
    if as_json:
        common.print_json(database=name, whole=kept is None, kept=kept, saved=report.saved, lost=report.lost)
    elif kept is None:
        common.show(f"the {name} is whole: nothing was done")
    else:
        common.show(f"saved: {', '.join(f'{table} {count:,}' for table, count in report.saved.items())}")
        for line in report.lost[:_SHOWN]:
            common.show(one_line(line))
        if len(report.lost) > _SHOWN:
            common.say(f"and {len(report.lost) - _SHOWN} more: nightcrew audit show")
        common.say(f"the {name} is whole again; the damaged one is {kept}; next: nightcrew up -d")
    return 0
