"""Look at the machine, its programs, and what agents start in."""

from __future__ import annotations

import concurrent.futures
import os
import resource
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agents import tmux_control
from agents.kinds import Kind, kinds
from supervisor import __version__
from supervisor.config import user
from supervisor.doctor.examine import Check, CheckContext, Finding, Said, existing, fail, ok, unknown, warn
from supervisor.host import cgroups, import_guard
from supervisor.kernel import limits as core_limits
from supervisor.kernel.errors import ConfigError, HostError
from supervisor.kernel.kind import version
from supervisor.kernel.limits import By, Limits, Means
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor, Support
from supervisor.sandbox.policy import Tier
from worktrees import backends
from worktrees.backends import Verdict
from worktrees.git import MINIMUM, parse_version

# Machine
# -------
# The machine: its limits, and what it does when you log out.


def open_files(context: CheckContext) -> Finding:
    """How many files a process may hold open, and whether the settings' own limits can be set at all."""
    names = {"memory_max": resource.RLIMIT_AS, "file_max": resource.RLIMIT_FSIZE, "open_files": resource.RLIMIT_NOFILE}
    for name, number in names.items():
        hard = context.rlimit(number)[1]
        wanted = getattr(context.settings, name)
        if wanted and hard != resource.RLIM_INFINITY and wanted > hard:
            why = "agents could not start: a limit above the hard one cannot be set"
            fix = f"lower limits.{name} in {context.config}, or raise ulimit -H"
            return fail(f"limits.{name} is {wanted:,}, the hard limit {hard:,}", why, fix)
    soft = context.rlimit(resource.RLIMIT_NOFILE)[0]
    least = max(1024, 64 + 8 * context.slots)  # the supervisor and the tmux server hold a few for each agent
    seen = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} a process"
    if soft != resource.RLIM_INFINITY and soft < least:
        return warn(seen, f"the supervisor holds some for each of {context.slots} agents", f"ulimit -n {least} before nightcrew up")
    return ok(seen)


