"""Which sandboxes work on this host: found by building each one. It takes about a tenth of a second."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.identity import TAG_VARIABLE
from supervisor.core.sandbox import STEERS_KERNEL, Network, Policy, Tier
from supervisor.host import procfs
from supervisor.host.procfs import Seen
from supervisor.host.sandbox import seccomp_filter as calls
from supervisor.host.sandbox.executors import Executor, argv, program
from supervisor.host.scratch import is_left, locked_directory

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
        terminal=os.uname().machine in calls.MACHINES or _tiocsti_is_off(),
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
        return f"no answer within {_DEADLINE_S:.0f} s"
    if trial.returncode == 0:
        return ""
    return said.decode("utf-8", "replace").strip() or "it hid too little or too much"


def _tiocsti_is_off() -> bool:
    try:
        return _LEGACY_TIOCSTI.read_text().strip() == "0"
    except OSError:
        return False
