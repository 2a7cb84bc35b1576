"""The browser that the tests of pages share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.browsing import CHROMIUM, DESK, Opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for the file, closed after it: playwright's event loop must not be there when other tests start theirs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # No sandbox: root and most containers cannot have one, and the only page is our own.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the text of a page from a file, in a window of a size; `options` are playwright's."""
    with contextlib.ExitStack() as stack:

        def opened(text: str, size: tuple[int, int] = DESK, **options: Any) -> Opened:
            file = tmp_path / "page.html"
            file.write_text(text, encoding="utf-8")
            context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
            stack.callback(context.close)
            made = Opened(context.new_page())
            made.page.on("request", lambda request: made.requests.append(request.url))
            made.page.on("console", lambda message: made.noise.append(message.text))
            made.page.on("pageerror", lambda error: made.noise.append(str(error)))
            made.page.on("dialog", made.on_dialog)
            made.page.goto(file.as_uri())
            return made

        yield opened
