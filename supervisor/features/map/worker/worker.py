"""The loop of a worker: a shard, what came of it, the next one."""

from __future__ import annotations

import errno
import functools
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agents.agent_client import client
from agents.runner.child import adopt_orphans
from supervisor.host import procfs
from supervisor.host.procfs import Seen
from supervisor.kernel.errors import NeedsHuman, NightcrewError, Refused, ToolFailed, ToolMissing, UsageError, one_line
from supervisor.kernel.format import duration

# Asking
# ------
# Requests of the verb `map`.


PAUSES_S = (0.2, 1.0, 5.0)
ASKING_BEAT_S = 2.0
FOR_GOOD = (2, 4, 6)
"""Exit codes of errors that the same request meets again: the attempt has ended, or the map is gone."""


def until_answered(args: dict[str, Any]) -> dict[str, Any]:
    """The supervisor's answer. While there is none, or its disk is full, it is asked again. Raises Refused when this attempt is no worker
    of a map any more."""
    said, tries = "", 0
    while True:
        try:
            return client.ask("map", args)
        except client.Failed as error:
            if error.code in FOR_GOOD:
                raise Refused("the supervisor gives no items", why=str(error)) from error
            if str(error) != said:
                said = str(error)
                print(f"waiting: {said}", file=sys.stderr, flush=True)
        time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
        tries += 1


def beat(args: dict[str, Any]) -> int | None:
    """How many items of the shard are still ours; None when nobody answers, who then knows nothing else."""
    try:
        return int(client.ask("map", {"op": "beat", **args}, patience_s=ASKING_BEAT_S)["keep"])
    except (client.Failed, OSError):
        return None


# Executors
# ---------
# What is done with the items of a map: one executor, chosen by the `executor` of the map's definition (`what`).
#
# An executor is entered once for a worker. For each shard `begin` is called, then `run` for its items one after the other, then
# `end`. While `run` waits it calls `still` about every second. `run` raises nothing for what an item does: a failure is a Result.


EXECUTORS = {"command": "command:make", "call": "command:make_call", "prompt": "prompt:make", "economy": "economy:make"}
"""Where each executor is made, as `module:function` of this package; `function(what, environ) -> Executor`."""
RESULT_MAX = 2**20
"""Characters of a result."""
REASON_MAX = 2_000
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Item:
    """One item, as it is worked on."""

    index: int
    """From 0, in the order of the workload."""
    text: str
    """The path, the line, or the object as JSON. Bytes that are no UTF-8 are surrogates, as in `os.fsdecode`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it: `text` is the result as JSON, or says why there is none."""

    ok: bool
    text: str


class Executor(Protocol):
    """See the module."""

    def begin(self) -> None: ...

    def run(self, item: Item, still: Callable[[], None]) -> Result: ...

    def end(self) -> None: ...


class ShardToRun(Protocol):
    """The items of one answer of the supervisor, and the file of what came of them."""

    def next(self) -> Item | None: ...

    def still(self) -> None: ...

    def write(self, item: Item, result: Result, seconds: float) -> None: ...


@runtime_checkable
class AtOnce(Protocol):
    """An executor that works on several items of a shard at once: its `work` is called in place of `run`."""

    def work(self, shard: ShardToRun) -> None: ...


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Executor:
    """The executor that `what` asks for. Raises UsageError for one that is not known, and what its module raises."""
    name = str(what.get("executor"))
    place = EXECUTORS.get("economy" if name == "prompt" and "group" in what else name)
    if place is None:
        raise UsageError("no executor is called", on=name[:80])
    module, _, function = place.partition(":")
    made: Executor = getattr(importlib.import_module(f"{__package__}.{module}"), function)(what, environ)
    return made


def failed(why: str) -> Result:
    """A failure, on one line that is not too long, with nothing in it that no file takes."""
    plain = " ".join(why.encode("utf-8", "backslashreplace").decode().split())
    return Result(ok=False, text=plain[:REASON_MAX])


