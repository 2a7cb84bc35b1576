"""`nightcrew metrics token`, `config` and `show`."""

from __future__ import annotations

import click

from supervisor.client import common
from supervisor.host.paths import home
from supervisor.kernel.errors import NotRunning


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
    from supervisor.features.metrics import token as scrape_token

    where = home()
    made = scrape_token.ensure(where.metrics_token, new=new)
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
    from supervisor.features.metrics import token as scrape_token
    from supervisor.gateway import process_lock

    where = home()
    record = process_lock.read(where)
    scrape_token.ensure(where.metrics_token)
    if record is None:
        raise NotRunning("nobody has served metrics here yet", kept="the token", hint="nightcrew up -d, then the same again")
    click.echo(scrape_token.job(where.metrics_token, record.port), nl=False)


@command.command()
def show() -> None:
    """Print the page, as Prometheus reads it.

    \b
    nightcrew metrics show | grep nightcrew_tasks
    """
    from supervisor.gateway import status_client

    where = home()
    if not where.gateway_record.exists():
        raise NotRunning("nobody serves metrics here", hint="nightcrew metrics token, then nightcrew up -d")
    click.echo(status_client.fetch(where, status_client.METRICS).decode(), nl=False)
