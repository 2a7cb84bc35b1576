"""`nightcrew mcp`."""

from __future__ import annotations

import os

import click

from supervisor.cli import common
from supervisor.core.errors import Refused


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Serve the crew as tools, by the Model Context Protocol on stdin and stdout, for a coding agent of yours.

    \b
    nightcrew mcp install claude          # once; your sessions then conduct
    nightcrew mcp install codex --print   # what it would do
    """
    if ctx.invoked_subcommand is not None:
        return
    if os.environ.get("NIGHTCREW_TOKEN"):  # started by an agent of ours: it has its own tasks, not the person's
        from supervisor.cli.mcp.agent import serve
    else:
        from supervisor.cli.mcp.person import serve
    serve()


@command.command()
@click.argument("client", type=click.Choice(["claude", "codex"]))
@click.option("--scope", type=click.Choice(["user", "project", "local"]), default="user", show_default=True, help="Claude Code's scopes.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be done, and do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common.json_option
def install(client: str, scope: str, only_print: bool, yes: bool, as_json: bool) -> None:
    """Tell Claude Code or Codex of nightcrew mcp, by their own command; what is done is shown first, and asked.

    \b
    nightcrew mcp install claude
    nightcrew mcp install claude --scope project --yes
    """
    from supervisor.cli.mcp import install as installing

    order = installing.order(client, scope)
    if as_json:
        common.print_json(client=client, command=order.argv, file=order.file, known=order.known, done=not (only_print or order.known))
    elif only_print:
        click.echo(order.shown)
    if only_print:
        return
    if order.known:
        common.say(f"{client} knows nightcrew already, in {order.file}")
        return
    common.say(f"this runs: {order.shown}")
    common.say(f"which adds one entry, nightcrew, to {order.file} and leaves the rest of it as it is")
    if not yes and not click.confirm("nightcrew: do it?", err=True):
        raise Refused("nothing was changed", on=order.file, why="you said no")
    installing.carry_out(order)
    common.say(f"done; {client} starts it in its next session")
