"""What a policy needs to know of this host: which paths exist, and where they really lie."""

# ruff: noqa: PTH112, PTH114, PTH115, PTH116, PTH118
# (the core speaks text, and so do mounts)

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from supervisor.core import sandbox
from supervisor.core.errors import HostError
from supervisor.core.sandbox import Network, Places, Policy, Tier
from supervisor.host.foreign import folder, remove_tree
from supervisor.host.paths import Home
from supervisor.host.sandbox import agent_homes
from supervisor.host.sandbox.executors import program

_TABLES = (*sandbox.CACHES, *sandbox.AGENT_CACHES, sandbox.CACHE_HOME)
_SHOWN_MAX = 200
"""Directories of the person's `.cache` that a sandbox shows; each is a mount."""
_LINKS_MAX = 40
"""As many links on one way as the kernel follows."""


def survey(home: Home, attempt: Path, worktree: Path, git: tuple[Path, Path, str], agent_home: Path, overlay_options: str = "") -> Places:
    """Where everything of one attempt lies. `git` is (the person's common directory, the attempt's own one, name of the worktree in both);
    `agent_home` is the HOME that the agent gets; `overlay_options` as in `Places`."""
    common_dir, private_dir, admin = git
    return Places(
        worktree=os.path.realpath(worktree),
        attempt=os.path.realpath(attempt),
        state=os.path.realpath(home.root),
        run_dir=os.path.realpath(home.run_dir),
        agents_socket=os.path.realpath(home.agents_socket),
        gateway_socket=os.path.realpath(home.gateway_socket),
        common_dir=os.path.realpath(common_dir),
        private_dir=os.path.realpath(private_dir),
        admin=admin,
        doors_out=_present(agent_home, sandbox.DOORS_OUT),
        foreign_sockets=tuple(_sockets()),
        program=program(),
        overlay_options=overlay_options,
        root=os.geteuid() == 0,
    )


