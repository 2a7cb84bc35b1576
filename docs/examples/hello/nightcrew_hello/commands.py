"""`nightcrew hello`: ask the supervisor, and print what it says."""

import click

from supervisor.client import protocol
from supervisor.host.paths import home


@click.command()
@click.argument("name", default="world")
def command(name: str) -> None:
    """Greet, and say how many agents live."""
    answer = protocol.call(home().daemon_socket, "hello", {"name": name})
    click.echo(f"hello {answer['hello']}, {answer['living']} agents live")
