"""`nightcrew metrics token`, `config` and `show`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from supervisor.client import common
from supervisor.host import files, secrets
from supervisor.host.paths import home
from supervisor.kernel.errors import NotFound, NotRunning


@click.group(name="metrics")
def command() -> None:
    """Let Prometheus scrape the crew; docs/observability.md lists every metric.

    \b
    nightcrew metrics token
    nightcrew metrics config >> prometheus.yml
    """


@command.command()
@click.option("--new", is_flag=True, help="Make another one; the one before opens nothing any more.")
@common.json_option
def token(new: bool, as_json: bool) -> None:
    """Write the token of a scraper into a file that you alone can read, unless it is there, and print the file's path.

    It opens the page of metrics and nothing else. To take it back, remove the file.

    \b
    nightcrew metrics token
    nightcrew metrics token --new
    """

    where = home()
    made = ensure(where.metrics_token, new=new)
    if as_json:
        common.print_json(file=str(where.metrics_token), made=made)
        return
    click.echo(str(where.metrics_token))
    common.say("the token is new" if made else "the token was there already; --new makes another one")


@command.command()
def config() -> None:
    """Print the scrape job for `scrape_configs` of prometheus.yml, with the token's file and the port that is served now.

    \b
    nightcrew metrics config
    """
    from supervisor.gateway import lifecycle

    where = home()
    record = lifecycle.read_record(where)
    ensure(where.metrics_token)
    if record is None:
        raise NotRunning("nobody has served metrics here yet", kept="the token", hint="nightcrew up -d, then the same again")
    click.echo(job(where.metrics_token, record.port), nl=False)


@command.command()
def show() -> None:
    """Print the page, as Prometheus reads it.

    \b
    nightcrew metrics show | grep nightcrew_tasks
    """
    from supervisor.gateway import pages

    where = home()
    if not where.gateway_record.exists():
        raise NotRunning("nobody serves metrics here", hint="nightcrew metrics token, then nightcrew up -d")
    click.echo(pages.fetch(where, pages.METRICS).decode(), nl=False)


# Token
# -----
# The token with which a scraper reads the metrics: a random word in a file of its own, and the job of Prometheus that sends it.


PREFIX = "ncm_"
_BYTES = 24


def ensure(path: Path, *, new: bool = False) -> bool:
    """Have a token in the file (0600), in a private directory; whether it was made by this. Raises Refused when a file is there that
    others can read or that is no token, DiskFull."""
    files.private_dir(path.parent)
    if not new:
        try:
            secrets.key(path)
        except NotFound:
            pass
        else:
            return False
    files.atomic_write(path, f"{PREFIX}{os.urandom(_BYTES).hex()}\n".encode())
    return True


def job(path: Path, port: int) -> str:
    """One entry of `scrape_configs`."""
    return f"""\
  - job_name: nightcrew
    scrape_interval: 15s
    authorization:
      credentials_file: {json.dumps(str(path))}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""
