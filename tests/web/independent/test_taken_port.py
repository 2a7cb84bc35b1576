"""The port of the page is another program's for a while: what an open page tells it."""

from __future__ import annotations

import http.server
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.views.web import serving
from tests.cli.api.kit import Served
from tests.support import wait_until
from tests.views.browsing import CHROMIUM, NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM


class Thief(http.server.ThreadingHTTPServer):
    """Writes down what it is asked, and answers everything."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", port), _Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Thief)
        self.server.asked.append(f"{self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"proof": "' + b"0" * 64 + b'"}')

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started.new_page()
        started.close()


def test_an_open_page_tells_no_key_to_who_took_the_port(served: Served, page: Any) -> None:
    """Once it sent its cookie and its key to whatever came to listen there, a second later and unasked."""
    page.goto(served.house.ok("web").split()[0])
    page.locator("#link.on").wait_for()
    key = page.evaluate("localStorage.getItem('nightcrew-key')")
    port, before = served.port, serving.read(served.house.home)
    served.stop(signal.SIGTERM)
    thief = Thief(port)
    try:
        wait_until(lambda: len(thief.asked) > 2, "the page to ask again")
        assert len(key) == 64 and not any(key in asked for asked in thief.asked)
        served.start()
        now = serving.read(served.house.home)
        assert before is not None and now is not None and now.port != port
        assert now.secret != before.secret, "whatever browsers told the other one is worth nothing now"
    finally:
        thief.shutdown()
        thief.server_close()
    printed = served.house.ok("web").split()[0]
    page.goto(printed)
    page.locator("#link.on").wait_for()
    assert page.evaluate("localStorage.getItem('nightcrew-key')") != key