def done(value: object) -> Result:
    """A result that JSON can hold; else a failure that says why it cannot."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return failed(f"its result is not JSON: {type(error).__name__}: {error}")
    return Result(ok=True, text=text) if len(text) <= RESULT_MAX else failed(f"its result is larger than {RESULT_MAX} characters")


# Leftovers
# ---------
# What an item started and left behind: none of it lives on beside a later item, whatever session or process group it went to.
#
# On Linux orphans come to the process that called `watch`, so nothing below it can get away from it. Elsewhere only the item's own
# process group is ended, by who started it, and the rest with the worker.


PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class _Watch:
    pid: int
    """Who watches: a fork of it does not."""
    before: frozenset[tuple[int, int]]
    """Keys of what lived below it when it began, such as what the module of a function started."""


_watch = _Watch(0, frozenset())


def watch() -> None:
    """From now on `end` of this very process finds whatever is started below it."""
    global _watch
    adopt_orphans()
    _watch = _Watch(os.getpid(), frozenset(seen.key for seen in procfs.descendants(os.getpid())))


def end() -> None:
    """Kill and reap whatever was started below this process since `watch`; nothing when that was not called. No child whose exit code
    somebody wants may be there. Costs one system call when there is none. Raises ToolFailed when something cannot be ended in about 2 s."""
    if _watch.pid != os.getpid() or not procfs.has_proc() or not _reap():
        return
    halted = procfs.halt(_living, lambda seconds: time.sleep(min(seconds, PAUSE_S)), time.monotonic, 0.0)
    if halted.survivors or _living():
        pids = ", ".join(str(seen.pid) for seen in _living()[:5])
        raise ToolFailed("what an item started cannot be ended", on=f"pid {pids}")


def _living() -> list[Seen]:
    """While the kernel says that there is a child, an empty look may have been a race with an exit: then everything is read."""
    if not _reap():
        return []
    return _since(procfs.descendants(os.getpid())) or _since(list(procfs.below([os.getpid()], procfs.table()).values()))


def _since(found: list[Seen]) -> list[Seen]:
    return [seen for seen in found if not seen.dead and seen.key not in _watch.before]


def _reap() -> bool:
    """Collect every child that ended; False when there is none left, not even a running one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


# Worktree
# --------
# Whether a shard left the worktree as it was: the same commit, no tracked file changed, nothing new that git would track. What git
# ignores stays, such as caches.


DEADLINE_S = 300.0
IDENTITY = {"NAME": "nightcrew", "EMAIL": "nightcrew@localhost"}
_STATUS = ("status", "--porcelain=v2", "-z", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_WHO = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in IDENTITY.items()}
_SETTINGS = ("core.fsmonitor=false", "core.preloadIndex=false", "core.hooksPath=/dev/null", "advice.detachedHead=false")
"""Without preloading: many workers share the cores, and threads of one git would wait for each other."""
_GIT = ("git", *(word for setting in _SETTINGS for word in ("-c", setting)), "--no-pager")


