"""The figures of `nightcrew bench faces`: what the screen costs beside a crew of many, how soon it answers, and the line for a prompt.

The agents are real: shells in panes of a supervisor of their own that print a line every few seconds. The screen is the real program on a
terminal of ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import resource
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench import faces_api, faces_web
from supervisor.bench.aims import Aim, rows
from supervisor.bench.figures import milli
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import commit_all, machine, nightcrew, private_place
from supervisor.core.errors import TimedOut
from supervisor.core.spec import TaskSpec
from supervisor.ledger import queries

_COLUMNS, _ROWS = 120, 40
_UP_S, _KEY_S = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    agents: int = 200
    steady_s: float = 60.0
    """How long the screen is left alone while its processor time is taken."""
    keys: int = 50
    starts: int = 5
    lines: int = 20
    """How often the line for a prompt is asked for."""
    web: faces_web.Options = field(default_factory=faces_web.Options)
    api: faces_api.Options = field(default_factory=faces_api.Options)


QUICK = Options(
    agents=20, steady_s=10.0, keys=10, starts=2, lines=5,
    web=faces_web.Options(steady_s=10.0, events=5, paints=2), api=faces_api.Options(alone=30, together=150),
)  # fmt: skip
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
    Aim("cpu_ms.start", name="processor time of a start", unit="ms"),
    Aim("cpu_ms.statusline", name="and of the line", unit="ms"),
)


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report; docs/bench.md describes every key."""
    say(json.dumps(machine()))
    with private_place(under) as root:
        repo = root / "repo"
        repo.mkdir()
        (repo / "README").write_text("hello\n")
        commit_all(repo)
        with SupervisedRun(root / "state", options.agents) as run:
            say(f"{options.agents} agents come up")
            names = _crew(run, repo, options.agents)
            env = {**os.environ, "NIGHTCREW_HOME": str(run.home.root), "TERM": "xterm-256color"}
            say("the line for a prompt")
            line = [_timed_line(env, repo) for _ in range(options.lines)]
            say("the screen starts")
            starts = [_start(env, repo) for _ in range(options.starts)]
            say(f"the screen, left alone for {options.steady_s:g} s, and {options.keys} keys")
            top = _look(env, repo, names, options)
            say(f"the page, {options.web.clients} browsers for {options.web.steady_s:g} s")
            web = faces_web.measure(env, repo, lambda name: _one_more(run, repo, name), options.web)
        submitting = faces_api.measure(options.api, root / "api", repo, say)
    return {
        "api": submitting,
        "top": {"agents": options.agents, **top, "start_ms": milli(statistics.median(wall for wall, _ in starts))},
        "web": web,
        "statusline_ms": milli(statistics.median(wall for wall, _ in line)),
        "cpu_ms": {name: milli(statistics.median(cpu for _, cpu in some)) for name, some in (("start", starts), ("statusline", line))},
    }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join([f"{report['top']['agents']} agents", *rows(AIMS, report)])


def _crew(run: SupervisedRun, repo: Path, count: int) -> list[str]:
    """Their full ids, in the order in which the screen has them, once all run."""
    script = 'n=0; while :; do n=$((n+1)); echo "step $n of many"; sleep 5; done'
    tasks = [TaskSpec(name=f"a{number:03}", title=f"part {number}", kind="shell", argv=("sh", "-c", script)) for number in range(count)]
    name = run.submit(run.repository(repo), tasks)
    until(lambda: all(view.attempt_state == "running" for view in run.views(name)), f"{count} agents to run")
    return [view.id for view in sorted(run.views(name), key=_started)]


def _one_more(run: SupervisedRun, repo: Path, name: str) -> None:
    run.submit(run.repository(repo), [TaskSpec(name=name, title=name, kind="shell", argv=("true",))])


def _started(view: queries.TaskView) -> float:
    return view.started or view.created or 0.0


def _timed_line(env: Mapping[str, str], repo: Path) -> tuple[float, float]:
    """Seconds that passed, and of the processor."""
    before, began = _children_cpu_s(), time.monotonic()
    subprocess.run([sys.executable, "-I", "-m", "nightcrew", "statusline"], env=env, cwd=repo, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began, _children_cpu_s() - before


def _start(env: Mapping[str, str], repo: Path) -> tuple[float, float]:
    """The same of a start, until the crew is painted."""
    began = time.monotonic()
    with _Screen(env, repo) as screen:
        screen.reads(b"WORKING")
        return time.monotonic() - began, screen.cpu_s()


def _look(env: Mapping[str, str], repo: Path, names: list[str], options: Options) -> dict[str, float]:
    with _Screen(env, repo) as screen:
        screen.reads(b"WORKING")
        screen.rests(5.0)
        before, began = screen.cpu_s(), time.monotonic()
        screen.rests(options.steady_s)
        cpu = (screen.cpu_s() - before) / (time.monotonic() - began)
        keys = [screen.pressed(b"\x1b[B", name.encode()) for name in names[1 : options.keys + 1]]
        return {"cpu_percent": round(100 * cpu, 2), "rss_mb": round(screen.rss() / 2**20, 1), "key_ms_p50": milli(statistics.median(keys))}


class _Screen:
    """`nightcrew top` on a terminal of ours."""

    def __init__(self, env: Mapping[str, str], repo: Path) -> None:
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            nightcrew("top"), env=env, cwd=repo, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._known = psutil.Process(self._process.pid)

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

    def cpu_s(self) -> float:
        """Of the processor, with those of its children that have ended."""
        times = self._known.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)

    def rss(self) -> int:
        """Bytes of memory."""
        return int(self._known.memory_info().rss)

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


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
