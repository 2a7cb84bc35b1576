"""A page of ours in a real Chromium, and what it did there that it must not do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="the browser tests need Chromium (Debian: apt-get install chromium)")
DESK, PHONE = (1280, 800), (360, 740)


@dataclass
class Opened:
    """A page of ours, and what it did that it must not do."""

    page: Any
    requests: list[str] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)

    def on_dialog(self, dialog: Any) -> None:
        self.noise.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check_quiet(self) -> None:
        """Nothing was fetched but the page itself; nothing was said on the console; no dialog was opened."""
        assert self.requests == [self.page.url]
        self.check_silent()

    def check_silent(self) -> None:
        """Nothing was said on the console; no dialog was opened."""
        assert self.noise == []

    def check_fits(self) -> None:
        """No part of the page is wider than the screen."""
        width, screen = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= screen

    def open_all(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
