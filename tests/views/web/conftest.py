"""One crew, one server and one browser for the file: a real supervisor with real agents, and the page that shows them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.agents.turns import acp_agent
from tests.server.test_answering import DIALOG
from tests.support import House, make_repository, plan_of, shell_task, wait_until
from tests.views.browsing import DESK, Opened
from tests.views.conftest import watched

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\u200b"
SAYS = r"printf '\033[31mred\033[0m \033[38;2;1;2;3mown\033[0m <script>alert(2)</script>\033]0;owned\007\033]52;c;b3duZWQ=\007\n'"
STEPS = "i=0; while :; do i=$((i+1)); echo step $i; sleep 0.3; done"
NAME = "<svg onload=alert(4)>.py"
CHANGES = f"sed -i 's/sum(items)/max(items)/' mod.py; echo 'x = \"<script>alert(3)</script>\"' > '{NAME}'"
EDITS = ["sh", "-c", f'{CHANGES}; exec "$0" -S -c "$1"', sys.executable, Path(acp_agent.__file__).read_text()]
"""An agent that takes prompts, and has changed something before the first."""


class Served:
    """`nightcrew web` of a house, as a child of the test."""

    def __init__(self, house: House, root: Path) -> None:
        self.house, self._said = house, root / "web.out"
        self._process: Any = None

    def start(self, *words: str) -> None:
        """Begin to serve, and wait until it says where."""
        self._said.write_text("")
        with self._said.open("ab") as out:
            self._process = warm.start(("web", *words), self.house.repo, self.house.env, out.fileno(), out.fileno(), session=True)
        wait_until(lambda: "http://" in self._said.read_text(), f"the page: {self._said.read_text()}")

    @property
    def url(self) -> str:
        """What it printed."""
        return next(line for line in self._said.read_text().splitlines() if line.startswith("http://"))

    @property
    def base(self) -> str:
        """The same without the token."""
        return self.url.partition("/enter")[0]

    @property
    def pid(self) -> int:
        """Of the server."""
        pid: int = self._process.pid
        return pid

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it, and its exit code."""
        os.kill(self.pid, number)
        code: int = self._process.wait()
        return code


@pytest.fixture(scope="module")
def crewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A crew that works, asks, has ended, and calls things what nobody should."""
    root = tmp_path_factory.mktemp("web")
    made = House(root, make_repository(root / "repo", {"README": "hello\n", "mod.py": "def total(items):\n    return sum(items)\n"}))
    tasks = [
        shell_task("works", f"{SAYS}; {STEPS}"),
        shell_task("asks", DIALOG, kind="terminal"),
        shell_task("reads", "read line; echo heard $line; sleep 600", kind="terminal"),
        shell_task("edits", EDITS, kind="acp", prompt="touch made", sandbox=0, title=HOSTILE),
        shell_task("bad", "echo first; exit 7"),
        shell_task("later", "true", after=["works"]),
    ]
    try:
        made.start_daemon()
        made.ok("run", "-d", made.plan(plan_of(tasks)))
        wait_until(lambda: made.state("edits") == "done" and made.state("bad") == "failed", "the first to end")
        yield made
    finally:
        made.reap()


@pytest.fixture(scope="module")
def served(crewed: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its page."""
    made = Served(crewed, tmp_path_factory.mktemp("served"))
    made.start("--port", "0")
    yield made
    made.end()


@pytest.fixture(scope="module")
def desk(browser: Any, served: Served) -> Iterator[Opened]:
    """A window that entered by the printed address, which visits that ask for nothing of their own share: to open another and to enter
    there takes half of what such a test does."""
    context = browser.new_context()
    yield entered(context, served)
    context.close()


def entered(context: Any, served: Served) -> Opened:
    """A new page of the context, entered by the printed address."""
    context.set_default_timeout(20_000)
    made = watched(context)
    made.page.goto(served.url)
    made.page.wait_for_url(f"{served.base}/")
    return made


def leave(page: Any) -> None:
    """It asks the server for nothing more, and is as it was opened."""
    page.emulate_media(color_scheme="light")
    page.goto("about:blank")


@pytest.fixture
def visit(request: pytest.FixtureRequest, browser: Any, served: Served) -> Iterator[Callable[..., Opened]]:
    """Opens the page at a path; fails for whatever a page said on its console. `fresh` or an option of the browser's: in a window that
    nobody has used, which enters by the printed address."""
    with contextlib.ExitStack() as after:

        def opened(path: str = "/", size: tuple[int, int] = DESK, *, noise: bool = False, fresh: bool = False, **options: Any) -> Opened:
            if fresh or options:
                context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
                after.callback(context.close)
                made = entered(context, served)
            else:
                made = request.getfixturevalue("desk")
                made.page.set_viewport_size({"width": size[0], "height": size[1]})
                made.requests.clear()
                made.noise.clear()
                after.callback(leave, made.page)
            if not noise:
                after.callback(made.check_silent)
            if made.page.url != served.base + path:
                made.page.goto(served.base + path)
            return made

        yield opened
