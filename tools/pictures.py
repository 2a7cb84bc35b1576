"""Makes the pictures of the documents, by `make pictures`: a real crew at work with a simulated provider, looked at through tmux and, where
Chromium is, in the browser.

    docs/recording.svg   40 seconds of `nightcrew top`, keys pressed by a clock
    docs/top.svg         one of its frames
    docs/web.png         the page of the same crew (`nightcrew web`)

Nothing on them is drawn by hand. One agent, `migrate`, is a stand-in that prints a recorded question of Claude Code and waits for the key;
the others are nightcrew's own agent, whose model is simulated, and commands. A frame that names this machine, its user or a path of it is
refused.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import picture

from nightcrew.plugins.sim.child import Simulator
from supervisor.host.paths import Home
from supervisor.server import gateway_process

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DIALOG = ROOT / "tests/data/screens/claude-2.1.329/permission.txt"
SECONDS, EVERY_S = 40.0, 0.25
COLUMNS, ROWS = 110, 30
SHOWN_AT = 12.0
"""The frame that is the still picture."""
KEYS = (
    (3.0, "End"), (9.0, "w"), (14.0, "a"), (17.0, "2"), (18.0, "/"), (18.5, "login"), (19.5, "Enter"), (25.0, "t"), (27.0, "y"),
    (30.0, "Escape"), (31.0, "w"), (34.0, "1"),
)  # fmt: skip
"""When which key is pressed, in seconds."""
FILES = {
    "prices.py": "def price(amount):\n    return amount * 100\n",
    "login.py": "def login(name):\n    return name\n",
    "test_prices.py": "from prices import price\n\n\ndef test_price():\n    assert price(2) == 200\n",
}
LOGIN = 'def login(name, code=""):\n    """With the second factor."""\n    return name if code in ("", "123456") else None\n'
ABOUT = (
    "nightcrew top: a crew at work for 40 seconds. One agent asks whether it may write a file, is found with w and allowed with a; a "
    "result is looked at as a diff and taken; two tries wait for a choice; one task fails; above are tokens against the limit, and slots"
)


def steps(name: str, count: int, each_s: float, last: str = "true") -> str:
    return f"for n in $(seq {count}); do echo {name} $n of {count}; sleep {each_s}; done; {last}"


def tables() -> list[str]:
    """Of a plan, one a task."""
    asks = f"echo 'reading the schema'; sleep 4; clear; tail -n 24 {shlex.quote(str(DIALOG))}; stty -icanon -echo min 1"
    goes_on = "key=$(dd bs=1 count=1 2>/dev/null); clear; echo '● made.txt is written'; sleep 6; echo x > made.txt"
    tasks: tuple[dict[str, object], ...] = (
        {"id": "migrate", "kind": "terminal", "title": "Migrate the orders table", "command": f"{asks}; {goes_on}"},
        {"id": "login", "kind": "builtin", "title": "Ask for a second factor at login", "prompt": "Add a second factor to login.py."},
        {"id": "discounts", "kind": "builtin", "title": "Add discounts to prices.py", "prompt": "Add discounts to prices.py."},
        {"id": "tests", "title": "Run the whole suite", "command": steps("test", 60, 0.6)},
        {"id": "lint", "title": "Lint", "command": "sleep 7; echo 'prices.py:1: missing docstring' >&2; exit 1"},
        {"id": "docs", "title": "Describe the prices", "command": "true", "after": ["tests"]},
        {"id": "search", "title": "Make search faster", "best_of": 2, "command": steps("indexed", 9, 1, "date > index.txt")},
    )  # fmt: skip
    return ["[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in task.items()) for task in tasks]


class Stage:
    """A crew of its own, in a directory that goes."""

    def __init__(self, root: Path, url: str) -> None:
        self.home, self.repo = Home(root / "state"), root / "shop"
        config = root / "config.toml"
        config.write_text(
            f'slots = 8\n[limits]\ndisk_free_min = 0\n[notify]\nhere = []\n[upstream.sim]\napi = "anthropic"\nurl = "{url}"\n'
        )
        self.home.root.mkdir(mode=0o700)
        self.home.keys.mkdir(mode=0o700)
        (self.home.keys / "sim.key").touch(0o600)
        (self.home.keys / "sim.key").write_text("sk-ant-simulated")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("NIGHTCREW_", "GIT_", "TMUX", "ANTHROPIC_"))}
        own = {"NIGHTCREW_HOME": str(self.home.root), "NIGHTCREW_CONFIG": str(config), "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
        self.env = {**kept, **own, "GIT_CONFIG_GLOBAL": os.devnull}
        self._tmux = ["tmux", "-u", "-f", "/dev/null", "-S", str(root / "t")]
        self.repo.mkdir(parents=True)
        for name, text in FILES.items():
            (self.repo / name).write_text(text)
        for words in (
            ("init", "-qb", "main"),
            ("add", "-A"),
            ("-c", "user.name=dev", "-c", "user.email=dev@shop", "commit", "-qm", "shop"),
        ):
            self._run("git", *words)

    def _run(self, *words: str) -> str:
        return subprocess.run(words, cwd=self.repo, env=self.env, check=True, text=True, stdout=subprocess.PIPE).stdout

    def nightcrew(self, *words: str) -> str:
        return self._run(sys.executable, "-I", "-m", "supervisor.cli.main", *words)

    def terminal(self, *words: str) -> str:
        """A word to the tmux in which the screen is open."""
        return self._run(*self._tmux, *words)

    def open(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        """The screen."""
        top = shlex.join([sys.executable, "-I", "-m", "supervisor.cli.main", "top"])
        self.terminal("new-session", "-d", "-x", str(columns), "-y", str(rows), top)

    def rows(self) -> list[picture.Row]:
        """What is on it."""
        text = self.terminal("capture-pane", "-e", "-p").replace(str(self.repo.parent), "/home/dev")  # as if it were a person's
        return [picture.segments(line) for line in text.rstrip("\n").split("\n")]

    def end(self) -> None:
        """Everything of it."""
        command = [sys.executable, "-I", "-m", "supervisor.cli.main"]
        subprocess.run([*self._tmux, "kill-server"], env=self.env, check=False, capture_output=True)
        for words in (("kill", "--all"), ("wait", "--timeout", "30s"), ("down",)):
            subprocess.run([*command, *words], cwd=self.repo, env=self.env, check=False, capture_output=True)
        for gateway in gateway_process.all_of(self.home):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(gateway.pid, signal.SIGTERM)
        subprocess.run(["tmux", "-S", str(self.home.tmux_socket), "kill-server"], env=self.env, check=False, capture_output=True)


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A crew that has just begun."""
    with tempfile.TemporaryDirectory(prefix="nc", ignore_cleanup_errors=True) as root, Simulator(latency_s=1.5) as sim:
        made = Stage(Path(root), sim.url)
        commit = "git add -A; git -c user.name=agent -c user.email=agent@shop commit -qm 'A second factor'"
        sim.faults(tool="write", tool_input={"path": "login.py", "content": LOGIN}, contains="second factor", times=1)
        sim.faults(tool="bash", tool_input={"command": commit}, contains="second factor", times=1)
        for number in range(40):
            sim.faults(tool="bash", tool_input={"command": f"echo looks at price {number + 1}"}, contains="discounts", times=1)
        sim.faults(text="Login asks for the second factor now.", contains="second factor")
        try:
            made.nightcrew("up", "-d")
            yield made
        finally:
            made.end()


