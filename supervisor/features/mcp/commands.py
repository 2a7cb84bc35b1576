"""`nightcrew mcp`, and telling Claude Code and Codex of it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click

from supervisor.client import common
from supervisor.kernel.errors import Refused, ToolFailed, ToolMissing, UsageError, last_line

# Mcp
# ---
# `nightcrew mcp`.


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
        from supervisor.features.mcp.agent import serve
    else:
        from supervisor.features.mcp.person import serve
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

    order = order_install(client, scope)
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
    carry_out(order)
    common.say(f"done; {client} starts it in its next session")


# Install
# -------
# Telling Claude Code and Codex of `nightcrew mcp`, by their own commands: they alone know how their files are written.


NAME = "nightcrew"
ENOUGH_S = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run, and the file that it changes."""

    argv: list[str]
    file: str
    known: bool
    """The file has an entry of that name already."""

    @property
    def shown(self) -> str:
        """As a person would type it."""
        return shlex.join(self.argv)


def order_install(client: str, scope: str) -> Order:
    """How `client` is told. Raises ToolMissing when it is not on the PATH, UsageError for a scope that it has not."""
    if shutil.which(client) is None:
        raise ToolMissing("no program", on=client, why="it is not on the PATH", hint="nightcrew kinds ls")
    ours = [_ourselves(), "mcp"]
    if client == "claude":
        file = _claude_file(scope)
        return Order([client, "mcp", "add", "--scope", scope, NAME, "--", *ours], str(file), _in_claude(file, scope))
    if scope != "user":
        raise UsageError("bad value", on="--scope", why="codex has one file, the user's", hint="nightcrew mcp install codex")
    file = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"
    return Order([client, "mcp", "add", NAME, "--", *ours], str(file), _in_codex(file))


def carry_out(what: Order) -> None:
    """Run it. Raises ToolFailed with what the client said; it has changed nothing then."""
    try:
        done = subprocess.run(what.argv, capture_output=True, text=True, timeout=ENOUGH_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailed("cannot run", on=what.shown, why=str(error), kept=what.file) from None
    if done.returncode:
        raise ToolFailed("it refused", on=what.shown, why=last_line(done.stderr or done.stdout), kept=what.file)


def _ourselves() -> str:
    """This very nightcrew, also from a shell in which it is not on the PATH."""
    return shutil.which(sys.argv[0]) or shutil.which(NAME) or NAME


def _claude_file(scope: str) -> Path:
    if scope == "project":
        return Path.cwd() / ".mcp.json"
    own = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(own) / ".claude.json" if own else Path.home() / ".claude.json"


def _in_claude(file: Path, scope: str) -> bool:
    try:
        shape = json.loads(file.read_text(encoding="utf-8"))
        place = shape["projects"][str(Path.cwd())] if scope == "local" else shape
        return NAME in place["mcpServers"]
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that Claude Code itself has to judge
        return False


def _in_codex(file: Path) -> bool:
    try:
        return NAME in tomllib.loads(file.read_text(encoding="utf-8"))["mcp_servers"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
