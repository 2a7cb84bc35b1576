"""The frame of every page: navigation, an empty middle, and the place where things are said. It holds nothing of the crew."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from supervisor.faces.web.feature import Page

_FRAME = """<!doctype html>
<html lang="en" data-page="{name}"{read_only}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/web.css">
<script type="module" src="/static/{script}"></script>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header id="top">
<nav aria-label="Pages"><a class="brand" href="/">nightcrew</a>{nav}</nav>
<p id="link" role="status" aria-label="Connection"></p>
</header>
<main id="main" tabindex="-1"></main>
<div id="said" role="status" aria-live="polite"></div>
<noscript>This page needs JavaScript. nightcrew status and nightcrew top need none.</noscript>
</body>
</html>
"""
CLOSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nightcrew</title><link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/web.css"></head>
<body><main id="main" class="closed"><h1>nightcrew</h1>
<p>This browser has no session here. Open the address that <code>nightcrew web</code> prints: it holds the token.</p></main></body></html>
"""

_ENTERED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>nightcrew</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<meta http-equiv="refresh" content="0;url=/#key={key}"></head><body></body></html>
"""


def entered(key: str) -> str:
    """On to the first page. The key stays in the fragment, which no server is sent. Not by a redirect: after one that another site began,
    a browser would keep a strict cookie back."""
    return _ENTERED.format(key=escape(key))


def frame(page: Page, pages: Sequence[Page], *, read_only: bool) -> str:
    """The page as it is served."""
    return _FRAME.format(
        name=escape(page.script.partition(".")[0]),
        read_only=" data-read-only" if read_only else "",
        title=escape(f"{page.title} - nightcrew" if page.title else "nightcrew"),
        script=escape(page.script),
        nav="".join(_link(one, page) for one in pages if one.nav),
    )


def _link(one: Page, shown: Page) -> str:
    here = ' aria-current="page"' if one.path == shown.path else ""
    return f'<a href="{escape(one.path)}"{here}>{escape(one.nav)}</a>'
