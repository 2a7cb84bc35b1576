"""Which sandboxes work on this host: found by building each one. It takes about a tenth of a second."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.sandbox import STEERS_KERNEL, Network, Policy, Tier
from supervisor.host.sandbox import seccomp_filter as calls
from supervisor.host.sandbox.executors import Executor, argv, program
from supervisor.host.scratch import locked_directory

_DEADLINE_S = 20.0
_LEGACY_TIOCSTI = Path("/proc/sys/dev/tty/legacy_tiocsti")
_NETWORKS = {Tier.FILES: Network.HOST, Tier.OFFLINE: Network.NONE}
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
    """Build each sandbox once, at the same time, and see that it hides and shows what it should. Changes nothing on the host."""
    with locked_directory(Path(os.path.realpath(tempfile.gettempdir())), "nightcrew-probe-") as root:
        trials = {(executor, tier): _begin(root, executor, tier) for executor in Executor for tier in _NETWORKS} if _on_linux() else {}
        answers = {which: _end(trial) for which, trial in trials.items()}
    return Support(
        works={each: frozenset(tier for tier in _NETWORKS if answers.get((each, tier)) == "") for each in Executor},
        why_not={which: why for which, why in answers.items() if why},
        terminal=os.uname().machine in calls.MACHINES or _tiocsti_is_off(),
    )


def _on_linux() -> bool:
    return sys.platform.startswith("linux")


def _begin(root: Path, executor: Executor, tier: Tier) -> subprocess.Popen[bytes] | str:
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
            (*argv(policy, executor), *trial), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
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