def caches(
    agent_home: Path, env: Mapping[str, str], table: Iterable[tuple[str, str, Sequence[str]]] = sandbox.CACHES, taken: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the directories of `table` that exist for an agent with that HOME and environment, none of which holds its home.

    An agent may have put a link into every directory that agents write: a cache, the usual place of a cache, or one of `taken`. So no
    directory is returned whose path leads through one of them. A cache that a variable moves into a usual place comes with that place.
    """
    home = os.path.realpath(agent_home)
    usual, named = _cache_places(home, {}, _TABLES), _cache_places(home, env, table)
    named |= {place for place in _cache_places(home, {}, table) if any(path.startswith(f"{place}/") for path in named)}
    every = _cache_places(home, env, _TABLES) | usual
    written = {*taken, *(os.path.realpath(place) for place in every if os.path.isdir(place))}
    found = {path: os.path.realpath(path) for path in named if os.path.isdir(path)}
    return tuple(sorted({real for path, real in found.items() if not sandbox.lies_in(home, real) and not _leads_through(path, written)}))


def _cache_places(home: str, env: Mapping[str, str], table: Iterable[tuple[str, str, Sequence[str]]]) -> set[str]:
    found = set[str]()
    for variable, place, parts in table:
        given = env.get(variable, "")
        above = given if given.startswith("/") else os.path.join(home, place)
        found |= {os.path.normpath(os.path.join(above, part)) for part in parts}
    return found


def _with_caches(places: Places, agent_home: Path, env: Mapping[str, str], store: str, homes: Mapping[str, str]) -> Places:
    """Return `places` with the caches that an agent with that HOME and environment has. `homes` are what its command lines keep."""
    closed = (places.state, places.run_dir, places.common_dir, *places.doors_out, sandbox.RUN)
    shared, agents, own = (
        [path for path in caches(agent_home, env, table, homes) if not sandbox.touches(path, closed) and path not in sandbox.TEMPORARY]
        for table in (sandbox.CACHES, sandbox.AGENT_CACHES, (sandbox.CACHE_HOME,))
    )
    cache_home = next(iter(own), "")
    packages = [f"{cache_home}/{name}" for name in sandbox.PACKAGES] if cache_home else []
    inner = (*homes, *places.program, *filter(None, (places.same_path,)))  # no mount is made upon a directory that other agents write
    agents = [path for path in (*agents, *packages) if not sandbox.touches(path, inner)]
    named = {path for path in _cache_places(os.path.realpath(agent_home), env, _TABLES) if not sandbox.lies_in(cache_home, path)}
    kept = {*packages, *homes, *shared, *named}
    shown = [path for path in _directories(cache_home) if not sandbox.touches(path, kept)]
    return replace(
        places,
        caches=tuple(shared),
        agent_caches=tuple(agents),
        cache_home=cache_home,
        cache_shown=tuple(shown[:_SHOWN_MAX]),
        cache_store=store,
    )


def _directories(path: str) -> list[str]:
    """Return the directories in `path`, sorted, links not among them; none for the empty path."""
    try:
        with os.scandir(path or "/nonexistent") as found:
            return sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def unmoved(home: Home, path: Path) -> str:
    """Where a directory of the state really lies; empty when something above or at it is a link: an agent without a sandbox can put one
    there, and what it leads to would be shown to those that have one."""
    wanted = os.path.join(os.path.realpath(home.root), os.path.relpath(path, home.root))
    return wanted if os.path.realpath(path) == wanted else ""


def _leads_through(path: str, places: Collection[str]) -> bool:
    """Whether a step on the way to `path`, links followed, is an entry of one of `places` or of a directory below one."""
    at, steps, links = "/", path.strip("/").split("/"), 0
    while steps and links < _LINKS_MAX:
        if any(sandbox.lies_in(at, place) for place in places):
            return True
        name = steps.pop(0)
        entry = os.path.normpath(os.path.join(at, name))
        if os.path.islink(entry):
            links += 1
            target = os.readlink(entry)
            at = "/" if target.startswith("/") else at
            steps = [*target.strip("/").split("/"), *steps]
        else:
            at = entry
    return bool(steps)


def with_home(
    places: Places, attempt: Path, agent_home: Path, env: Mapping[str, str], tier: Tier, network: bool | Sequence[str], store: str = ""
) -> Places:
    """Return `places` with the caches of an agent with that HOME and environment, and with its copies of what command lines keep in the
    home, which are made. `store` as `Places.cache_store`. Raises HostError when the copies cannot be made."""
    closed = (places.state, places.run_dir, *places.doors_out)
    found = agent_homes.find(agent_home, env, closed, places.common_dir)
    seen = _with_caches(places, agent_home, env, store, found)
    access, hosts = sandbox.network_of(tier, network)
    try:
        made = agent_homes.prepare(attempt, found, gives_back=access is Network.HOST or bool(hosts))
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise HostError("cannot copy what command lines keep in", on=str(agent_home), why=why) from error
    own = tuple((real, f"{places.attempt}/{copy}") for real, copy in made.private)
    return replace(seen, homes=own, homes_shown=made.shown)


def policy(places: Places, tier: Tier, network: bool | tuple[str, ...], gateway_port: int) -> Policy:
    """Return the policy of an attempt, and make the directories of its caches. Those that are the attempt's own begin empty: executors make
    directories to mount upon in them, and an earlier start may have left links. Raises HostError when they cannot be made."""
    made = sandbox.policy_for(places, tier, network, gateway_port, os.path.exists)
    own_caches = f"{places.attempt}/{sandbox.OWN_CACHES}"
    trusted = {f"{own_caches}/": places.attempt, f"{places.cache_store}/": places.state}
    try:
        remove_tree(Path(own_caches))
        for path, top in ((path, top) for _, path in made.private for above, top in trusted.items() if path.startswith(above)):
            with folder(Path(top), path.removeprefix(f"{top}/"), make=True):
                pass
    except OSError as error:
        raise HostError("cannot prepare a sandbox", on=places.worktree, why=f"{error.filename}: {error.strerror}") from error
    return made


def _sockets() -> Iterator[str]:
    """What this host's processes have bound to a path. One that is made later is not among them: a stated limit."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        path = line.split(maxsplit=7)[7:]  # number, references, protocol, flags, type, state, inode, path
        if path and path[0].startswith("/") and _is_socket(path[0]):
            yield os.path.realpath(path[0])


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False  # gone, or behind a door that is closed to the agent as well as to us


def _present(home: Path, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({os.path.realpath(path) for name in names if os.path.lexists(path := f"{home}/{name}")}))
