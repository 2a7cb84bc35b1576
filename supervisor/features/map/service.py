"""All maps of a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from supervisor.features.map import open_map
from supervisor.features.map.open_map import OpenMap
from supervisor.features.map.rules import Spent
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError, Refused, one_line
from supervisor.kernel.events import CancelAsked
from supervisor.kernel.spec import Submission
from supervisor.kernel.states import FINAL, End
from supervisor.server import requests
from supervisor.server.loop import Loop
from supervisor.server.wakeups import beside, was_set
from supervisor.store import queries
from worktrees.landing import Edit, Integrated, Left, integrate
from worktrees.repository import discover

if TYPE_CHECKING:
    from supervisor.contract import Supervisor
    from supervisor.features.map.rules import Key
    from supervisor.host.paths import Home
    from supervisor.server.agent_requests import Asked
    from worktrees.git import Git


# Merging
# -------
# The merge of a map: what its items changed, in their order, on one branch of the person's repository.


def merge(home: Home, git: Git, name: str, root: str, base: str) -> dict[str, Any]:
    """Merge what the items of the map that are done have changed; what came of it, as JSON for the summary. What git or the person's
    branch does not allow is said there as `why`: nothing moved then, and the next run of the map tries again."""
    with contextlib.closing(open_map.connect_readonly(open_map.file(home, name))) as db:
        rows = db.execute("SELECT position, name, text FROM item WHERE state = 'done' ORDER BY position")
        edits = _edits([(int(row["position"]), bytes(row["name"]).decode("utf-8", "backslashreplace"), str(row["text"])) for row in rows])
    try:
        return shape(integrate(discover(git, Path(root)), name, base, edits))
    except NightcrewError as error:
        return {"branch": None, "merged": 0, "left": [], "why": error.line()}


def _edits(rows: list[tuple[int, str, str]]) -> list[Edit]:
    """One for each commit: the items of an agent's shard have one together, and it stands where the first of them does."""
    found: dict[str, Edit] = {}
    for position, name, text in rows:
        value = json.loads(text)
        commit = value.get("commit") if isinstance(value, dict) else None
        if commit and commit not in found:
            found[commit] = Edit(position, one_line(name)[:200], str(value["base"]), str(commit))
    return list(found.values())


def shape(done: Integrated) -> dict[str, Any]:
    """As `merge` in `summary.json`."""
    return {"branch": done.branch, "tip": done.tip, "merged": len(done.merged), "left": [_left(one) for one in done.left], "why": ""}


def _left(one: Left) -> dict[str, Any]:
    files = [file.encode("utf-8", "backslashreplace").decode() for file in one.files]
    return {"position": one.edit.position, "item": one.edit.name, "why": one.why, "files": files, "ref": one.ref or None}


# Desk
# ----
# All maps of a supervisor. Their files are read and written on one thread, so that neither the loop nor its screens wait for them.
#
# A map is open from its first request until it has ended; after a restart it is opened again when somebody asks, or at the start.


T = TypeVar("T")
Submit = Callable[[Loop, Submission], Awaitable[dict[str, Any]]]
LOOK_S = 1.0
RUNNER_DIED = "its runner died"
"""As `Ending.judged` says it."""
MAP = "NIGHTCREW_MAP"
"""Of the workers' variables: the id of their map."""


