"""What agents start in, and what keeps them inside: each found by doing it once, in a scratch directory that is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from agents.zygote import build_client
from supervisor.core import limits as core_limits
from supervisor.core.limits import By, Limits, Means
from supervisor.core.sandbox import Tier
from supervisor.doctor.check_context import CheckContext, existing
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, warn
from supervisor.host import cgroups, gpus, limits
from supervisor.host.sandbox import probing
from supervisor.host.sandbox.executors import Executor
from supervisor.host.sandbox.probing import Support
from supervisor.host.scratch import locked_directory
from worktrees import backends
from worktrees.backends import Verdict

SWITCHES = {
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "16384"),
}
"""What forbids user namespaces below /proc/sys on Ubuntu, on Debian and everywhere, and the value that allows them."""


def file_backends(context: CheckContext) -> Finding:
    """How an environment that starts from a snapshot gets its files here."""
    return judged_backends(backends.survey(existing(context.home.worktrees)))


def judged_backends(verdicts: Iterable[Verdict]) -> Finding:
    """The first that works is taken, where it can serve the snapshot."""
    found = list(verdicts)
    works = [one.backend.name for one in found if one.reason is None]
    others = [f"not {one.backend.name}: {one.reason}" for one in found if one.reason is not None]
    if not works:
        return fail("; ".join(others), "no task that names a snapshot can start", "NIGHTCREW_HOME names a directory on a local disk")
    seen, first = "; ".join([", then ".join(works), *others]), next(one.backend for one in found if one.reason is None)
    if first.caveat:
        return warn(seen, f"{first.name}: {first.caveat}", "NIGHTCREW_HOME on xfs or btrfs, where `reflink` works")
    return ok(seen)


def sandbox(context: CheckContext) -> Finding:
    """Which isolation tiers there are, and who builds them."""
    return judged_sandbox(probing.probe(), context)


def judged_sandbox(support: Support, context: CheckContext) -> Finding:
    """Tier 0 is no isolation at all, so a machine that has nothing else is warned of."""
    tiers = (Tier.FILES, Tier.OFFLINE)
    builders = {tier: [each for each in Executor if tier in support.works[each]] for tier in tiers}
    shown = [f"tier {int(tier)}: {', '.join(names)}" for tier, names in builders.items() if names]
    missing = [f"not {each}: {why}" for each, why in _why_not(support).items()]
    seen = "; ".join([*shown, *missing]) or "none: this system has none that nightcrew knows"
    if not builders[Tier.FILES]:
        return warn(seen, "agents run in tier 0: they can read and change all that you can", _way_to_namespaces(context))
    if not builders[Tier.OFFLINE]:
        return warn(seen, "a task with `network = false` or `sandbox = 2` is refused here", _way_to_namespaces(context))
    if not support.terminal:
        why = "an agent could type into the terminal of whoever is attached to it"
        return warn(seen, why, "sudo sysctl -w dev.tty.legacy_tiocsti=0  (to stay: /etc/sysctl.d)")
    return ok(seen)


def _why_not(support: Support) -> dict[Executor, str]:
    """One reason for each executor that lacks a tier."""
    return {executor: why for (executor, _), why in sorted(support.why_not.items(), reverse=True)}


def _way_to_namespaces(context: CheckContext) -> str:
    for name, (forbids, allows) in SWITCHES.items():
        if context.read(context.proc / "sys" / name) == forbids:
            return f"sudo sysctl -w {name.replace('/', '.')}={allows}  (to stay: /etc/sysctl.d)"
    return (
        "install bubblewrap: apt install bubblewrap, dnf install bubblewrap" if context.which("bwrap") is None else "docs/environments.md"
    )


def agents_limits(context: CheckContext) -> Finding:
    """What holds the limits that a task sets for itself as a whole."""
    groups = cgroups.probe()
    return judged_limits(limits.means(groups, namespace=os.geteuid() != 0), groups.missing, context)


def judged_limits(means: Means, missing: Iterable[str], context: CheckContext) -> Finding:
    """Warns where an agent passes a limit by starting more processes. `missing`: why control groups do not do it, a sentence each."""
    held = core_limits.held(Limits(memory_max=1, processes_max=1, cpu_max=1), means)
    by: dict[str, list[str]] = {}
    for one in held:
        by.setdefault(_HOLDS[one.by], []).append(one.name)
    seen = "; ".join(f"{', '.join(names)} {how}" for how, names in by.items())
    if all(one.by in (By.GROUP, By.NAMESPACE) for one in held):
        return ok(seen)
    fix = "docs/environments.md"
    if context.systemd:
        fix = "nightcrew down; systemd-run --user --scope -p Delegate=yes nightcrew up -d"
    return warn(seen, "; ".join(missing) or "an agent with many processes passes such a limit", fix)


_HOLDS = {
    By.GROUP: "for all its processes together",
    By.NAMESPACE: "for all its processes together",
    By.EACH: "for each of its processes alone",
    By.WATCHED: "looked at from time to time",
    By.NOBODY: "held by nothing",
}


def warm_start(context: CheckContext) -> Finding:
    """The program in the pane of an agent that is forked: compiled where there is a compiler. Tried in a scratch directory."""
    with locked_directory(existing(context.home.root), ".nightcrew-doctor-") as scratch:
        client = build_client(scratch)
    if client is None:
        return ok("by a client in Python, which takes some milliseconds more; a C compiler makes it faster (apt install gcc libc6-dev)")
    return ok("by a client that the C compiler makes")


def gpu(context: CheckContext) -> Finding:
    """Which graphics processors agents could use, for information."""
    found = gpus.probe(context.proc.parent)
    return ok("; ".join(f"{one.vendor} {one.index}: {one.name}" for one in found.gpus) or found.why)


CHECKS: Mapping[str, Check] = {
    "file backends": file_backends,
    "sandbox": sandbox,
    "limits": agents_limits,
    "warm start": warm_start,
    "gpu": gpu,
}
