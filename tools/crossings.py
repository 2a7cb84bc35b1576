#!/usr/bin/env python3
"""Print the modules of the product that one model request, one prompt and one result pass through. Needs the kit of the tests.

    .venv/bin/python tools/crossings.py [request] [prompt] [result] [--json]

Each walk runs the real code: a gateway in this process before the simulated provider, a supervisor, and the command `nightcrew take`.
A warm-up of the same kind comes first, so that start-up and imports do not count.

- `request`: modules whose functions run from the moment the gateway has a request's head until its answer has been passed on.
- `launch`: modules whose functions run from the row of a task that is due until its `launch.spec` is written. Shown for comparison.
- `prompt`: the modules of `launch` through which the text goes: a function is given the text, or an object that holds it, or returns it.
- `take`: modules whose functions run between the command `take X` and its exit code. Shown for comparison.
- `result`: the modules of `take` through which the commit goes: a function is given its id, or an object that holds it, or returns it.

A module counts when one of its functions runs in the context of the request, of its threads and of what they await; timers and chores
of a process have other contexts. A dataclass that is only made counts for nothing. `PLUMBING` is left out, since all code uses it.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOMS = tuple(f"{ROOT}/{room}/" for room in ("supervisor", "agents", "memory", "worktrees", "nightcrew"))
PLUMBING = {"supervisor.kernel.errors", "supervisor.host.failpoint", "supervisor.host.clock", "supervisor.host.paths"}
SIMULATED = "nightcrew.plugins.sim"
"""The provider of the walk `request`, which is no part of the product's way."""
TEXT = "Count the words of this crossing."
KIND = 'description = "reads"\nbinary = "/bin/sh"\nheadless = ["-c", "cat \\"$NIGHTCREW_PROMPT_FILE\\"", "{prompt}"]\n'

_walk: contextvars.ContextVar[Walk | None] = contextvars.ContextVar("walk", default=None)


class Walk:
    """The modules that were seen, in order, while `_walk` is this walk."""

    def __init__(self, text: str = "") -> None:
        self.ran: dict[str, None] = {}
        self.held: dict[str, None] = {}
        """Those that were given `text`."""
        self._text = text

    def look(self, frame: FrameType, event: str, value: Any) -> None:
        """Note the module of a function that is called or returns."""
        name = _module(frame.f_code.co_filename)
        if not name or frame.f_code.co_name == "<module>":
            return
        self.ran[name] = None
        if not self._text or name in self.held:
            return
        code = frame.f_code
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        seen = [value] if event == "return" else [frame.f_locals.get(one) for one in given]
        if any(_holds(one, self._text, 4) for one in seen):
            self.held[name] = None


@functools.cache
def _module(file: str) -> str:
    """Return the name of a module of the product, or "" for any other file."""
    if not file.startswith(ROOMS):
        return ""
    name = file[len(str(ROOT)) + 1 : -len(".py")].replace("/", ".").removesuffix(".__init__")
    return "" if name in PLUMBING or name.startswith(SIMULATED) else name


def _holds(value: Any, text: str, depth: int) -> bool:
    if isinstance(value, str):
        return text in value
    if not depth:
        return False
    if isinstance(value, dict):
        return any(_holds(one, text, depth - 1) for one in list(value.values()))
    if isinstance(value, list | tuple):
        return any(_holds(one, text, depth - 1) for one in value[:100])
    if dataclasses.is_dataclass(value):
        return any(_holds(getattr(value, one.name, None), text, depth - 1) for one in dataclasses.fields(value))
    return False


