"""The two executors of one policy, and which of them work on this host."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from supervisor.host import procfs, unix_sockets
from supervisor.host.paths import Home
from supervisor.host.procfs import Seen
from supervisor.host.scratch import is_left, locked_directory
from supervisor.host.untrusted_fs import folder, remove_tree
from supervisor.kernel.errors import HostError, Refused
from supervisor.kernel.format import duration
from supervisor.kernel.names import TAG_VARIABLE
from supervisor.sandbox import exec_step, homes
from supervisor.sandbox import policy as sandbox
from supervisor.sandbox.policy import STEERS_KERNEL, Act, Network, Places, Policy, Tier

# Executors
# ---------
# The two executors of one policy.


_STEP = (sys.executable, "-I", "-S", str(Path(__file__).resolve().parent / "main.py"))
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("supervisor", "agents", "worktrees", "memory", "nightcrew")
_BWRAP_ACTS = {Act.READ: "--ro-bind", Act.WRITE: "--bind", Act.DEVICE: "--dev-bind"}


class Executor(StrEnum):
    """Who builds the sandbox."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"


@functools.cache
def program() -> tuple[str, ...]:
    """`Places.program`: what must stay readable inside for the last step before the agent, and for an agent that is one of our own."""
    ours = [path for name in _PACKAGES if (path := _ROOT / name).is_dir()]
    return tuple(dict.fromkeys(str(path.resolve()) for path in (*ours, Path(sys.prefix), Path(sys.base_prefix))))


def words(policy: Policy) -> tuple[str, ...]:
    """The orders as text, for a file or a command line. `policy_arguments.parse` reads them."""
    found = ["--overlay", *policy.overlay] if policy.overlay is not None else []
    for mount in sandbox.mounts(policy):
        found += [f"--{mount.act}", mount.path, *([mount.source] if mount.act in _BWRAP_ACTS else [])]
    if policy.own_network:
        found.append("--own-network")
    return (*found, *_doors(policy))


def enter(orders: Sequence[str]) -> tuple[str, ...]:
    """The prefix that runs a command in the sandbox of these `words`, as `argv` does for namespaces."""
    return (*_STEP, "enter", *orders, "--")


def argv(policy: Policy, executor: Executor) -> tuple[str, ...]:
    """The prefix that runs a command in the sandbox of `policy`, with the same terminal, environment and working directory.

    The command ends as it would without: 128+n for a signal n, 126 with a sentence when there is no sandbox. Raises Refused for what
    this executor cannot do.
    """
    match executor:
        case Executor.NAMESPACES:
            return enter(words(policy))
        case Executor.BUBBLEWRAP if policy.overlay is not None:
            raise Refused("bubblewrap cannot mount the files of this worktree", on=policy.overlay[0], hint="nightcrew doctor")
        case Executor.BUBBLEWRAP:
            return (*_STEP, "outside", *_doors(policy), "--", *_bwrap(policy), *_inside(policy))


def _doors(policy: Policy) -> Iterator[str]:
    if policy.gateway_socket:
        yield from ("--gateway", str(policy.gateway_port), policy.gateway_socket)
    if policy.proxy_port:
        yield from ("--proxy", str(policy.proxy_port), ",".join(policy.hosts))


