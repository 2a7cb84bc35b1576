"""Tries a kind of agent: its real program, started as tasks of a supervisor with a state directory of its own, against the simulated
provider through a gateway, in a repository and a home made for it. No account and no token of a person's is used.

Three tasks run side by side: one is to edit and commit, one may not use a tool, one is refused by the provider. What each came to is read
where everybody reads it: in the ledger, in `result.json` and in the records of hooks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from agents.kinds import Kind
from nightcrew.plugins.bench.crews import SupervisedRun, make_repository, private_place
from nightcrew.plugins.sim.child import Simulator
from nightcrew.plugins.sim.faults import Fault
from supervisor.host import files
from supervisor.kernel.errors import one_line
from supervisor.kernel.gateway_settings import Limits
from supervisor.kernel.kind import version
from supervisor.kernel.spec import TaskSpec
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier, directories
from supervisor.server.attempts.observe import RECORD
from supervisor.store.queries import TaskView
from supervisor.views import status
from worktrees.repository import Repository

Holds = Literal["ok", "fail", "skip"]
LIMIT_S = 400.0
"""Of each task: the slowest programs that we know take 20 s, and over 180 s at a load of 30, since agents give way."""
ASK_S = 60.0
EDIT, DENIED, REFUSED = "contract-edit", "contract-denied", "contract-refused"
"""Names of the tasks; each prompt has its own, by which the provider tells the conversations apart."""
COMMIT = "echo work > work && git add work && git -c user.name=nightcrew -c user.email=nightcrew@example.invalid commit -q -m work"
MARKER = "ran"
FORBIDDEN = f"python3 -c \"open('{MARKER}', 'w')\""
DONE = "Done.\n\nwork\n```\n<<<<<<< SEARCH\n=======\nwork\n>>>>>>> REPLACE\n```\n"
"""The text of every other answer. A program whose requests offer no tools, such as aider, edits by what stands in it."""
PLENTY = Limits(rpm=10_000, itpm=100_000_000, otpm=10_000_000)
APIS = ("anthropic", "openai", "gemini")
MODELS = {
    "": "claude-opus-4-8",
    "claude": "claude-opus-4-8",
    "codex": "gpt-6.1-sol",
    "gemini": "gemini-2.5-pro",
    "qwen": "gpt-6.1-sol",
    "opencode": "anthropic/claude-sonnet-4-5",
    "aider": "anthropic/claude-sonnet-4-5",
}
"""By program ("" is our own): a name that it takes. The simulated provider answers to any."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a kind should do."""

    name: str
    holds: Holds
    """`skip`: it does not apply, or could not be tried here."""
    seen: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What one task came to."""

    view: TaskView
    records: Path
    changed: bool
    """Its commit holds the file that it was to write."""
    requests: int
    """That the provider was asked in all, by every task."""
    called: bool
    """It was told to call a tool for commands. Not so: it offered none, or asked nothing."""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> Mapping[str, Any]:
        """The agent's own words, as `result.json` has them."""
        said: Mapping[str, Any] | None = self.result.get("agent")
        return said or {}

    @property
    def why(self) -> str:
        """How it ended, with its program's last words."""
        words = status.last_line(self.records / "stderr.log")
        return one_line(": ".join(filter(None, (str(self.view.state), self.view.end_cause or self.view.reason, words))))[:400]


def lines(kind: Kind, model: str = "") -> Iterator[Line]:
    """Each thing in turn, as soon as it is known. The first that keeps it from being tried is the last."""
    path = shutil.which(kind.binary) if kind.binary else sys.executable
    if path is None:
        yield Line("found", "fail", f"no program {kind.binary} is on the PATH")
        return
    yield Line("found", "ok", path if kind.binary else f"module {kind.module}")
    newer = ""
    if kind.binary:
        line, newer = _version(kind, path)
        yield line
    if not kind.headless:
        yield Line("headless", "skip", "it only works with a person at it, and nobody sits here")
        return
    with private_place(None) as place, _tried(kind, model or MODELS.get(Path(kind.binary).name, ""), place) as tried:
        yield from _judged(kind, tried, newer)


def shape(found: Sequence[Line]) -> dict[str, Any]:
    """As JSON has it."""
    return {"holds": all(line.holds != "fail" for line in found), "lines": [asdict(line) for line in found]}


def _version(kind: Kind, path: str) -> tuple[Line, str]:
    """The line, and what to add to others when the program is newer than what we know."""
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Line("version", "fail", one_line(f"--version fails: {error}")), ""
    said = one_line((done.stdout or done.stderr).strip().partition("\n")[0])[:100]
    if done.returncode != 0:
        return Line("version", "fail", f"--version exits with {done.returncode}: {said}"), ""
    found, known = version(said), version(kind.version)
    if not found or not known or found == known:
        return Line("version", "ok", said), ""
    if found < known:
        return Line("version", "fail", f"{said}: older than {kind.version}, with which its arguments were tried"), ""
    newer = f" ({said} is newer than {kind.version}, with which this was recorded)"
    return Line("version", "ok", f"{said}: newer than {kind.version}, with which its arguments were tried"), newer


def _judged(kind: Kind, tried: Mapping[str, Tried], newer: str) -> Iterator[Line]:
    done = tried[EDIT]
    yield _holds("gateway", done.requests > 0, f"{done.requests} requests came through it", "it asked nobody, or another address")
    yield _holds("edit", done.changed and done.view.state == "done", "a file was edited and committed", f"no commit of it: {done.why}")
    yield from _words(kind, done, newer)
    yield _hooks(kind, done, newer)
    yield _denial(kind, tried[DENIED], newer)
    refused = tried[REFUSED]
    failed = refused.view.state == "failed"
    yield _holds("failure", failed, refused.why, f"the provider refused it, and yet it is {refused.view.state}: verify its work")


