"""The two executors of one policy."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from supervisor.core import sandbox
from supervisor.core.errors import Refused
from supervisor.core.sandbox import Act, Policy

_STEP = (sys.executable, "-I", "-S", str(Path(__file__).resolve().parent / "main.py"))
_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("supervisor", "agents", "worktrees", "memory")
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
