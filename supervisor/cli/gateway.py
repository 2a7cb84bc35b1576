"""`nightcrew gateway status`, `cache`, `metrics`, `reload`, `replay` and `sim`."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
from typing import Any

import click

from supervisor.client import common
from supervisor.client.resolving import run_id
from supervisor.contract import load
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound, NotRunning, ToolFailed
from supervisor.store import queries

_NONE = "no gateway runs here"
_START = "nightcrew up -d with a provider's key, docs/gateway.md"


@click.group(name="gateway")
def command() -> None:
    """Look at the process through which all model traffic goes; docs/gateway.md says what it does.

    \b
    nightcrew gateway status --watch
    """


@command.command()
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until Ctrl-C.")
@common.json_option
def status(watch: bool, as_json: bool) -> None:
    """Show who uses how much of the limit, who waits, what it costs, and every breaker with its forecast.

    While no gateway runs: the last five minutes that the account knows of.

    \b
    nightcrew gateway status
    nightcrew gateway status --json
    """
    from supervisor.views import gateway

    where = home()
    if watch:
        from supervisor.cli.status import show_again

        show_again("nightcrew gateway status", lambda: _frame(where), as_json=as_json)
    shape = gateway.look(where, time.time())
    if shape is not None:
        gateway.add_slow(shape, where)
    if as_json:
        common.print_json(**(gateway.printed(shape) if shape else {"running": False, "why": _NONE}))
    elif shape is None:
        common.say(f"{_NONE}; next: {_START}")
    else:
        common.show(gateway.text(shape, time.time(), width=common.width(), color=common.use_color()))


def _frame(where: Home) -> str:
    from supervisor.views import gateway

    shape, now = gateway.look(where, time.time()), time.time()
    if shape is None:
        return f"{_NONE}; next: {_START}"
    rows = shutil.get_terminal_size().lines - 1
    return gateway.text(shape, now, width=common.width() - 1, color=common.use_color(), rows=rows)


def _with_gateway() -> Home:
    """The home, where a gateway has been: asking for one makes the secret, which a fresh home has no place for."""
    where = home()
    if not where.gateway_record.exists():
        raise NotRunning(_NONE, hint=_START)
    return where


@command.command()
@click.option("--purge", is_flag=True, help="Remove every answer that is kept for the same request.")
@common.json_option
def cache(as_json: bool, purge: bool) -> None:
    """Show which part of the input was read from caches, by agent and by beginning of the prompt, and where prompts stopped sharing.

    A prompt is computed again from the first byte that differs from the prompt before it. That place is named with the text around it
    where `record` is set. What is held is written every 30 s.

    \b
    nightcrew gateway cache
    nightcrew gateway cache --purge
    """
    if purge:
        shutil.rmtree(home().answers, ignore_errors=True)
        common.say("no answer is kept any more; what is under way may be")
        return
    from supervisor.gateway.account import queries as reading
    from supervisor.gateway.account import schema
    from supervisor.views import gateway

    with contextlib.closing(schema.connect_readonly(home().gateway_account)) as db:
        shape = reading.cache(db, time.time() - 86400)
    if as_json:
        common.print_json(**shape)
    else:
        common.show(gateway.cache_text(shape))


@command.command()
def metrics() -> None:
    """Print the metrics, as Prometheus reads them; `nightcrew metrics show` does the same.

    \b
    nightcrew gateway metrics | grep nightcrew_llm_tokens
    """
    from supervisor.gateway import pages

    click.echo(pages.fetch(_with_gateway(), pages.METRICS).decode(), nl=False)


@command.command()
def reload() -> None:
    """Have the gateway read its settings and keys again; streams and queues stay.

    \b
    nightcrew gateway reload
    """
    from supervisor.gateway import pages

    pages.ask(_with_gateway(), pages.RELOAD, post=True, timeout_s=pages.RELOAD_S)
    common.say("the gateway has read its settings again")


@command.command()
@click.argument("run", shell_complete=run_id)
@click.option("-p", "--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1 (default: a free one).")
@click.option("--paced", is_flag=True, help="Answer as slowly as the provider did.")
def replay(run: str, port: int, paced: bool) -> None:
    """Give the recorded answers of RUN to the same requests, with no provider and no key, until Ctrl-C. Needs `record` in the settings.

    The same request is the same address and the same bytes: a client that puts a new session id or the time into its requests is not
    answered.

    \b
    nightcrew gateway replay 1121-k3f9 --port 8080
    """
    import asyncio

    from supervisor.gateway import replay as server
    from supervisor.gateway.account import schema

    where = home()
    if not where.gateway_account.exists():
        _must_be(where, run)
        raise NotFound("no recording of", on=run, why="no request ever went through a gateway here", hint="nightcrew gateway status")
    with contextlib.closing(schema.connect_readonly(where.gateway_account)) as db:
        try:
            shelf = server.Shelf(db, where.recordings, run)
        except NotFound:
            _must_be(where, run)
            raise

    def ready(bound: int) -> None:
        click.echo(f"http://127.0.0.1:{bound}")
        common.say(f"{len(shelf)} recorded answers of {run}; Ctrl-C ends it")

    asyncio.run(server.serve(shelf, port, ready, paced=paced))


def _must_be(where: Home, run: str) -> None:
    """Raise NotFound when there is a ledger and it knows of no such run: that is another mistake than a run of which nothing was kept."""
    if where.ledger.exists():
        with contextlib.closing(common.ledger(where, run)) as db:
            queries.run(db, run)


@command.command()
@click.option("-p", "--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1 (default: a free one).")
@click.option("--rpm", type=click.FloatRange(min=0, min_open=True), help="Requests a minute (default: 1,000).")
@click.option("--itpm", type=click.FloatRange(min=0, min_open=True), help="Input tokens a minute (default: 80,000).")
@click.option("--otpm", type=click.FloatRange(min=0, min_open=True), help="Output tokens a minute (default: 16,000).")
@click.option("--tpm", type=click.FloatRange(min=0, min_open=True), help="Input and output in one limit, instead of the two.")
@click.option("--latency", "latency_s", type=common.Duration(), default=0.0, help="Until the first byte of an answer, such as 800ms or 2s.")
@click.option(
    "--head", "head_s", type=common.Duration(), default=0.0, help="So much later still, with headers as of when the request was counted."
)
@click.option(
    "--burst", "burst_s", type=click.FloatRange(min=0, min_open=True), default=60.0, help="Seconds of refill in a bucket (default: 60)."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the answers' lengths.")
def sim(rpm: float | None, itpm: float | None, otpm: float | None, tpm: float | None, **how: Any) -> None:
    """Run a simulated provider, which limits and fails as the real ones do, and costs nothing. Its texts say that they are simulated.

    It speaks the APIs of Anthropic, OpenAI and Gemini. Point an [upstream] at it with key = "none", or a client.

    \b
    nightcrew gateway sim --port 8765 --itpm 20000
    nightcrew gateway sim --itpm 450000 --burst 12 --head 1.5
    """
    from supervisor.kernel.gateway_settings import Limits

    usual = load("nightcrew.plugins.sim.settings:LIMITS")
    limits = Limits(rpm=rpm or usual.rpm, itpm=itpm or usual.itpm, otpm=otpm or usual.otpm)
    if tpm is not None:
        limits = Limits(rpm=rpm or usual.rpm, itpm=itpm, otpm=otpm, tpm=tpm)

    def announce(url: str) -> None:
        click.echo(url)
        common.say(f"a simulated provider, seed {settings.seed}; Ctrl-C ends it")

    settings = load("nightcrew.plugins.sim:SimSettings")(needs_key=False, limits=limits, **how)
    try:
        load("nightcrew.plugins.sim:serve")(settings, announce)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "another program has this port" if error.errno == errno.EADDRINUSE else "it is not for ordinary users"
        raise ToolFailed("cannot listen", on=f"127.0.0.1:{settings.port}", why=why, hint="give another --port") from None