def _watch() -> None:
    """Look at every call of this process from now on; threads get the context of whoever gives them work."""
    submit = ThreadPoolExecutor.submit

    def with_context(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        return submit(pool, contextvars.copy_context().run, work, *args, **named)

    ThreadPoolExecutor.submit = with_context  # type: ignore[method-assign,assignment]  # in a process of this script alone
    threading.setprofile(_profile)
    sys.setprofile(_profile)


def _profile(frame: FrameType, event: str, value: Any) -> None:
    if event in ("call", "return") and (walk := _walk.get()) is not None:
        walk.look(frame, event, value)


def _counted(walk: Walk, *names: str) -> dict[str, list[str]]:
    return dict(zip(names, (list(walk.ran), list(walk.held)), strict=False))


def request(place: Path) -> dict[str, list[str]]:
    """Follow one streamed message through a gateway."""
    return asyncio.run(_request(place))


async def _request(place: Path) -> dict[str, list[str]]:
    from supervisor.gateway.proxy import front
    from supervisor.gateway.proxy.front import RequestHandler
    from supervisor.host.paths import Home
    from tests.gateway import kit
    from tests.gateway.simulator import SimSettings, running

    walk, handle, is_due = Walk(), RequestHandler.handle, False
    front.FRESH_S = 3600.0  # the agent was read for the warm-up, and is not read again however slow this machine is

    async def followed(self: RequestHandler, asked: Any) -> Any:
        _walk.set(walk if is_due else None)
        try:
            return await handle(self, asked)
        finally:
            _walk.set(None)

    RequestHandler.handle = followed  # type: ignore[method-assign]
    _watch()
    home = Home(place / "home")
    async with running(SimSettings()) as sim, kit.gateway(place, kit.upstream(home, sim.url)) as gate:
        kit.know_prices(home)
        token = gate.crew.agent("run/a")
        await gate.post("/v1/messages", kit.messages(), token)
        is_due = True
        await gate.post("/v1/messages", kit.messages(), token)
        await kit.settled(home, 2)
    if [row["status"] for row in kit.rows(home)] != [200, 200]:
        raise RuntimeError("the simulated provider did not answer")
    return _counted(walk, "request")


def prompt(place: Path) -> dict[str, list[str]]:
    """Follow one prompt from its task's row to the orders of the runner."""
    with _house(place) as house:
        (place / "kinds").mkdir()
        (place / "kinds" / "reader.toml").write_text(KIND)
        found = place / "prompt.json"
        house.start_daemon(first=_in_process(f"crossings.follow_launch({str(found)!r})"))
        for name in ("first", "second"):
            house.ok("run", house.plan(f'[[tasks]]\nid = "{name}"\nkind = "reader"\nprompt = "{TEXT}"\n'))
        shape: dict[str, list[str]] = json.loads(found.read_text())
        return shape


def follow_launch(found: str) -> None:
    """Follow the launch of the task `second` of the supervisor that this process becomes, and write what was seen to a file."""
    from supervisor.kernel import records
    from supervisor.server.attempts.jobs import Jobs

    launch, write_spec = Jobs.launch, records.write_spec

    async def followed(self: Jobs, task: str, epoch: int) -> None:
        _walk.set(Walk(TEXT) if task.endswith("/second") else None)
        await launch(self, task, epoch)

    def written(spec: records.LaunchSpec) -> bytes:
        data = write_spec(spec)
        if (walk := _walk.get()) is not None:
            Path(found).write_text(json.dumps(_counted(walk, "launch", "prompt")))
        return data

    Jobs.launch, records.write_spec = followed, written  # type: ignore[method-assign]
    _watch()


def result(place: Path) -> dict[str, list[str]]:
    """Follow one commit from its task to the branch of a person."""
    from supervisor.kernel import names
    from tests.support import GIT_IDENTITY, git

    with _house(place) as house:
        house.start_daemon()
        tasks = [f'[[tasks]]\nid = "{name}"\ncommand = "echo {name} > {name}"\n' for name in ("first", "second")]
        house.ok("run", house.plan("".join(tasks)))
        found = place / "result.json"
        tip = git(house.repo, "rev-parse", names.branch_name(house.task("second").id))
        argv = [sys.executable, "-I", "-c", _in_process(f"crossings.follow_take({str(found)!r}, {tip!r})")]
        subprocess.run(argv, cwd=house.repo, env={**house.env, **GIT_IDENTITY}, check=True, stdout=subprocess.DEVNULL)
        shape: dict[str, list[str]] = json.loads(found.read_text())
        return shape


def follow_take(found: str, tip: str) -> None:
    """Take both results in this process, and write what the second passed through to a file."""
    from supervisor.cli.main import main

    walk = Walk(tip)
    _watch()
    for name in ("first", "second"):
        _walk.set(walk if name == "second" else None)
        try:
            main(["take", name])
        except SystemExit as end:
            if end.code:
                raise
    _walk.set(None)
    Path(found).write_text(json.dumps(_counted(walk, "take", "result")))


def _in_process(call: str) -> str:
    return f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tools import crossings; {call}"


@contextmanager
def _house(place: Path) -> Iterator[Any]:
    from tests.support import House, make_repository

    house = House(place, make_repository(place / "repo"))
    try:
        yield house
    finally:
        house.reap()


WALKS: dict[str, Callable[[Path], dict[str, list[str]]]] = {"request": request, "prompt": prompt, "result": result}


def crossings(walks: Collection[str], place: Path) -> dict[str, list[str]]:
    """Return the modules of each walk by its name, in the order in which they are first passed."""
    found: dict[str, list[str]] = {}
    for name in walks:
        (place / name).mkdir()
        found |= WALKS[name](place / name)
    return found


def main(args: list[str]) -> None:
    """Print the walks that `args` name, or all."""
    names = [one for one in args if not one.startswith("--")] or list(WALKS)
    with tempfile.TemporaryDirectory(prefix="nightcrew-crossings-", dir=os.environ.get("TMPDIR")) as place:
        found = crossings(names, Path(place))
    if "--json" in args:
        print(json.dumps(found))
        return
    for name, modules in found.items():
        print(f"{name}: {len(modules)} modules", *modules, sep="\n  ")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
