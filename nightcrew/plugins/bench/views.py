"""`nightcrew bench faces`: what the screen, the page and the API cost."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import statistics
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from nightcrew.client import AsyncClient
from nightcrew.plugins.bench.crews import (
    Busy,
    Say,
    SupervisedRun,
    commit_all,
    environ,
    nightcrew,
    timed,
)
from nightcrew.plugins.bench.figures import Aim, median_ms, milli, quantile
from supervisor.kernel.errors import TimedOut
from supervisor.kernel.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    agents: int = 200
    steady_s: float = 60.0
    """How long the screen, and then the page, is left alone while its processor time is taken."""
    keys: int = 50
    starts: int = 5
    lines: int = 20
    """How often the line for a prompt is asked for."""
    browsers: int = 20
    events: int = 20
    paints: int = 5
    alone: int = 200
    """Tasks submitted by the API one after the other."""
    together: int = 1000
    clients: int = 16
    """That submit at once, of `together`."""


QUICK = Options(agents=20, steady_s=10.0, keys=10, starts=2, lines=5, events=5, paints=2, alone=30, together=150)

# The API
# -------
# What a program waits for when it hands a task over by the API: to the answer that says that it is on disk.
#
# A supervisor and a server of their own, and one slot that is taken: what is submitted waits, so that no agent's start is measured
# with it.


def measure_api(options: Options, root: Path, repo: Path, say: Say) -> dict[str, Any]:
    """Return `requests_per_s` with many clients, and `submit_ms_p50` and `p99` of one."""
    with SupervisedRun(root, 1) as run:
        run.living(repo, TaskSpec(name="holds-the-slot", title="", kind="shell", argv=("sleep", "3600")))
        token = timed(root, "token", "create", "bench", "--unconfined", "--rate", "10000", cwd=repo)[1].strip()
        with _server(root, repo) as (url, _):
            say(f"{options.alone} tasks one after the other, then {options.together} by {options.clients} clients")
            return asyncio.run(_submitting(options, AsyncClient(_base(url), token)))


async def _submitting(options: Options, client: AsyncClient) -> dict[str, Any]:
    async with client as crew:
        await _submitted(crew, "first")
        alone = [await _submitted(crew, f"a{number}") for number in range(options.alone)]
        began, numbers = time.monotonic(), iter(range(options.together))
        await asyncio.gather(*(_client(crew, numbers) for _ in range(options.clients)))
        per_s = options.together / (time.monotonic() - began)
    return {"requests_per_s": round(per_s, 1), "submit_ms_p50": median_ms(alone), "p99": milli(quantile(alone, 0.99))}


async def _client(crew: AsyncClient, numbers: Iterator[int]) -> None:
    for number in numbers:
        await _submitted(crew, f"t{number}")


async def _submitted(crew: AsyncClient, key: str) -> float:
    began = time.monotonic()
    await crew.submit(command="true", key=key)
    return time.monotonic() - began


@contextlib.contextmanager
def _server(root: Path, repo: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The page's server over the state directory `root`: the address that opens it, and its process."""
    argv = nightcrew("web", "--port", "0")
    with subprocess.Popen(argv, env=environ(root), cwd=repo, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip(), psutil.Process(process.pid)
        finally:
            process.terminate()


def _base(url: str) -> str:
    return url.partition("/enter")[0]


# The page
# --------
# What browsers cost the page's server, how soon they know of a change, what a look takes.


_WAIT_S = 30.0
_SETTLE_S = 5.0
Submit = Callable[[str], object]


def measure_page(root: Path, repo: Path, submit: Submit, options: Options) -> dict[str, Any]:
    """Return the figures `web`. `submit` hands a task of that name over and returns when it is committed."""
    with _server(root, repo) as (url, process):
        found = asyncio.run(_by_browsers(url, process, submit, options))
        return {"clients": options.browsers, **found, "first_paint_ms": _first_paint(url, options.paints)}


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


async def _by_browsers(url: str, process: psutil.Process, submit: Submit, options: Options) -> dict[str, Any]:
    base = _base(url)
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**24
    ) as http:
        key = await _entered(http, url)
        size = await _size(http, base)
        browsers = [_Browser() for _ in range(options.browsers)]
        tasks = [asyncio.create_task(one.read(http, f"{base}/events?topic=crew&key={key}")) for one in browsers]
        try:
            await _all_know(browsers)
            await asyncio.sleep(_SETTLE_S)
            busy = Busy(process, children=True)
            await asyncio.sleep(options.steady_s)
            cpu = busy.percent()
            took = [await _event(browsers, submit, f"e{number:03}") for number in range(options.events)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return {"cpu_percent": cpu, "event_ms_p50": median_ms(took), "page_kb": round(size / 1000, 1)}


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
    base = _base(url)
    with sync_playwright() as driver, contextlib.closing(driver.chromium.launch(executable_path=program, args=["--no-sandbox"])) as browser:
        page = browser.new_page()
        page.goto(url)
        page.wait_for_url(f"{base}/")
        found = list[float]()
        for _ in range(times):
            page.goto(f"{base}/")
            page.wait_for_selector(".row")
            found.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        return round(statistics.median(found), 2)


# The screen
# ----------
# What it costs beside a crew of many, how soon it answers, and the line for a prompt.
#
# The agents are real: shells in panes of a supervisor of their own that print a line every few seconds. The screen is the real
# program on a terminal of ours.


_COLUMNS, _ROWS = 120, 40
_UP_S, _KEY_S = 60.0, 10.0


AIMS = (
    Aim("top.cpu_percent", 5, name="processor time of the screen beside a crew that works, % of one core"),
    Aim("top.rss_mb", 120, name="its memory", unit="MB"),
    Aim("top.key_ms_p50", 50, name="from a key to its paint, p50", unit="ms"),
    Aim("top.start_ms", 400, name="from the command to the crew on the screen", unit="ms"),
    Aim("web.cpu_percent", 5, name="processor time of the page's server with its browsers, % of one core"),
    Aim("web.event_ms_p50", 200, name="from a submission to the browsers, p50", unit="ms"),
    Aim("web.first_paint_ms", 500, name="the first paint in Chromium", unit="ms"),
    Aim("web.page_kb", 300, name="the first page with all that it needs", unit="kB"),
    Aim("statusline_ms", 60, name="the line for a prompt", unit="ms"),
    Aim("api.requests_per_s", 200, at_least=True, name="tasks submitted by the API, 16 clients", unit="a second"),
    Aim("api.submit_ms_p50", 15, name="one of them, to the answer that it is on disk, p50", unit="ms"),
    Aim("api.p99", name="p99", unit="ms"),
)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key."""
    repo, state = root / "repo", root / "state"
    repo.mkdir()
    (repo / "README").write_text("hello\n")
    commit_all(repo)
    with SupervisedRun(state, options.agents) as run:
        say(f"{options.agents} agents come up")
        names = _crew(run, repo, options.agents)
        say("the line for a prompt")
        line = [timed(state, "statusline", cwd=repo)[0] for _ in range(options.lines)]
        say("the screen starts")
        starts = [_start(state, repo) for _ in range(options.starts)]
        say(f"the screen, left alone for {options.steady_s:g} s, and {options.keys} keys")
        top = _look(state, repo, names, options)
        say(f"the page, {options.browsers} browsers for {options.steady_s:g} s")
        known = run.repository(repo)
        web = measure_page(state, repo, lambda name: run.submit(known, [TaskSpec(name, name, "shell", ("true",))]), options)
    return {
        "api": measure_api(options, root / "api", repo, say),
        "top": {"agents": options.agents, **top, "start_ms": median_ms(starts)},
        "web": web,
        "statusline_ms": median_ms(line),
    }


def _crew(run: SupervisedRun, repo: Path, count: int) -> list[str]:
    """Return their full ids, in the order in which the screen has them, once all run."""
    script = 'n=0; while :; do n=$((n+1)); echo "step $n of many"; sleep 5; done'
    tasks = [TaskSpec(f"a{number:03}", f"part {number}", "shell", ("sh", "-c", script)) for number in range(count)]
    return [view.id for view in sorted(run.living(repo, *tasks), key=lambda view: view.started or view.created or 0.0)]


def _start(root: Path, repo: Path) -> float:
    """Return the seconds from the command until the crew is painted."""
    began = time.monotonic()
    with _Screen(root, repo) as screen:
        screen.reads(b"WORKING")
        return time.monotonic() - began


def _look(root: Path, repo: Path, names: list[str], options: Options) -> dict[str, float]:
    with _Screen(root, repo) as screen:
        screen.reads(b"WORKING")
        screen.rests(5.0)
        busy = Busy(screen.process, children=True)
        screen.rests(options.steady_s)
        cpu = busy.percent()
        keys = [screen.pressed(b"\x1b[B", name.encode()) for name in names[1 : options.keys + 1]]
        return {"cpu_percent": cpu, "rss_mb": round(screen.process.memory_info().rss / 2**20, 1), "key_ms_p50": median_ms(keys)}


class _Screen:
    """`nightcrew top` on a terminal of ours."""

    def __init__(self, root: Path, repo: Path) -> None:
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        env = environ(root) | {"TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            nightcrew("top"), env=env, cwd=repo, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.process = psutil.Process(self._process.pid)

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            os.write(self._end, b"q")
        try:
            self.rests(0.2)
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._end)

    def rests(self, seconds: float) -> None:
        """Read what it paints meanwhile: a terminal that nobody reads would hold it up."""
        for _ in self._pieces(seconds):
            pass

    def reads(self, text: bytes, seconds: float = _UP_S) -> None:
        """Until `text` was painted. Raises TimedOut."""
        seen = b""
        for piece in self._pieces(seconds):
            seen = (seen + piece)[-65536:]
            if text in seen:
                return
        raise TimedOut("the screen did not show", on=text.decode())

    def pressed(self, key: bytes, text: bytes) -> float:
        """Seconds from a key to the paint of `text`."""
        self.rests(0.05)
        began = time.monotonic()
        os.write(self._end, key)
        self.reads(text, _KEY_S)
        return time.monotonic() - began

    def _pieces(self, seconds: float) -> Iterator[bytes]:
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0:
            if select.select([self._end], [], [], left)[0]:
                try:
                    yield os.read(self._end, 65536)
                except OSError:  # it has ended
                    return