class MapDesk:
    """One supervisor's. It belongs to one event loop; `kept` runs it."""

    def __init__(self, loop: Loop, home: Home, submit: Submit, git: Git) -> None:
        """`submit` is the handler of that verb."""
        self._submit = submit
        self._git = git
        self._loop = loop
        self._home = home
        self._thread = ThreadPoolExecutor(1, "maps")
        self._maps: dict[str, OpenMap] = {}
        self._opening = asyncio.Lock()
        self._wake = asyncio.Event()

    # For commands ----------------------------------------------------------------------------------------------------------------------

    async def open(self, name: str, incoming: Path, about: dict[str, Any], submission: Submission, *, fresh: bool) -> dict[str, Any]:
        """Begin a map, or find the one that runs. `incoming`: a file of `open_map.prepare`; `about`: columns of the map; `submission` has
        one task, the worker. Returns `run` and whether it is `new`; no run when nothing is to do. Of one that runs `same` says whether it
        has this very workload and output. When it answers, all is on disk."""
        async with self._opening:  # two commands that begin the same map are one run
            return await self._open(name, incoming, about, submission, fresh=fresh)

    async def _open(self, name: str, incoming: Path, about: dict[str, Any], submission: Submission, *, fresh: bool) -> dict[str, Any]:
        run = await self._run(name, lambda one: "" if one.ended else one.run) if open_map.file(self._home, name).exists() else ""
        if run and self._lives(run):
            same = await self._run(name, lambda one: one.about["out"] == about["out"] and one.has_workload(incoming))
            incoming.unlink(missing_ok=True)
            return {"run": run, "new": False, "same": same}
        about = {**about, "began": self._loop.clock.wall()}
        await self._on_thread(self._take_over, name, incoming, about, fresh)
        left = await self._run(name, lambda one: one.most_workers)
        what = json.loads(about["what"])
        if not left:
            merge = await self._merged(name, submission.root, submission.base_oid) if what.get("merge") else None
            await self._run(name, lambda one: one.finish(float(one.about["ended"]) or self._loop.clock.wall(), "", merge))
            return {"run": "", "new": True}
        if what["executor"] == open_map.EXECUTOR:
            return {"run": await self._give_to_agents(name, submission), "new": True}
        run = str((await self._submit(self._loop, _workers(submission, min(left, int(about["agents"])))))["run"])
        await self._run(name, lambda one: one.begun(run))
        return {"run": run, "new": True}

    async def _give_to_agents(self, name: str, submission: Submission) -> str:
        def hand_over(one: OpenMap) -> open_map.Handed:
            return open_map.hand_over(name, one.board.last_number, json.loads(one.about["what"]), one.waiting(), submission)

        handed = await self._run(name, hand_over)
        run = str((await self._submit(self._loop, handed.submission))["run"])
        now = self._loop.clock.monotonic()
        await self._run(name, lambda one: one.give_to_tasks(run, handed.shards, now))
        return run

    async def look(self, name: str) -> dict[str, Any]:
        """How the map stands."""
        now = self._loop.clock.monotonic()
        return await self._run(name, lambda one: one.look(now))

    # For workers -----------------------------------------------------------------------------------------------------------------------

    async def ask(self, key: Key, op: Callable[[OpenMap, float], dict[str, Any]]) -> dict[str, Any]:
        """Do what a living attempt asks of its map at a moment. Raises Refused, DiskFull, LedgerError."""
        name, now = self._map_of(key), self._loop.clock.monotonic()
        answer, left = await self._run(name, lambda one: self._asked(one, key, lambda: op(one, now)))
        if not left:
            self._wake.set()
        return answer

    def _map_of(self, key: Key) -> str:
        name = str(self._loop.ledger.launch_row(key[0]).spec.params.get(MAP, ""))
        if not name:
            raise Refused("no worker of a map", on=key[0])
        return name

    async def stop(self, key: Key, why: str) -> dict[str, Any]:
        """Let the attempt leave; its map ends for it where `OpenMap.stop` says so, and where it works for this map now. Raises as `ask`."""
        name, run = self._map_of(key), key[0].partition("/")[0]
        living = [(task, found.epoch) for task, found in self._loop.crew.living.items() if task.startswith(f"{run}/")]
        if await self._run(name, lambda one: one.run == run and one.stop(key, why, living)):
            await self._end(name, run, why, merge=False)
        return {"over": True}

    def _asked(self, one: OpenMap, key: Key, op: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
        run = key[0].partition("/")[0]
        if one.ended or (one.is_open and run == one.about["run"]) or (one.run and run != one.run):
            return {"over": True, "keep": 0}, 1  # also for who still leaves a run of before
        if one.is_open:  # its supervisor died before it could write down whose run it is
            one.begun(run)
        return op(), one.board.left

    # On the thread ---------------------------------------------------------------------------------------------------------------------

    async def _on_thread(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _run(self, name: str, work: Callable[[OpenMap], T]) -> T:
        return await self._on_thread(self._with, name, work)

    def _with(self, name: str, work: Callable[[OpenMap], T]) -> T:
        """`work` on the map; what fails forgets what memory has of it, so that the next one reads its file."""
        one = self._maps.get(name)
        if one is None:
            one = self._maps[name] = OpenMap(self._home, name, self._loop.clock.monotonic())
        try:
            return work(one)
        except BaseException:
            self._forget(name)
            raise

    def _forget(self, name: str) -> None:
        if (one := self._maps.pop(name, None)) is not None:
            one.close()

    def _take_over(self, name: str, incoming: Path, about: dict[str, Any], fresh: bool) -> None:
        if name not in self._maps and not open_map.file(self._home, name).exists():
            open_map.connect(open_map.file(self._home, name)).close()
        self._with(name, lambda one: one.take_over(incoming, about, self._loop.clock.monotonic(), fresh=fresh))

    # Its ends --------------------------------------------------------------------------------------------------------------------------

    def _lives(self, run: str) -> bool:
        """Whether a task of the run has not ended."""
        return any(task.state not in FINAL for task in self._loop.ledger.tasks_of_run(run, self._loop.clock.monotonic(), ()))

    async def _step(self) -> None:
        for name, (run, keys, left) in (await self._on_thread(self._standing)).items():
            try:
                await self._watch(name, run, keys, left)
            except NightcrewError as error:  # a full disk, most often: it is tried again
                self._loop.alert(f"map {name} waits: {error.line()}")

    async def _watch(self, name: str, run: str, keys: list[Key], left: int) -> None:
        for key in keys:
            await self._look_at(name, key)
        if not left:
            if run or not self._opening.locked():  # who opens a map of which nothing is left ends it, with what it merges
                await self._end(name, run, "")
        elif run and not keys and not self._lives(run):
            why = await self._run(name, lambda one: next(iter(one.stops.values()), ""))
            await self._end(name, run, why or "its workers have ended; the same command again goes on")

    async def _look_at(self, name: str, key: Key) -> None:
        """Settle the shard of an attempt, or of an agent's task, that has ended."""
        if key[1] != open_map.TASK:
            if not self._is_alive(key):
                cause, charged = self._cause(key)
                await self._run(name, functools.partial(OpenMap.gone, key=key, cause=cause, charged=charged))
            return
        task = self._loop.crew.tasks.get(key[0])
        if task is None or task.state in FINAL:
            view = queries.one(self._loop.ledger.db, key[0])
            if view.final:
                await self._run(name, functools.partial(OpenMap.task_ended, view=view))

    def _standing(self) -> dict[str, tuple[str, list[Key], int]]:
        for name in [name for name, one in self._maps.items() if one.ended]:
            self._forget(name)
        return {name: (one.run, list(one.board.leases), one.board.left) for name, one in self._maps.items()}

    def _is_alive(self, key: Key) -> bool:
        task = self._loop.crew.living.get(key[0])
        return task is not None and task.attempt is not None and task.attempt.epoch == key[1]

    def _cause(self, key: Key) -> tuple[str, bool]:
        """How an attempt ended, and whether it died by itself: what a person or the supervisor ended is no fault of an item."""
        row = self._loop.ledger.attempt(*key)
        if row is None or row.end is None:
            return "it was lost", False
        return row.end_cause or str(row.end), row.end == End.FAILED or row.end_cause == RUNNER_DIED

    async def _end(self, name: str, run: str, why: str, *, merge: bool = True) -> None:
        mine = [task for name, task in self._loop.crew.tasks.items() if name.startswith(f"{run}/")]
        waiting = [task.id for task in mine if task.attempt is None and task.state not in FINAL]
        if run and waiting:
            self._loop.ask(*(CancelAsked(name) for name in waiting))
        merged = None
        if merge and run and await self._run(name, lambda one: bool(json.loads(one.about["what"]).get("merge"))):
            if self._lives(run):
                return  # what its workers committed arrives in the repository when they have ended
            launch = self._loop.ledger.launch_row(self._loop.ledger.tasks_of_run(run, self._loop.clock.monotonic(), ())[0].id)
            merged = await self._merged(name, launch.root, launch.base_oid)
        # since it was looked at it may have ended, with what it merged, or begun again with another run
        await self._run(name, lambda one: None if one.ended or one.run != run else one.finish(self._loop.clock.wall(), why, merged))

    async def _merged(self, name: str, root: str, base: str) -> dict[str, Any]:
        """Beside the maps' thread, which workers of other maps wait for."""
        return await asyncio.to_thread(merge, self._home, self._git, name, root, base)

    async def _keep(self) -> None:
        while not self._loop.ready:
            await asyncio.sleep(LOOK_S / 10)
        await self._on_thread(self._find)
        while True:
            await self._step()
            await was_set(self._wake, LOOK_S)
            self._wake.clear()

    def _find(self) -> None:
        """Open what was running when the supervisor before us left."""
        for path in sorted((self._home.root / "maps").glob("*/map.db")):
            with contextlib.suppress(NightcrewError), contextlib.closing(open_map.connect_readonly(path)) as db:
                if open_map.about_book(db)["state"] == "running":
                    self._with(path.parent.name, lambda _: None)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Watch over the workers inside."""
        try:
            async with beside(self._keep()):
                yield
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _workers(submission: Submission, count: int) -> Submission:
    """With as many tasks as there are workers, each as the one that it has."""
    template = submission.spec.tasks[0]
    tasks = tuple(replace(template, name=f"{template.name}{number}") for number in range(1, count + 1))
    return replace(submission, spec=replace(submission.spec, tasks=tasks))


# Map
# ---
# A map: begin it, or look how it stands.


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Run maps inside."""
    loop = supervisor.loop
    loop.services.put(maps := MapDesk(loop, supervisor.home, requests.submit, supervisor.git))
    async with maps.kept():
        yield


async def begin(
    loop: Loop, *, id: str, incoming: str, about: dict[str, Any], submission: dict[str, Any], fresh: bool = False
) -> dict[str, Any]:
    """See `MapDesk.open`; `submission` is as the verb `submit` takes it."""
    return await loop.services.get(MapDesk).open(id, Path(incoming), about, codec.load(Submission, submission), fresh=fresh)


async def look(loop: Loop, *, id: str) -> dict[str, Any]:
    """How the map `id` stands."""
    return await loop.services.get(MapDesk).look(id)


OPS: Mapping[str, codec.Handler] = {"open": begin, "look": look}
"""The verb `map`."""


# Workers
# -------
# What a worker of a map asks. Whatever runs there may ask too, so nothing of it is believed.


async def next_items(
    asked: Asked, *, first: bool = False, done: int = 0, shard_s: float = 0.0, around_s: float = 0.0, undone: int = 0
) -> dict[str, Any]:
    """Settle the shard `done` and give the worker its next items. It took `shard_s`, of these `around_s` beside its items; `undone` files
    had to be cleaned away after it. To the `first` request the map itself is given too."""
    spent = Spent(_seconds(shard_s), _seconds(around_s))
    return await _ask(asked, lambda one, key, now: one.next(key, now, done, spent, first=first, cleaned=undone > 0))


def _seconds(given: float) -> float:
    return given if 0 <= given < 1e9 else 0.0


async def beat(asked: Asked, *, shard: int, at: int) -> dict[str, Any]:
    """Hear that the worker lives, and at which item of its shard it is."""
    return await _ask(asked, lambda one, key, now: one.beat(key, shard, max(0, at), now))


async def keep(asked: Asked, *, data: Any = None, **of: Any) -> dict[str, Any]:
    """Keep `data` for the workers of a group, which `as` names; `as` is a word of Python, and so no parameter."""
    return await _ask(asked, lambda one, key, _: one.keep(key, str(of.get("as")), data))


async def kept(asked: Asked, **of: Any) -> dict[str, Any]:
    """Return what was kept of the group that `as` names."""
    return await _ask(asked, lambda one, key, _: one.kept(key, str(of.get("as"))))


async def stop(asked: Asked, *, why: str = "") -> dict[str, Any]:
    """Hear that no worker could do any item."""
    said = one_line(why)[:1000] or "a worker could not begin"
    return await asked.loop.services.get(MapDesk).stop((asked.task, asked.epoch), said)


async def _ask(asked: Asked, op: Callable[[OpenMap, Key, float], dict[str, Any]]) -> dict[str, Any]:
    key = (asked.task, asked.epoch)
    return await asked.loop.services.get(MapDesk).ask(key, lambda one, now: op(one, key, now))


AGENT_OPS: Mapping[str, codec.Handler] = {"next": next_items, "beat": beat, "keep": keep, "kept": kept, "stop": stop}
"""The agents' verb `map`."""