def _bwrap(policy: Policy) -> Iterator[str]:
    yield from (shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if policy.own_network:
        yield "--unshare-net"
    yield from ("--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    steps = sandbox.mounts(policy)
    for mount in steps:
        match mount.act:
            case Act.HIDE:
                yield from ("--tmpfs", mount.path)
            case Act.MASK:
                yield from ("@mask", mount.path)
            case act:
                yield from (_BWRAP_ACTS[act], mount.source, mount.path)
    for mount in steps:
        if mount.act is Act.HIDE:
            yield from ("--remount-ro", mount.path)
    yield "--"


def _inside(policy: Policy) -> tuple[str, ...]:
    ports = [door for door in (policy.gateway_port if policy.gateway_socket else 0, policy.proxy_port) if door]
    return (*_STEP, "inside", "@post" if ports else "-", "@terminal", "@ready", *map(str, ports), "--")


# Probing
# -------
# Which sandboxes work on this host: found by building each one. It takes about a tenth of a second.


_DEADLINE_S = 20.0
_LEGACY_TIOCSTI = Path("/proc/sys/dev/tty/legacy_tiocsti")
_NETWORKS = {Tier.FILES: Network.HOST, Tier.OFFLINE: Network.NONE}
_PREFIX, _TAG = "nightcrew-probe-", "probe:"
"""Prefix of the directory of a `probe`, and prefix of the tag that `guarded` gives, before the directory."""
_TRIAL = 'test ! -e "$1" && : >"$2" && test ! -e /tmp/"$3"'  # hidden, writable, private


@dataclass(frozen=True, slots=True)
class Support:
    """What was tried, and what came of it."""

    works: Mapping[Executor, frozenset[Tier]]
    why_not: Mapping[tuple[Executor, Tier], str]
    """One sentence for each that did not work."""
    terminal: bool
    """Whether a sandboxed agent is kept from typing into the terminal that it shares with whoever is attached."""

    @property
    def tiers(self) -> frozenset[Tier]:
        """What some executor can do, for `core.sandbox.choose`. Tier 0 is always there."""
        return frozenset({Tier.NONE}).union(*self.works.values())

    def executor(self, tier: Tier) -> Executor | None:
        """The one for a command that starts cold; None when no one can. Namespaces of our own start faster."""
        return next((each for each in (Executor.NAMESPACES, Executor.BUBBLEWRAP) if tier in self.works[each]), None)


@functools.cache
def known() -> Support:
    """What `probe` finds, asked once in this process."""
    return probe()


def probe() -> Support:
    """Build each sandbox once, at the same time, and see that it hides and shows what it should. Changes nothing on the host.

    First end the sandboxes that killed supervisors left behind.
    """
    answers: dict[tuple[Executor, Tier], str] = {}
    if _on_linux():
        _halt(left())
        with locked_directory(_place(), _PREFIX) as root, guarded(root, os.environ) as (group, env):
            trials = {(executor, tier): _begin(root, executor, tier, group, env) for executor in Executor for tier in _NETWORKS}
            answers = {which: _end(trial) for which, trial in trials.items()}
    return Support(
        works={each: frozenset(tier for tier in _NETWORKS if answers.get((each, tier)) == "") for each in Executor},
        why_not={which: why for which, why in answers.items() if why},
        terminal=os.uname().machine in exec_step.MACHINES or _tiocsti_is_off(),
    )


def _on_linux() -> bool:
    return sys.platform.startswith("linux")


def left() -> list[Seen]:
    """Return the living processes with a tag of `guarded` whose supervisor is gone. If the outer process of bubblewrap is killed while it
    starts, the inner one waits for ever, and nothing that the kernel offers ends it."""
    entry = f"\0{TAG_VARIABLE}={_TAG}".encode()
    found: list[Seen] = []
    for seen in procfs.table().values():
        _, tagged, rest = (b"\0" + procfs.slurp(f"/proc/{seen.pid}/environ")).partition(entry)
        if tagged and not seen.dead:
            place = Path(os.fsdecode(rest.partition(b"\0")[0]))
            if not place.exists() or is_left(place):
                found.append(seen)
    return found


def _halt(found: list[Seen]) -> None:
    procfs.halt(lambda: [seen for seen in found if procfs.lives(seen)], time.sleep, time.monotonic, 0.0)


def _place() -> Path:
    return Path(os.path.realpath(tempfile.gettempdir()))


@contextlib.contextmanager
def guarded(place: Path, env: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield a process group for sandboxes of this process, and their environment: `env` with a tag.

    The group ends with this process, however that ends: its leader reads from a pipe of ours, and then kills the group. If the leader was
    killed too, `left` finds the processes by their tag, which names `place`, a `locked_directory` of this process.
    """
    tagged = {**env, TAG_VARIABLE: f"{_TAG}{place}"}
    guard = subprocess.Popen(
        ("/bin/sh", "-c", "read -r _; kill -KILL 0"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=tagged,
        cwd="/",
        process_group=0,
    )
    try:
        yield guard.pid, tagged
    finally:
        guard.communicate()


def _begin(root: Path, executor: Executor, tier: Tier, group: int, env: Mapping[str, str]) -> subprocess.Popen[bytes] | str:
    place = root / f"{executor}{tier}"
    hidden, shown = place / "state", place / "state" / "work"
    for directory in (shown, place / "tmp"):
        directory.mkdir(parents=True)
    (hidden / "secret").touch()
    policy = Policy(
        writable=(str(shown),),
        readable=(*program(), *(path for path in STEERS_KERNEL if os.geteuid() == 0 and Path(path).exists())),
        hidden=(str(hidden),),
        tmp=str(place / "tmp"),
        network=_NETWORKS[tier],
    )
    trial = ("/bin/sh", "-c", _TRIAL, "sh", str(hidden / "secret"), str(shown / "made"), f"{root.name}/{place.name}/tmp")
    try:
        return subprocess.Popen(
            (*argv(policy, executor), *trial),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            process_group=group,
        )
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def _end(trial: subprocess.Popen[bytes] | str) -> str:
    """ "" when it worked, else why not."""
    if isinstance(trial, str):
        return trial
    try:
        _, said = trial.communicate(timeout=_DEADLINE_S)
    except subprocess.TimeoutExpired:
        trial.kill()
        trial.communicate()
        return f"no answer within {duration(_DEADLINE_S)}"
    if trial.returncode == 0:
        return ""
    return said.decode("utf-8", "replace").strip() or "it hid too little or too much"


def _tiocsti_is_off() -> bool:
    try:
        return _LEGACY_TIOCSTI.read_text().strip() == "0"
    except OSError:
        return False


# Policy paths
# ------------
# What a policy needs to know of this host: which paths exist, and where they really lie.


# ruff: noqa: PTH112, PTH114, PTH115, PTH116, PTH118
# (the core speaks text, and so do mounts)


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
    found = homes.find(agent_home, env, closed, places.common_dir)
    seen = _with_caches(places, agent_home, env, store, found)
    access, hosts = sandbox.network_of(tier, network)
    try:
        made = homes.prepare(attempt, found, gives_back=access is Network.HOST or bool(hosts))
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
    for name in (os.fsdecode(name) for name, _, _ in unix_sockets.bound()):
        if name.startswith("/") and _is_socket(name):
            yield os.path.realpath(name)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False  # gone, or behind a door that is closed to the agent as well as to us


def _present(home: Path, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({os.path.realpath(path) for name in names if os.path.lexists(path := f"{home}/{name}")}))
