"""The browser that the tests of pages share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.views.browsing import CHROMIUM, DESK, Opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for the file, closed after it: playwright's event loop must not be there when other tests start theirs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # No sandbox: root and most containers cannot have one, and the only page is our own.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Opened]:
    """What pages that ask for nothing of their own are opened in, one after the other: another window for each took half of such a test."""
    context = browser.new_context()
    yield watched(context)
    context.close()


def watched(context: Any) -> Opened:
    """A new page of the context, which notes what it does."""
    made = Opened(context.new_page())
    made.page.on("request", lambda request: made.requests.append(request.url))
    made.page.on("console", lambda message: made.noise.append(message.text))
    made.page.on("pageerror", lambda error: made.noise.append(str(error)))
    made.page.on("dialog", made.on_dialog)
    return made


@pytest.fixture
def open_page(browser: Any, window: Opened, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the text of a page from a file, in a window of a size and in a colour scheme; `options` are playwright's, for a window of its
    own."""
    with contextlib.ExitStack() as stack:

        def opened(text: str, size: tuple[int, int] = DESK, *, scheme: str = "light", **options: Any) -> Opened:
            file = tmp_path / "page.html"
            file.write_text(text, encoding="utf-8")
            made = window
            if options:
                context = browser.new_context(**options)
                stack.callback(context.close)
                made = watched(context)
            made.page.goto("about:blank")
            made.requests.clear()
            made.noise.clear()
            made.page.set_viewport_size({"width": size[0], "height": size[1]})
            made.page.emulate_media(color_scheme=scheme, media="null")
            made.page.goto(file.as_uri())
            return made

        yield opened
