"""What an agent can reach: tiers, mounts, and the homes of command-line agents. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from posixpath import dirname, normpath
from typing import Any

from supervisor.kernel.errors import Refused

# Sandbox
# -------
# What an agent can reach: tiers, the policy of one attempt, and the mounts that make it true.
#
#     none     tier 0   nothing is kept from it
#     files    tier 1   own process numbers and ipc, private /tmp, everything read-only but its own, the state directory out of sight
#     offline  tier 2   the same without the host's network: loopback inside leads to the gateway, and an allow-list to named hosts
#
# There is one policy and there are two executors of it (`supervisor/sandbox`): the arguments of bubblewrap, and namespaces
# that a forked process enters by itself. Both carry out `mounts(policy)`, so they cannot drift apart in what is visible.
#
# Paths are plain absolute text, already free of symbolic links: what a link leads to decides what is bound.


class Tier(IntEnum):
    """How much is kept from an agent; a higher one keeps all that a lower one does."""

    NONE = 0
    FILES = 1
    OFFLINE = 2


class Network(StrEnum):
    """What an agent can connect to."""

    HOST = "host"
    """Whatever the host can."""
    GATEWAY = "gateway"
    """The gateway's port on 127.0.0.1, and `Policy.hosts` through a proxy."""
    NONE = "none"
    """Nothing."""


CACHES = (
    ("CARGO_HOME", ".cargo", ("git", "registry")),
    ("GOPATH", "go", ("pkg/mod",)),
    ("GOMODCACHE", "go/pkg/mod", ("",)),
    ("", ".m2/repository", ("",)),
    ("YARN_GLOBAL_FOLDER", ".yarn/berry", ("cache", "index", "metadata")),
    ("NUGET_PACKAGES", ".nuget/packages", ("",)),
)
"""The person's caches that an agent writes: the variable that names the place, the place below the home without it, and the parts of the
place that are cache. A build without a network needs what lies there. Directories of commands (`.cargo/bin`, `go/bin`) are not among the
parts, and neither is what steers a build (`.cargo/config.toml`, `.m2/settings.xml`)."""

AGENT_CACHES = (
    ("npm_config_cache", ".npm", ("",)),
    ("PNPM_HOME", ".local/share/pnpm", ("store",)),
    ("BUN_INSTALL", ".bun", ("install/cache",)),
)
"""Caches in whose place the agents of a project have one of their own, in the form of `CACHES`. npx starts programs from the person's, and
pnpm and bun link their files into the person's projects, where a change is there at once."""

CACHE_HOME = ("XDG_CACHE_HOME", ".cache", ("",))
"""The directory in whose place each attempt has an empty one, in the form of `CACHES`: shells, editors and hooks run what lies there."""
PACKAGES = ("go-build", "pip", "pnpm", "pypoetry", "uv", "yarn")
"""Names in CACHE_HOME in whose place the agents of a project have a directory of their own: uv links its files into the person's
environments, and none of the others checks all of what it finds there."""

DOORS_OUT = (
    ".1password", ".colima", ".docker/run", ".gnupg", ".local/share/containers/podman/machine", ".orbstack/run", ".rd", ".ssh/agent",
)  # fmt: skip
"""Directories below the home with sockets of programs that would act outside for whoever connects, and keys: hidden where they exist, so
that a socket made later is out of sight too."""

RUN = "/run"
"""Hidden: the session bus, the container engines and systemd would start anything outside."""
RUN_SHOWN = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf",
    "/run/nscd", "/run/current-system", "/run/booted-system", "/run/opengl-driver",
)  # fmt: skip
"""What name resolution, and programs on NixOS, need of it."""

