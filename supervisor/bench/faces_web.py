"""The figures of the page in `nightcrew bench faces`: what browsers cost the server, how soon they know of a change, what a look takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from supervisor.bench.figures import milli
from supervisor.bench.workspace import nightcrew
from supervisor.core.errors import TimedOut

_WAIT_S = 30.0
_SETTLE_S = 5.0
Submit = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    clients: int = 20
    steady_s: float = 60.0
    events: int = 20
    paints: int = 5


def measure(env: Mapping[str, str], repo: Path, submit: Submit, options: Options) -> dict[str, Any]:
    """`submit` hands a task of that name over and returns when it is committed."""
    with _server(env, repo) as (url, process):
        found = asyncio.run(_by_clients(url, process, submit, options))
        return {"clients": options.clients, **found, "first_paint_ms": _first_paint(url, options.paints)}


@contextlib.contextmanager
def _server(env: Mapping[str, str], repo: Path) -> Iterator[tuple[str, psutil.Process]]:
    pipe = subprocess.PIPE
    started = subprocess.Popen(nightcrew("web", "--port", "0"), env=env, cwd=repo, stdout=pipe, text=True, start_new_session=True)
    try:
        yield (started.stdout.readline() if started.stdout else "").strip(), psutil.Process(started.pid)
    finally:
        started.terminate()
        started.wait(timeout=_WAIT_S)
        if started.stdout is not None:
            started.stdout.close()


class _Browser:
    """One EventSource, read as a browser does."""

    def __init__(self) -> None:
        self.rows: dict[str, float] = {}
        """When each row came, in monotonic seconds."""
        self.came = asyncio.Event()

    async def read(self, http: aiohttp.ClientSession, address: str) -> None:
        async with http.get(address, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line.startswith(b"data:"):
                    self._take(json.loads(line[5:]))

    def _take(self, said: Mapping[str, Any]) -> None:
        for key in said.get("set", ()):
            self.rows.setdefault(key, time.monotonic())
        self.came.set()

    async def knows(self, name: str) -> float:
        """When it came to know a task of that name."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                self.came.clear()
                for key, at in self.rows.items():
                    if key.endswith(f"/{name}"):
                        return at
                await self.came.wait()


async def _by_clients(url: str, process: psutil.Process, submit: Submit, options: Options) -> dict[str, Any]:
    base = url.partition("/enter")[0]
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**24
    ) as http:
        key = await _entered(http, url)
        size = await _size(http, base)
        browsers = [_Browser() for _ in range(options.clients)]
        tasks = [asyncio.create_task(one.read(http, f"{base}/events?topic=crew&key={key}")) for one in browsers]
        try:
            await _all_know(browsers)
            await asyncio.sleep(_SETTLE_S)
            cpu = await _cpu(process, options.steady_s)
            took = [await _event(browsers, submit, f"e{number:03}") for number in range(options.events)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return {"cpu_percent": cpu, "event_ms_p50": milli(statistics.median(took)), "page_kb": round(size / 1000, 1)}


async def _entered(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        found = re.search(r"#key=([0-9a-f]{64})", await answer.text())
    if found is None:
        raise TimedOut("the page did not open", on=url.partition("?")[0])
    return found[1]


async def _all_know(browsers: list[_Browser]) -> None:
    async with asyncio.timeout(_WAIT_S):
        for one in browsers:
            await one.came.wait()


async def _cpu(process: psutil.Process, seconds: float) -> float:
    """Processor time of the server and of what it starts, in percent of one core."""
    before, began = _used_s(process), time.monotonic()
    await asyncio.sleep(seconds)
    return round(100 * (_used_s(process) - before) / (time.monotonic() - began), 2)


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


async def _event(browsers: list[_Browser], submit: Submit, name: str) -> float:
    """Seconds from before a task is handed over until half of the browsers know of it."""
    began = time.monotonic()
    await asyncio.to_thread(submit, name)
    return statistics.median([await one.knows(name) for one in browsers]) - began


async def _size(http: aiohttp.ClientSession, base: str) -> int:
    """Bytes of the first page with all that it needs."""
    seen, wanted = dict[str, int](), ["/"]
    while wanted:
        path = wanted.pop()
        async with http.get(base + path) as answer:
            answer.raise_for_status()
            text = await answer.text()
        seen[path] = len(text.encode())
        named = [f"/static/{name}" for name in re.findall(r'from "\./([^"]+)"', text)] + re.findall(r'(?:href|src)="(/static/[^"]+)"', text)
        wanted += [one for one in named if one not in seen and one not in wanted]
    return sum(seen.values())


def _first_paint(url: str, times: int) -> float | None:
    """Milliseconds from the address to the first content, in Chromium; None where that, or playwright, is not there."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if program is None:
        return None
    base = url.partition("/enter")[0]
    with sync_playwright() as driver, contextlib.closing(driver.chromium.launch(executable_path=program, args=["--no-sandbox"])) as browser:
        page = browser.new_page()
        page.goto(url)
        page.wait_for_url(f"{base}/")
        found = []
        for _ in range(times):
            page.goto(f"{base}/")
            page.wait_for_selector(".row")
            found.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        return milli(statistics.median(found) / 1000)