def logout(context: CheckContext) -> Finding:
    """Whether the crew outlives the login session."""
    why = "the crew is killed when you log out"
    if not context.systemd:
        return unknown("systemd does not run here", "what happens at logout is not known")
    group = context.cgroup or ""
    linger = context.ask("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    stays = linger.code == 0 and linger.text == "yes"
    if "/user@" in group:
        if stays:
            return ok("linger is on")
        return warn("linger is off", f"{why}: it runs under your user manager, which ends then", "loginctl enable-linger")
    if ".scope" not in group:
        return ok("not started from a login session")
    kill = context.ask("loginctl", "show-session", "--property=KillUserProcesses", "--value")
    if kill.code != 0:
        return unknown(kill.text or "loginctl does not say", why)
    if kill.text == "yes":
        enable = "" if stays else "loginctl enable-linger; "
        return warn("KillUserProcesses=yes", why, f"{enable}nightcrew down; systemd-run --user --scope nightcrew up -d")
    return ok("KillUserProcesses=no: what runs stays")


CHECKS: Mapping[str, Check] = {
    "open files": open_files,
    "logout": logout,
}


# Software
# --------
# The programs that nightcrew needs, and those that it can use.


def packages(context: CheckContext) -> Finding:
    """Whether our import names are our own."""
    try:
        import_guard.check_packages()
    except HostError as error:
        return fail(f"{error.on}: {error.why}", "half of another program would run in place of ours", error.hint)
    ignored = "; PYTHONPATH is set, and neither nightcrew nor its agents use it" if context.environ.get("PYTHONPATH") else ""
    return ok(f"{__version__}  {Path(import_guard.__file__).resolve().parents[2]}{ignored}")


def tmux(context: CheckContext) -> Finding:
    """tmux, and whether it is new enough."""
    return _program(context, ("tmux", "-V"), tmux_control.MINIMUM, tmux_control.parse_version, "every agent lives in a tmux session")


def git(context: CheckContext) -> Finding:
    """git, and whether it is new enough."""
    return _program(context, ("git", "version"), MINIMUM, parse_version, "every agent works in a git worktree")


def _program(
    context: CheckContext, argv: tuple[str, str], least: tuple[int, ...], parse: Callable[[str], tuple[int, ...] | None], why: str
) -> Finding:
    """Whether a program that nightcrew needs is there and not older than `least`; `parse` gives None for a version that has no number."""
    name, ask = argv
    fix = f"install {name} {'.'.join(map(str, least))} or newer: apt install {name}, dnf install {name}"
    path = context.which(name)
    if path is None:
        return fail("not on PATH", why, fix)
    said = context.ask(path, ask)
    if said.code != 0:
        return fail(said.text, why, fix)
    version = parse(said.text)
    if version is not None and version < least:
        return fail(f"{said.text}, which is too old", why, fix)
    return ok(f"{said.text.removeprefix(f'{name} ').removeprefix('version ')}  {path}")


def agents(context: CheckContext) -> Finding:
    """The agents' own command lines: a task may run anything, so one that is missing is for information."""
    ours, broken = _programs()
    found = {name: path for name in ours if (path := context.which(name)) is not None}
    if broken:
        return warn(broken, "its tasks are refused", "mend the file: nightcrew kinds ls")
    if not found:
        return ok("none found; shell tasks work")
    said = asked(context, {name: (path, "--version") for name, path in found.items()})
    if failed := {name: answer for name, answer in said.items() if answer.code != 0}:
        seen = "; ".join(answer.text if answer.is_late else f"{name}: on PATH, but --version fails" for name, answer in failed.items())
        why = "an agent that does not start ends its tasks; on a busy machine a program may only be slow"
        return unknown(seen, why, f"{next(iter(failed))} --version")
    shown = "; ".join(f"{name} {version_line(answer.text)}".strip() for name, answer in said.items())
    if old := [name for name, answer in said.items() if is_older(answer.text, ours[name].version)]:
        older = ", ".join(f"{name} {ours[name].version}" for name in old)
        why = "its arguments were tried with that one: it may not know them"
        return warn(f"{shown}; older than {older}", why, f"update it, then nightcrew kinds test {ours[old[0]].name}")
    missing = ", ".join(name for name in ours if name not in found)
    return ok(f"{shown}; not on PATH: {missing}" if missing else shown)


def version_line(said: str) -> str:
    """The line that names the version: some programs warn before it."""
    return next((line for line in said.splitlines() if version(line)), said.partition("\n")[0])[:80]


def logins(context: CheckContext) -> Finding:
    """Whether somebody is logged in to the agents that can say so. With a gateway that has a key nobody need be."""
    ours = {name: kind for name, kind in _programs()[0].items() if kind.login}
    found = {name: path for name in ours if (path := context.which(name)) is not None}
    said = asked(context, {name: (path, *ours[name].login) for name, path in found.items()})
    if hung := [name for name, answer in said.items() if answer.code is None]:
        return unknown(f"{hung[0]}: {said[hung[0]].text}", "an agent that nobody is logged in to stops at its first question", hung[0])
    out = [name for name, answer in said.items() if answer.code != 0]
    if out and not has_gateway(context):
        why = "an agent that nobody is logged in to, and that has no key, stops at its first question"
        return warn(f"nobody is logged in to {', '.join(out)}", why, f"{out[0]}, and log in; or a gateway with a key: nightcrew up")
    into = ", ".join(name for name in said if name not in out)
    seen = (f"logged in to {into}" if into else "", f"by the gateway alone: {', '.join(out)}" if out else "")
    return ok("; ".join(filter(None, seen)) or "none to ask")


def has_gateway(context: CheckContext) -> bool:
    """Whether the settings name a provider."""
    try:
        return bool(user.load_gateway(context.config, context.home.keys).upstreams)
    except ConfigError:  # the check of the settings says why
        return False


def is_older(said: str, known: str) -> bool:
    """Whether a program that answers `said` to --version is older than `known`."""
    return bool(version(said)) and version(said) < version(known)


def asked(context: CheckContext, programs: Mapping[str, tuple[str, ...]]) -> dict[str, Said]:
    """Return the answer of each agent's program; all are asked at once."""
    with concurrent.futures.ThreadPoolExecutor(len(programs) or 1) as pool:
        return dict(zip(programs, pool.map(lambda words: context.ask(*words, limit_s=context.agent_s), programs.values()), strict=True))


def _programs() -> tuple[dict[str, Kind], str]:
    """A kind for each program, by the program's name, and what is wrong with the first kind that cannot be read."""
    found, broken = {}, ""
    for name in kinds():
        try:
            found[kinds()[name].binary] = kinds()[name]
        except ConfigError as error:
            broken = broken or f"{error.on}: {error.why}"
    return {name: found[name] for name in sorted(found) if name}, broken


SOFTWARE_CHECKS: Mapping[str, Check] = {
    "nightcrew": packages,
    "tmux": tmux,
    "git": git,
    "agents": agents,
    "logins": logins,
}


# Environments
# ------------
# What agents start in, and what keeps them inside: each found by doing it once, in a scratch directory that is gone afterwards.


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
    return judged_sandbox(executors.probe(), context)


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
    return judged_limits(cgroups.means(groups, namespace=os.geteuid() != 0), groups.missing, context)


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


ENVIRONMENTS_CHECKS: Mapping[str, Check] = {
    "file backends": file_backends,
    "sandbox": sandbox,
    "limits": agents_limits,
}