class Worktree:
    """The worktree at `root`, as it is now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._environ = {**{name: text for name, text in os.environ.items() if not name.startswith("GIT_")}, **_WHO}
        said = self.git("rev-parse", "--git-path", "index", "HEAD", "--symbolic-full-name", "HEAD").removesuffix("\n")
        index, self._commit, branch = said.rsplit("\n", 2)
        self._index, self._branch = Path(root, index), branch.removeprefix("refs/heads/") if branch != "HEAD" else ""
        self._hidden = set(self._hidden_now())
        self._seen = self._stamp()

    def clean(self) -> list[str]:
        """Undo what differs; what did, as git's status says it. Raises Refused when something differs still."""
        self.unhide()
        found = self._differs()
        self._seen = self._stamp()  # status may have written it
        if not found:
            return []
        if self._branch:
            self.git("symbolic-ref", "HEAD", f"refs/heads/{self._branch}")
        self.git("reset", "-q", "--hard", self._commit)
        self.git("clean", "-ffdq")
        if left := self._differs():
            raise Refused("the worktree does not become clean", on=str(self._root), why=left[0][:200])
        self._seen = self._stamp()
        return found

    def unhide(self) -> None:
        """Have git look again at files that somebody told it to take for unchanged, or not to look for. Nothing is asked while the index
        is the one that we left."""
        if self._stamp() == self._seen:
            return
        if hidden := [path for path in self._hidden_now() if path not in self._hidden]:
            for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
                self.git("update-index", flag, "-z", "--stdin", stdin="\0".join(hidden))
        self._seen = self._stamp()

    def _hidden_now(self) -> list[str]:
        """Files that git does not look at."""
        rows = self.git("ls-files", "-v", "-z").split("\0")
        return [row[2:] for row in rows if row[:1].islower() or row[:1] == "S"]

    def _stamp(self) -> tuple[int, ...]:
        """Another one: the index was written since."""
        try:
            seen = self._index.lstat()
        except FileNotFoundError:
            return ()
        return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)

    def _differs(self) -> list[str]:
        commit, branch, entries = self._look()
        moved = [f"HEAD is at {commit} of {branch}"] if (commit, branch) != (self._commit, self._branch) else []
        return moved + entries

    def _look(self) -> tuple[str, str, list[str]]:
        entries = self.git(*_STATUS).split("\0")
        heads = dict(line[2:].split(" ", 1) for line in entries if line.startswith("# "))
        branch = heads.get("branch.head", "")
        return heads.get("branch.oid", ""), "" if branch == "(detached)" else branch, [e for e in entries if e and not e.startswith("# ")]

    def advance(self, commit: str) -> None:
        """The branch goes on to `commit`, whose files it has then. Raises as `clean`."""
        self._commit = commit
        self.clean()

    def git(self, *words: str, stdin: str = "") -> str:
        """What git prints, which reads `stdin`. Raises ToolMissing, ToolFailed."""
        try:
            done = subprocess.run(
                [*_GIT, *words],
                cwd=self._root,
                env=self._environ,
                input=os.fsencode(stdin),
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except FileNotFoundError:
            raise ToolMissing("no program", on="git", hint="install git") from None
        except subprocess.TimeoutExpired:
            raise ToolFailed("git took too long", on=words[0], why=f"more than {duration(DEADLINE_S)}") from None
        if done.returncode:
            raise ToolFailed("git failed", on=words[0], why=done.stderr.decode("utf-8", "backslashreplace").strip()[:300])
        return os.fsdecode(done.stdout)


# Edits
# -----
# What a worker's items change, one commit an item, each from the same base: what an item finds does not depend on which came before
# it.
#
# For `--merge`. The commit of an item has the base as its parent, and the worker's branch reaches it by a commit of no change whose
# parents are the one before it and the item's; so the worktree stands at the base's files between items, and is clean. An item that
# failed leaves nothing, and one that made a repository inside the worktree has failed: a commit would have only an id of it that
# nobody can look up.


_LINK = "160000"
"""git's mode of a commit of another repository."""


class _RepositoryInside(Exception):
    """Its path."""


class Edits:
    """Of one attempt, in its worktree; `name` is the map's id. Raises ToolFailed."""

    def __init__(self, tree: Worktree, name: str) -> None:
        self._tree, self._name = tree, name
        self._base = tree.git("rev-parse", "HEAD").strip()
        self._files = tree.git("rev-parse", "HEAD^{tree}").strip()
        self._head = self._base

    def kept(self, item: Item, result: Result) -> Result:
        """The result with the commit that holds what the item changed, and the base's files restored. A failed one leaves nothing."""
        if not result.ok:
            self._tree.clean()
            return result
        try:
            commit = self._commit(item)
        except _RepositoryInside as error:
            self._tree.clean()
            return failed(f"it made a git repository of its own, which no commit can hold: {error}")
        return done({"output": json.loads(result.text), "base": self._base, "commit": commit})

    def _commit(self, item: Item) -> str | None:
        """Of everything that the item changed and git does not ignore; None when that is nothing."""
        git = self._tree.git
        self._tree.unhide()
        self._add()
        files = git("write-tree").strip()
        if files == self._files:
            self._tree.clean()
            return None
        rows = git("diff-tree", "-r", "-z", "--raw", "--no-renames", self._files, files).split("\0")
        if links := [path for facts, path in zip(rows[::2], rows[1::2], strict=False) if facts.split(" ")[1] == _LINK]:
            raise _RepositoryInside(links[0])
        about = f"map {self._name}: item {item.index}"
        message = f"{one_line(item.text)[:200] or about}\n\nNightcrew-Map: {self._name}\nNightcrew-Item: {item.index}\n"
        made = git("commit-tree", files, "-p", self._base, "-m", message).strip()
        self._head = git("commit-tree", self._files, "-p", self._head, "-p", made, "-m", about).strip()
        self._tree.advance(self._head)
        return made

    def _add(self) -> None:
        try:
            self._tree.git("add", "-A")
        except ToolFailed:  # so it is of a repository without a commit
            others = self._tree.git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
            if inside := [path for path in others if path.endswith("/")]:
                raise _RepositoryInside(inside[0]) from None
            raise


# Worker
# ------
# The loop of a worker: a shard, what came of it on disk, the worktree clean again, the next one.
#
# What came of an item is written into `$NIGHTCREW_OUT` at once (see `supervisor.features.map.open_map`), so that a worker that dies
# loses nothing but the item that it was at.


BEAT_S = 1.0
FULL_S = 1.0
FILE_MAX = 16 * 2**20
"""Bytes of a shard's results from which on the rest of it is given back."""


def work(environ: Mapping[str, str]) -> None:
    """Until the map needs this worker no more; a map whose executor cannot begin ends with its first worker. Raises Refused when its
    attempt has ended or its worktree does not become clean."""
    answer = until_answered({"op": "next", "first": True})
    if answer.get("over"):
        return
    out, tree = Path(environ["NIGHTCREW_OUT"]), Worktree(Path.cwd())
    while "what" not in answer:
        time.sleep(float(answer["wait_s"]))
        answer = until_answered({"op": "next", "first": True})
        if answer.get("over"):
            return
    try:
        executor = make(answer["what"], environ)
    except UsageError as error:  # so it would be in every worker
        _stop(error)
        return
    _say_able(answer)
    watch()
    edits = Edits(tree, environ["NIGHTCREW_MAP"]) if answer["what"].get("merge") else None
    said: dict[str, Any] = {}
    while not answer.get("over"):
        if "items" in answer:
            try:
                said = _shard(executor, tree, edits, WorkerShard(answer, out))
            except NeedsHuman as error:
                _stop(error)
                return
        else:
            time.sleep(float(answer["wait_s"]))
        answer = until_answered({"op": "next", **said})


def _say_able(answer: dict[str, Any]) -> None:
    """Tell the supervisor that this worker can work, before its first item can say anything: from now on it believes no `stop`."""
    keep = until_answered({"op": "beat", "shard": answer["shard"], "at": -1}).get("keep", 0)
    answer["items"] = answer["items"][:keep]


def _stop(error: NightcrewError) -> None:
    """No worker could go on with any item: the map ends, and goes on when it is begun again."""
    print(error.line(), file=sys.stderr)
    until_answered({"op": "stop", "why": error.line()})


def _one_by_one(executor: Executor, edits: Edits | None, shard: WorkerShard) -> None:
    while (item := shard.next()) is not None:
        at = time.monotonic()
        result = executor.run(item, shard.still)
        if edits is not None:
            result = edits.kept(item, result)
        shard.write(item, result, time.monotonic() - at)


def _shard(executor: Executor, tree: Worktree, edits: Edits | None, shard: WorkerShard) -> dict[str, Any]:
    """Work on it; what to say of it."""
    began = time.monotonic()
    executor.begin()
    inside = time.monotonic()
    if isinstance(executor, AtOnce):
        executor.work(shard)
    else:
        _one_by_one(executor, edits, shard)
    inside = time.monotonic() - inside
    executor.end()
    undone = tree.clean()
    if undone:
        print(f"the worktree was cleaned after shard {shard.number}: {undone[0][:200]} and {len(undone) - 1} more", file=sys.stderr)
    took = time.monotonic() - began
    shard.close()
    return {"done": shard.number, "shard_s": took, "around_s": took - inside, "undone": len(undone)}


@dataclass(slots=True)
class WorkerShard:
    """The items of one answer, and the file of what came of them."""

    answer: Mapping[str, Any]
    out: Path
    number: int = 0
    _items: list[Item] = field(default_factory=list)
    _at: int = -1
    _keep: int = 0
    _written: int = 0
    _said: float = 0.0
    _file: int = -1

    def __post_init__(self) -> None:
        self.number = int(self.answer["shard"])
        self._items = [Item(int(one["p"]), str(one["i"])) for one in self.answer["items"]]
        self._keep, self._said = len(self._items), time.monotonic()
        for old in self.out.glob("shard-*.jsonl"):  # those before were read: else there were no answer
            old.unlink()
        self._file = _patiently(lambda: os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    @property
    def _path(self) -> Path:
        return self.out / f"shard-{self.number}.jsonl"

    def next(self) -> Item | None:
        """The next item that is ours still, written down as begun."""
        self._at += 1
        if time.monotonic() - self._said > BEAT_S:
            self.still()
        if self._at >= min(self._keep, len(self._items)) or self._written > FILE_MAX:
            return None
        item = self._items[self._at]
        self._put({"p": item.index})
        return item

    def still(self) -> None:
        """Say that the worker lives and where it is, and hear which items are ours still."""
        self._said = time.monotonic()
        keep = beat({"shard": self.number, "at": self._at})
        self._said = time.monotonic()
        if keep is not None:
            self._keep = min(self._keep, keep)

    def write(self, item: Item, result: Result, seconds: float) -> None:
        """What came of an item, on disk."""
        self._put({"p": item.index, "ok": result.ok, "text": result.text, "ms": round(1000 * seconds)})

    def close(self) -> None:
        """It stays until the supervisor has read it."""
        os.close(self._file)

    def _put(self, shape: dict[str, Any]) -> None:
        """A whole line. On a full disk it waits for room: what was done is not thrown away."""
        left = json.dumps(shape).encode() + b"\n"
        self._written += len(left)
        while left:
            left = left[_patiently(functools.partial(os.write, self._file, left)) :]


def _patiently(act: Callable[[], int]) -> int:
    said = False
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not said:
                print("waiting: the disk is full", file=sys.stderr, flush=True)
            said = True
            time.sleep(FULL_S)