def begin(on: Stage) -> None:
    """Its tasks, the first one by itself: it is the one that is selected."""
    first, *others = tables()
    for number, some in enumerate(([first], others)):
        file = on.repo.parent / f"{number}.toml"
        file.write_text("".join(some))
        on.nightcrew("run", "-d", str(file))
        while number == 0 and on.nightcrew("statusline").strip() != "1W":
            time.sleep(0.05)


def record(on: Stage, seconds: float, keys: Sequence[tuple[float, str]]) -> list[tuple[float, list[picture.Row]]]:
    """The frames of its screen, each since when it was there."""
    on.open()
    while not "".join(part.text for row in on.rows() for part in row).strip():
        time.sleep(0.05)
    began, left, frames = time.monotonic(), list(keys), list[tuple[float, list[picture.Row]]]()
    while (now := time.monotonic() - began) < seconds:
        while left and left[0][0] <= now:
            on.terminal("send-keys", *(["-l"] if len(left[0][1]) > 1 and left[0][1].islower() else []), left.pop(0)[1])
        rows = on.rows()
        if not frames or frames[-1][1] != rows:
            frames.append((round(now / EVERY_S) * EVERY_S if frames else 0.0, rows))
        time.sleep(EVERY_S)
    refuse_names(frames)
    return frames


def refuse_names(frames: Sequence[tuple[float, Sequence[picture.Row]]]) -> None:
    """Of this machine."""
    names = (tempfile.gettempdir() + "/", str(ROOT), str(Path.home()) + "/", f"{getpass.getuser()}@")
    host = rf"(?<!\w){re.escape(socket.gethostname())}(?!\w)"  # a short one may be in a word, or in the name of a run
    known = re.compile("|".join([*map(re.escape, names), host]))
    for at, rows in frames:
        for text in ("".join(part.text for part in row) for row in rows):
            if found := known.search(text):
                raise SystemExit(f"at {at} s the screen names {found[0]}: {text}")


def page(on: Stage, file: Path) -> None:
    """What a browser shows of it."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("no picture of the page: there is no Chromium", file=sys.stderr)
        return
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "web", "--port", "0"]
    with subprocess.Popen(argv, cwd=on.repo, env=on.env, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as play:
        try:
            url = server.stdout.readline().strip() if server.stdout is not None else ""
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
            sheet = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="dark")
            sheet.goto(url)
            for text in ("Allow", "Take", "waits for your choice", "exit code 1", "live"):
                sheet.get_by_text(text).first.wait_for(timeout=60_000)
            sheet.screenshot(path=file)
            browser.close()
        finally:
            server.terminate()


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    print(f"{file.relative_to(ROOT)}  {len(text.encode()) // 1024} kB")


def main() -> None:
    """All of them."""
    with stage() as on:
        begin(on)
        frames = record(on, SECONDS, KEYS)
    still = max(number for number, (at, _) in enumerate(frames) if at <= SHOWN_AT)
    write(DOCS / "recording.svg", picture.animated(ABOUT, frames, SECONDS, COLUMNS, still))
    write(DOCS / "top.svg", picture.screen(ABOUT.partition(":")[0], frames[still][1], COLUMNS))
    with stage() as on:
        begin(on)
        page(on, DOCS / "web.png")


if __name__ == "__main__":
    main()