def _holds(name: str, whether: bool, seen: str, otherwise: str) -> Line:
    return Line(name, "ok" if whether else "fail", seen if whether else otherwise)


def _words(kind: Kind, done: Tried, newer: str) -> Iterator[Line]:
    if not kind.protocol:
        yield Line("protocol", "skip", "it has none: its exit status is all that is known")
        return
    read = str(done.said.get("message", "")).startswith("Done.") and done.said.get("tokens") is not None
    otherwise = (
        f"its last message and its usage are not read by {kind.protocol}{newer}: {one_line(str(done.said.get('message', '')))[:100]!r}"
    )
    yield _holds("protocol", read, "its last message and its usage are read", otherwise)
    differs = [note for note in done.result.get("notes", ()) if "differs" in note]
    yield Line("account", "skip" if differs else "ok", "; ".join(differs) or "it counts what the gateway counts")
    session = done.said.get("session")
    yield _holds("session", bool(session), str(session), f"it does not say its session{newer}")


def _hooks(kind: Kind, done: Tried, newer: str) -> Line:
    if not kind.has_hooks:
        return Line("hooks", "skip", "it has none")
    try:
        told = json.loads((done.records / RECORD).read_text())
    except (OSError, ValueError):
        return Line("hooks", "fail", f"none came{newer}")
    return Line("hooks", "ok", f"{told['count']} came")


def _denial(kind: Kind, denied: Tried, newer: str) -> Line:
    """Without a sandbox, where a program may not do everything."""
    if not kind.protocol:
        return Line("denial", "skip", "without a protocol nobody hears of one")
    if denied.said.get("denials"):
        return _holds("denial", denied.view.state == "failed", denied.why, f"it was denied a tool, and yet it is {denied.view.state}")
    if not denied.called:
        return Line("denial", "skip", "nothing was denied: it offers the model no tool for commands")
    if denied.changed:
        return Line("denial", "skip", "nothing was denied: it runs commands without asking, in a sandbox of its own or in none")
    return _holds("denial", denied.view.state == "failed", denied.why, f"a command was not run, and yet it is {denied.view.state}{newer}")


# The tasks ----------------------------------------------------------------------------------------------------------------------------


@contextmanager
def _tried(kind: Kind, model: str, place: Path) -> Iterator[dict[str, Tried]]:
    """What each task came to, by its name. Their records are there until the end of the block."""
    home = _home(place / "agent")
    if kind.source:
        files.private_dir(place / "kinds")
        shutil.copy(kind.source, place / "kinds" / f"{kind.name}.toml")
    make_repository(place / "repo", 1, files=1)
    with Simulator(needs_key=False, limits=PLENTY) as sim, SupervisedRun(place / "state", 3, more=_upstreams(sim.url)) as side:
        sim.faults(*_faults())
        repo = side.repository(place / "repo")
        views = side.finished(side.submit(repo, [*_tasks(kind, model, home)]))
        stats = sim.stats()
        yield {view.name: _came_to(side, repo, view, stats) for view in views}


def _came_to(side: SupervisedRun, repo: Repository, view: TaskView, stats: Mapping[str, Any]) -> Tried:
    """The file of a task that is to commit must be on its branch; that of the other need only lie there at the end."""
    result = view.result or {}
    wanted, where = (MARKER, "rescue") if view.name == DENIED else ("work", "tip")
    held = repo.git.run(repo.store, "ls-tree", "--name-only", result[where]).text.split() if result.get(where) else []
    struck = [fault for done, fault in zip(stats["faults_done"], _faults(), strict=True) if done]
    called = any(fault.command and fault.contains == view.name for fault in struck)
    records = side.home.attempt(view.id, max(1, view.epoch))
    return Tried(view, records, wanted in held, sum(tally["asked"] for tally in stats["tallies"]), called, result)


def _tasks(kind: Kind, model: str, home: Path) -> Iterator[TaskSpec]:
    tier = int(Tier.FILES in executors.known().tiers)
    for name in (EDIT, DENIED, REFUSED):
        yield TaskSpec(
            name=name,
            title=name,
            kind=kind.name,
            argv=(),
            prompt=f"{name}: write a file and commit it",
            params={"HOME": str(home)},
            model=model if kind.knows("model", interactive=False) else "",
            allow=() if name == DENIED and kind.knows("allow", interactive=False) else None,
            sandbox=0 if name == DENIED else tier,
            timeout_s=LIMIT_S,
        )


def _home(path: Path) -> Path:
    """A home in which no program has an account, and each can write what it keeps for itself."""
    for place, _ in directories(str(path), {}):
        if not place.endswith(".json"):
            files.private_dir(Path(place))
    (path / ".claude.json").write_text("{}")
    return path


def _faults() -> Iterator[Fault]:
    yield Fault(contains=REFUSED, status=400)
    yield Fault(contains=EDIT, command=COMMIT, times=1)
    yield Fault(contains=DENIED, command=FORBIDDEN, times=1)
    yield Fault(text=DONE)


def _upstreams(url: str) -> str:
    return "".join(f'[upstream.{api}]\napi = "{api}"\nurl = "{url}"\nkey = "none"\n' for api in APIS)
