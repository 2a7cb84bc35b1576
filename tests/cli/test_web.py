"""`nightcrew web`: one server of a home, where it listens, what it leaves."""

from __future__ import annotations

import json
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.views.web import serving
from tests.support import House
from tests.views.web.conftest import Served


@pytest.fixture
def served(house: House, tmp_path: Path) -> Iterator[Served]:
    house.home.root.mkdir(mode=0o700)
    made = Served(house, tmp_path)
    made.start("--port", "0")
    yield made
    made.end(signal.SIGKILL)


def test_one_server_with_one_address_that_the_next_one_keeps(house: House, served: Served) -> None:
    first = served.url
    assert first.startswith("http://127.0.0.1:")
    assert house.ok("web").strip() == first and json.loads(house.ok("web", "--json"))["url"] == first
    assert house.run("web", "--new-token").returncode == 6
    assert stat.S_IMODE(house.home.web_record.stat().st_mode) == 0o600
    assert served.end() == 0
    served.start()
    assert served.url == first, "the same port, the same token: a browser goes on"
    served.end()
    served.start("--new-token")
    assert served.url.partition("?")[0] == first.partition("?")[0] and served.url != first


def test_it_listens_on_this_machine_alone(served: Served) -> None:
    import psutil

    listens = [tuple(one.laddr) for one in psutil.Process(served.pid).net_connections() if one.status == psutil.CONN_LISTEN]
    assert [address for address, _ in listens] == ["127.0.0.1"]


def test_what_it_refuses(house: House) -> None:
    missing = house.run("web")
    assert missing.returncode == 4 and "nothing was ever run here" in missing.stderr
    house.home.root.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = house.run("web", "--port", str(taken.getsockname()[1]))
    assert busy.returncode == 6 and "another process has it" in busy.stderr
    assert house.run("web", "--name", "http://x").returncode == 2
    assert not house.home.web_record.exists()


@pytest.mark.parametrize("left", [b"", b"{}", b"[]", b"\xff", b'{"schema": 1, "secret": "zz", "port": 1, "identity": null}', b"9" * 5000])
def test_a_record_that_makes_no_sense_is_none(house: House, left: bytes) -> None:
    house.home.root.mkdir(mode=0o700)
    house.home.web_record.write_bytes(left)
    assert serving.read(house.home) is None