STEERS_KERNEL = tuple(f"/proc/{name}" for name in ("acpi", "bus", "dynamic_debug", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger"))
"""Read-only for an agent that is root: it may write there as the files' owner, without any capability, and `core_pattern` runs a program
outside. (The list of container runtimes, and three more that exist on some kernels.)"""

TEMPORARY = ("/tmp", "/var/tmp")
OWN_CACHES = "tmp/.caches"
"""In an attempt's directory: its own caches, each below the path where it stands."""
SHARED_OBJECTS = "shared-objects"
"""Where the person's objects stand in an attempt's own repository; its `objects/info/alternates` says so."""
PROXY_PORT = 3128
"""Where HTTP_PROXY points inside tier 2: squid's port. The loopback inside is the sandbox's own, so it can only meet the gateway's."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one attempt may reach. Whatever of the host is not named is visible and read-only."""

    writable: tuple[str, ...]
    readable: tuple[str, ...]
    """Read-only although something around it is writable or hidden; sockets too, connecting needs no more."""
    hidden: tuple[str, ...]
    """Directories that look empty."""
    tmp: str
    """Directory of this attempt that stands at /tmp and /var/tmp."""
    private: tuple[tuple[str, str], ...] = ()
    """A directory of the host, and one of this attempt that stands there: writable."""
    shown: tuple[tuple[str, str], ...] = ()
    """A path, and what of the host stands there: read-only."""
    masked: tuple[str, ...] = ()
    """Sockets that nobody inside can connect to, where nothing else hides them: read-only does not keep anybody from that."""
    devices: tuple[str, ...] = ()
    """Device files beside null, zero, full, random, urandom, tty and new pseudo-terminals."""
    overlay: tuple[str, str] | None = None
    """A directory, and the options of the overlay that is mounted there before all else: in a user namespace it can be seen by nobody
    outside. Only Executor.NAMESPACES does it."""
    network: Network = Network.HOST
    hosts: tuple[str, ...] = ()
    """Names, or `*.name` for all below it, that the proxy lets through. Only with Network.GATEWAY."""
    gateway_socket: str = ""
    gateway_port: int = 0
    """Port on 127.0.0.1 inside that leads to `gateway_socket`; 0: no gateway runs."""

    @property
    def own_network(self) -> bool:
        return self.network is not Network.HOST

    @property
    def proxy_port(self) -> int:
        """Port on 127.0.0.1 inside where the proxy answers; 0 when nothing is allowed."""
        if not self.hosts or self.network is not Network.GATEWAY:
            return 0
        return PROXY_PORT if self.gateway_port != PROXY_PORT else PROXY_PORT + 1


def choose(asked: Tier | None, works: Collection[Tier], network: bool | Sequence[str] = True) -> Tier:
    """The tier of a task. `works` are the tiers that worked when tried on this host; `network` is the task's: True, False, or the hosts
    that it may reach.

    A task that asks for nothing gets FILES, or NONE where nothing works: whoever calls says that loudly. A task that asks, also by its
    `network`, gets what it asked for or Refused; it never runs with less.
    """
    limited = network is not True
    if limited and asked is not None and asked < Tier.OFFLINE:
        raise Refused(
            "this task limits its network, but asks for a sandbox that cannot",
            on=f"sandbox = {int(asked)}",
            why=f"only tier {int(Tier.OFFLINE)} has a network of its own",
            hint=f"sandbox = {int(Tier.OFFLINE)}, or leave `sandbox` out",
        )
    if asked is None and not limited:
        return Tier.FILES if Tier.FILES in works else Tier.NONE
    wanted = Tier.OFFLINE if asked is None else asked
    if wanted is Tier.NONE or wanted in works:
        return wanted
    raise Refused(
        "this host cannot isolate a task as it asks",
        on=f"tier {int(wanted)}",
        why="neither bubblewrap nor namespaces of our own worked when they were tried",
        kept="the task, it was not started with less",
        hint="nightcrew doctor",
    )


def network_of(tier: Tier, network: bool | Sequence[str]) -> tuple[Network, tuple[str, ...]]:
    """What a task of that tier can connect to, and its allow-list."""
    if tier < Tier.OFFLINE:
        return Network.HOST, ()
    if network is False:
        return Network.NONE, ()
    return Network.GATEWAY, () if network is True else tuple(network)


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one attempt lies on the host, free of symbolic links."""

    worktree: str
    attempt: str
    """The directory of its records, with `out/` and `tmp/`."""
    state: str
    """The state directory, which holds the ledger, the keys, the secret, and all worktrees and records."""
    run_dir: str
    """The directory of the sockets, in the state directory or elsewhere."""
    agents_socket: str
    """In a directory of its own, which is shown: whoever listens there later is reached too."""
    gateway_socket: str
    common_dir: str
    """The repository's common directory, where the agent finds `private_dir`."""
    private_dir: str
    """The attempt's own repository (`worktrees.private_repository`), which stands at `common_dir` in the sandbox."""
    admin: str
    """Name of git's own directory for this worktree, in `worktrees` of both."""
    homes: tuple[tuple[str, str], ...] = ()
    """Directories of the agents' command lines in the person's home (`core.agent_homes`), each with this attempt's copy."""
    homes_shown: tuple[str, ...] = ()
    """Parts of `homes` that are too large for a copy: seen in it as they are, and read-only."""
    caches: tuple[str, ...] = ()
    """The directories of CACHES that exist."""
    agent_caches: tuple[str, ...] = ()
    """The directories of AGENT_CACHES that exist, and those of PACKAGES."""
    cache_home: str = ""
    """The directory of CACHE_HOME; empty if it does not exist, or holds something that must stay out of sight."""
    cache_shown: tuple[str, ...] = ()
    """The other directories in `cache_home`: seen as they are, and read-only."""
    cache_store: str = ""
    """The directory of the project's agents that holds their caches; empty: there is none, and each attempt has its own."""
    shared_caches: bool = True
    """False: in place of each cache the attempt has an empty one of its own."""
    doors_out: tuple[str, ...] = ()
    """What exists of DOORS_OUT."""
    foreign_sockets: tuple[str, ...] = ()
    """Every socket of the host that has a path now."""
    program: tuple[str, ...] = ()
    """Directories of our own code and its interpreter, which the last step before the agent needs, and what else must be in sight."""
    devices: tuple[str, ...] = ()
    root: bool = False
    """Whether the agent is root."""
    overlay_options: str = ""
    """Of the overlay that the worktree is, when nobody but the agent's own namespace can mount it."""
    same_path: str = ""
    """Where the worktree is seen too, and the agent works; empty: nowhere else."""
    memory: str = ""
    """What the agents of its project know together; in the state directory, of which it sees nothing else of theirs."""


def policy_for(places: Places, tier: Tier, network: bool | Sequence[str], gateway_port: int, exists: Callable[[str], bool]) -> Policy:
    """The policy of one attempt of `tier` FILES or OFFLINE. `exists` says which of the paths that may be missing are there."""
    access, hosts = network_of(tier, network)
    sockets = [dirname(places.agents_socket)] + ([places.gateway_socket] if access is not Network.NONE else [])
    own_caches = f"{places.attempt}/{OWN_CACHES}"
    store = (places.shared_caches and places.cache_store) or own_caches
    own = [f"{places.attempt}/out", f"{places.attempt}/tmp"]
    told = [f"{places.attempt}/{name}" for name in ("prompt.md", "after.json", "mcp.json", "inbox")]
    maybe = [*sockets, *told, *filter(None, (places.memory,)), *RUN_SHOWN]
    maybe += STEERS_KERNEL if places.root else ()
    return Policy(
        writable=(places.worktree, *own, *(places.caches if places.shared_caches else ())),
        readable=(*places.program, *filter(exists, maybe)),
        hidden=(places.state, places.run_dir, *filter(exists, (RUN,)), *places.doors_out),
        tmp=f"{places.attempt}/tmp",
        private=(
            *places.homes,
            (places.common_dir, places.private_dir),
            *((path, f"{own_caches}{path}") for path in (() if places.shared_caches else places.caches)),
            *((path, f"{own_caches}{path}") for path in (places.cache_home,) if path),
            *((path, f"{store}{path}") for path in places.agent_caches),
            *(((places.same_path, places.worktree),) if places.same_path else ()),
        ),
        shown=(
            *((path, path) for path in (*places.homes_shown, *places.cache_shown)),
            *repository_shown(places.common_dir, places.private_dir, places.admin, places.worktree, exists),
            *(((f"{places.same_path}/.git", f"{places.worktree}/.git"),) if places.same_path else ()),
        ),
        masked=tuple(path for path in places.foreign_sockets if path != places.agents_socket),
        devices=places.devices,
        overlay=(places.worktree, places.overlay_options) if places.overlay_options else None,
        network=access,
        hosts=hosts,
        gateway_socket=places.gateway_socket if access is Network.GATEWAY and gateway_port else "",
        gateway_port=gateway_port if access is Network.GATEWAY else 0,
    )


def repository_shown(common: str, private: str, admin: str, worktree: str, exists: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    """What stands read-only in an attempt's own repository, as `Policy.shown`: the person's objects, hooks and `info`, and the links
    between worktree and repository.

    Nothing outside follows these links of `private`; they are closed so that an accident inside does not cost the agent its repository.
    """
    links = [(f"{common}/worktrees/{admin}/{name}", f"{private}/worktrees/{admin}/{name}") for name in ("commondir", "gitdir")]
    person = [
        (f"{common}/{name}", f"{common}/{source}") for name, source in ((SHARED_OBJECTS, "objects"), ("hooks", "hooks"), ("info", "info"))
    ]
    return tuple((path, source) for path, source in (*person, *links, (f"{worktree}/.git", f"{worktree}/.git")) if exists(source))


def variables(policy: Policy) -> dict[str, str]:
    """What an agent's environment must say beside its own so that clients find the proxy."""
    if not policy.proxy_port:
        return {}
    proxy, direct = f"http://127.0.0.1:{policy.proxy_port}", "127.0.0.1,localhost"
    names = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": direct}
    return {**names, **{name.lower(): text for name, text in names.items()}}


_GIT = {"commit.gpgsign": "false", "tag.gpgsign": "false", "gc.auto": "0", "maintenance.auto": "false", "core.logallrefupdates": "true"}


def git_settings(env: Mapping[str, str], settings: Mapping[str, str] = _GIT) -> dict[str, str]:
    """Return the variables that add `settings` (keys in lower case) to git's configuration in `env`; a setting that `env` has stays.

    The default is for a sandbox. Its git signs nothing: the keys and the agents that hold them are out of sight, so the commits of a
    person who signs every commit would fail. It collects nothing: its repository goes with its attempt, and collecting one with thousands
    of branches delayed a commit by minutes."""
    count = env.get("GIT_CONFIG_COUNT") or "0"
    if not count.isdecimal() or len(count) > 6:
        return {}  # git refuses it by itself, and says so
    said = {text.lower() for name, text in env.items() if name.startswith("GIT_CONFIG_KEY_")}
    missing = [(key, value) for key, value in settings.items() if key not in said]
    found = {"GIT_CONFIG_COUNT": str(int(count) + len(missing))}
    for index, (key, value) in enumerate(missing, int(count)):
        found |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return found


class Act(StrEnum):
    """What happens at one path."""

    READ = "ro"
    WRITE = "rw"
    DEVICE = "device"
    HIDE = "hide"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class Mount:
    """One step: `source` of the host stands at `path`. HIDE has no source: an empty directory that is read-only in the end.
    MASK neither: nobody can connect there, if it is still there."""

    act: Act
    path: str
    source: str = ""


def mounts(policy: Policy) -> tuple[Mount, ...]:
    """The steps in their order, above a host that is read-only as a whole: what lies deeper comes later and wins.

    Of two rules for one path the stricter holds. /proc and /dev are new in every sandbox and no step. Raises Refused for a path that is
    not absolute and plain.
    """
    rules = {path: Mount(Act.WRITE, path, policy.tmp) for path in TEMPORARY if policy.tmp}
    rules |= {path: Mount(Act.MASK, path) for path in policy.masked}
    rules |= {path: Mount(Act.DEVICE, path, path) for path in policy.devices}
    rules |= {path: Mount(Act.WRITE, path, path) for path in policy.writable}
    rules |= {path: Mount(Act.WRITE, path, source) for path, source in policy.private}
    rules |= {path: Mount(Act.READ, path, source) for path, source in (*policy.shown, *((path, path) for path in policy.readable))}
    rules |= {path: Mount(Act.HIDE, path) for path in policy.hidden}
    return tuple(_needed(sorted(rules.values(), key=lambda mount: _parts(mount.path))))


def _needed(ordered: Iterable[Mount]) -> Iterable[Mount]:
    """Leave out what the mount around it already does; each costs a system call or two at every start. /proc is always a new one."""
    around = [Mount(Act.READ, "/", "/")]
    for mount in ordered:
        while not lies_in(mount.path, around[-1].path):
            around.pop()
        outer = around[-1]
        if mount.act is Act.MASK and outer.source != outer.path:  # hidden, or behind the private /tmp
            continue
        there = outer.source and outer.source.rstrip("/") + mount.path[len(outer.path.rstrip("/")) :]
        if not lies_in(mount.path, "/proc") and mount.act is outer.act and mount.source == there:
            continue
        around.append(mount)
        yield mount


def lies_in(path: str, above: str) -> bool:
    """Return whether `path` is `above` or something below it."""
    return above == "/" or path == above or path.startswith(above + "/")


def touches(path: str, others: Iterable[str]) -> bool:
    """Return whether `path` lies in one of `others` or holds it: a variable could say so."""
    return any(lies_in(path, other) or lies_in(other, path) for other in others)


def _parts(path: str) -> list[str]:
    parts = path.split("/")[1:]
    if not path.startswith("/") or {"", ".", ".."} & set(parts) or "\0" in path:
        raise Refused("a sandbox is built from absolute paths without dots", on=path)
    return parts


# Agent homes
# -----------
# Describe the directories that agents' command lines keep below a person's home: which parts of them a confined agent gets a copy
# of, and which renewed logins come back. Pure.
#
# A confined agent has a copy of each of these directories, made for its attempt. Nothing of a copy returns to the person, except
# the tokens of a login that was there before (`renewed`).


_NAMES = ("claude", "codex", "aider", "gemini", "opencode", "goose", "amp", "crush")
DIRECTORIES = (
    ("CLAUDE_CONFIG_DIR", "", ".claude"),
    ("", "", ".claude.json"),
    ("CODEX_HOME", "", ".codex"),
    ("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    ("QWEN_HOME", "", ".qwen"),
    ("", "", ".aider"),
    *(("XDG_CONFIG_HOME", name, f".config/{name}") for name in _NAMES),
    *(("XDG_DATA_HOME", name, f".local/share/{name}") for name in _NAMES if name != "claude"),
    *(("XDG_STATE_HOME", name, f".local/state/{name}") for name in ("claude", "opencode", "crush")),
)
"""The variable that moves a directory, the path in the place that it names, and the path below the home without it. `.claude.json` is a
file. `.local/share/claude` is not among them: it holds Claude Code's program, and stays read-only like the rest of the home."""

PROGRAMS_IN_CACHE = ("claude", "opencode")
"""Directories of `.cache` from which a command line starts programs: downloaded releases, packages of plug-ins. An attempt has a copy of
those that exist; one that it makes lies in its own `.cache`."""

LEFT_OUT = (
    ".git", ".tmp", "archived_sessions", "backups", "cache", "chats", "daemon", "debug", "file-history", "history", "ide", "image-cache",
    "jobs", "locks", "log", "logs", "paste-cache", "plans", "project", "projects", "repos", "session-env", "sessions", "shell-snapshots",
    "shell_snapshots", "snapshot", "statsig", "storage", "tasks", "teams", "telemetry", "threads", "tmp", "todos", "tool-output",
    "usage-data", "worktree", "worktrees", "*.db", "*.db-*", "*.jsonl", "*.lock", "*.log", "*.pid", "*.sqlite*",
)  # fmt: skip
"""Names in these directories that are not copied: transcripts, histories, logs, databases. Each agent begins its own."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A group of tokens that are renewed together."""

    at: tuple[str, ...]
    """The keys that lead to its table in the JSON file; `*` stands for any key."""
    renewed: tuple[str, ...]
    """The values that a renewal changes. A dot leads into a table."""
    age: str
    """The value that grows with each renewal: milliseconds since 1970, or a time in ISO 8601."""


LOGINS: Mapping[str, tuple[Tokens, ...]] = {
    ".claude/.credentials.json": (
        Tokens(("claudeAiOauth",), ("accessToken", "refreshToken", "expiresAt", "refreshTokenExpiresAt"), "expiresAt"),
        Tokens(("mcpOAuth", "*"), ("accessToken", "refreshToken", "expiresAt"), "expiresAt"),
    ),
    ".codex/auth.json": (
        Tokens((), ("tokens.id_token", "tokens.access_token", "tokens.refresh_token", "last_refresh"), "last_refresh"),
    ),
    ".gemini/oauth_creds.json": (Tokens((), ("access_token", "refresh_token", "id_token", "expiry_date"), "expiry_date"),),
    ".qwen/oauth_creds.json": (Tokens((), ("access_token", "refresh_token", "id_token", "expiry_date"), "expiry_date"),),
    ".local/share/opencode/auth.json": (Tokens(("*",), ("access", "refresh", "expires"), "expires"),),
}  # fmt: skip
"""The files with logins that a command line renews by itself, as paths below the home without any variable."""

LOGIN_MAX = 256 * 1024
"""Bytes of a file with logins. A larger one is not shared."""
AHEAD_MAX_MS = 400 * 24 * 3600 * 1000
"""How far ahead of now a token may expire, so that a forged time cannot keep later renewals out."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


def directories(home: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each path that may hold what a command line keeps, for an agent with that home and environment, and its usual path below the home. A
    directory that a variable moves is named at both places."""
    home = home.rstrip("/")
    for variable, inner, usual in DIRECTORIES:
        yield f"{home}/{usual}", usual
        given = env.get(variable, "") if variable else ""
        if given.startswith("/"):
            yield normpath("/" + f"{given}/{inner}".lstrip("/")), usual
    caches = [f"{home}/.cache", *(cache for cache in [env.get("XDG_CACHE_HOME", "")] if cache.startswith("/"))]
    yield from ((f"{cache}/{name}", f".cache/{name}") for cache in caches for name in PROGRAMS_IN_CACHE)


def is_left_out(name: str) -> bool:
    """Return whether a confined agent gets no copy of an entry of such a directory."""
    return any(fnmatchcase(name, pattern) for pattern in LEFT_OUT)


def renewed(groups: Collection[Tokens], real: bytes, own: bytes, now_ms: float) -> bytes | None:
    """Return the person's file `real` with the tokens that were renewed in an agent's copy `own`; None when none was.

    Only values that `Tokens.renewed` names change, only in groups that `real` has, and all of a group or none. They must be plain tokens or
    times, newer than those of the person, and not further ahead than AHEAD_MAX_MS. Whatever else the copy says is not looked at.
    """
    ours, theirs = _parsed(real), _parsed(own)
    if ours is None or theirs is None:
        return None
    changed = False
    for group in groups:
        for path in _places(ours, group.at):
            found = {leaf: _value(theirs, (*path, *leaf.split("."))) for leaf in group.renewed}
            known = {leaf: _value(ours, (*path, *leaf.split("."))) for leaf in group.renewed}
            if found == known or not _is_renewal(known, found, group.age, now_ms):
                continue
            changed = True
            for leaf in (leaf for leaf in group.renewed if known[leaf] is not None and found[leaf] is not None):
                *above, last = (*path, *leaf.split("."))
                _value(ours, above)[last] = found[leaf]
    return _written(ours, real) if changed else None


def _is_renewal(known: Mapping[str, Any], found: Mapping[str, Any], age: str, now_ms: float) -> bool:
    before, after = _milliseconds(known[age]), _milliseconds(found[age])
    if before is None or after is None or not before < after <= now_ms + AHEAD_MAX_MS:
        return False
    return all(_alike(known[leaf], found[leaf]) for leaf in known)


def _alike(known: Any, found: Any) -> bool:
    """Return whether `found` may replace `known`. A key that only one of the two files has stays as in the person's file."""
    if known is None or found is None:
        return True
    if isinstance(known, str):
        return isinstance(found, str) and _TOKEN.fullmatch(found) is not None
    return _milliseconds(known) is not None and isinstance(found, int | float) and _milliseconds(found) is not None


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return moment.timestamp() * 1000 if moment.tzinfo is not None else None
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return float(value)


def _places(shape: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The tables of `shape` to which `at` leads."""
    if not at:
        yield ()
        return
    for name in list(shape) if at[0] == "*" else [at[0]]:
        if isinstance(below := shape.get(name), dict):
            yield from ((name, *rest) for rest in _places(below, at[1:]))


def _value(shape: Any, path: Collection[str]) -> Any:
    for name in path:
        shape = shape.get(name) if isinstance(shape, dict) else None
    return shape


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        shape = json.loads(data) if len(data) <= LOGIN_MAX else None
    except (ValueError, RecursionError):
        return None
    return shape if isinstance(shape, dict) else None


def _written(shape: dict[str, Any], like: bytes) -> bytes:
    """In one line, or indented, as the file was."""
    return json.dumps(shape, indent=2 if b"\n" in like.strip() else None, ensure_ascii=False).encode("utf-8", "surrogatepass")
