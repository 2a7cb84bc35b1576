"""`nightcrew web`."""

from __future__ import annotations

import getpass
import re
import sys
import webbrowser

import click

from supervisor.client import common
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import Refused, UsageError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Of 127.0.0.1 (default: that of before, or 8421; 0: any).")
@click.option("--open", "show", is_flag=True, help="Open it in your browser.")
@click.option("--read-only", is_flag=True, help="Show, and let nobody act.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Under which a proxy of yours shows it by https; repeatable.")
@click.option("--new-token", is_flag=True, help="Make what was printed before worthless, and end every session.")
@common.json_option
def command(port: int | None, show: bool, read_only: bool, names: tuple[str, ...], new_token: bool, as_json: bool) -> None:
    """Show the crew on a page of this machine, live, and act there as with the verbs.

    It serves 127.0.0.1 alone until Ctrl-C, and prints the address to open, which holds the token. A second one prints
    the same address and leaves.

    \b
    nightcrew web --open
    nightcrew web --read-only --name laptop.tailnet.ts.net
    """
    from supervisor.views.web import serving

    for name in names:
        if _HOST.fullmatch(name) is None:
            raise UsageError("not the name of a host", on=name, hint="nightcrew web --name laptop.tailnet.ts.net")
    where = home()
    handle = serving.lock(where)
    if handle is None:
        if new_token:
            raise Refused("the page is served already", why="a new token needs a new server", hint="end that one, then again")
        _tell(_address_of_other(where), show=show, as_json=as_json)
        return
    _serve(where, port, names, read_only=read_only, new_token=new_token, show=show, as_json=as_json)


def _serve(where: Home, port: int | None, names: tuple[str, ...], *, read_only: bool, new_token: bool, show: bool, as_json: bool) -> None:
    from supervisor.cli.main import VERBS
    from supervisor.views.web import serving
    from supervisor.views.web import serving as record
    from supervisor.views.web import serving as wiring

    known = record.read(where)
    secret = record.new_secret() if new_token or known is None else known.secret
    wanted = serving.Wanted(port, names, read_only, getpass.getuser())
    serving.serve(
        where, wanted, secret, wiring.features(where, VERBS), wiring.tokens(where), lambda url: _tell(url, show=show, as_json=as_json)
    )


def _address_of_other(where: Home) -> str:
    from supervisor.views.web import serving
    from supervisor.views.web import serving as record
    from supervisor.views.web import serving as wiring

    known = record.read(where)
    if known is None:
        raise Refused("the page is served already", why="it has not said where", hint="again")
    return serving.address(known.secret, known.port, wiring.tokens(where))


def _tell(url: str, *, show: bool, as_json: bool) -> None:
    if as_json:
        common.print_json(url=url)
    else:
        click.echo(url)
        common.say("the page is at this address, for whoever has it; Ctrl-C ends its server, agents go on")
    sys.stdout.flush()
    if show and not webbrowser.open(url):
        common.say("no browser could be opened here: open the address yourself")
