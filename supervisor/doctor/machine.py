"""The machine: its limits, its memory, and what it does when you log out.

Numbers that say "enough" are rules of thumb for coding agents, whose tools (editors' servers, test and build watchers) share a
user's limits with the desktop; each stands beside its reason.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host import cgroups, cores, limits
from supervisor.host.cores import Core

INSTANCES_BASE, INSTANCES_EACH = 64, 4
"""inotify instances: what a desktop session takes, and one agent with a dev server, a test watcher, a build and a language server."""
WATCHES_EACH = 16_384
"""inotify watches, one a directory: a mid-sized tree of dependencies, watched by two programs."""
THREADS_EACH = 64
"""A node program has 11 to 20 threads; an agent, its language server and a parallel build."""
MEMORY_EACH = 512 * 2**20
"""Resident memory of one agent's command line with a small tool below it."""
GIB = 2**30


def inotify(context: CheckContext) -> Finding:
    """How many files the user's programs may watch."""
    base = context.proc / "sys" / "fs" / "inotify"
    instances, watches = context.number(base / "max_user_instances"), context.number(base / "max_user_watches")
    if instances is None or watches is None:
        return unknown("the kernel does not say", "agents' tools watch files")
    seen = f"{instances:,} instances, {watches:,} watches"
    need = {
        "fs.inotify.max_user_instances": (instances, INSTANCES_BASE + INSTANCES_EACH * context.slots),
        "fs.inotify.max_user_watches": (watches, WATCHES_EACH * context.slots),
    }
    short = [f"{key}={_round(least)}" for key, (have, least) in need.items() if have < least]
    if not short:
        return ok(seen)
    why = f"watchers in {context.slots} agents share them with your desktop; beyond, they fail with ENOSPC or poll"
    return warn(seen, why, f"sudo sysctl -w {' '.join(short)}  (to stay: /etc/sysctl.d)")


def _round(least: int) -> int:
    """The next power of two."""
    return 1 << (least - 1).bit_length()


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


def processes(context: CheckContext) -> Finding:
    """How many processes and threads the user may have, by the user's limit and by the control group's."""
    used = _threads(context)
    room = [(limit, now, what) for limit, now, what in ((_nproc(context), used, "ulimit -u"), *_pids_max(context)) if limit is not None]
    if not room:
        return ok(f"no limit; {used:,} threads now")
    limit, now, what = min(room, key=lambda one: one[0] - one[1])
    seen = f"{now:,} of {limit:,} ({what})"
    if limit - now < THREADS_EACH * context.slots:
        why = (
            f"{context.slots} agents with their tools need some {THREADS_EACH * context.slots:,} threads; beyond, fork fails in all of them"
        )
        return warn(seen, why, "raise it, or lower slots in config.toml")
    return ok(seen)


def _nproc(context: CheckContext) -> int | None:
    """RLIMIT_NPROC; it does not bind root."""
    soft = context.rlimit(resource.RLIMIT_NPROC)[0]
    return None if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else soft


def _threads(context: CheckContext) -> int:
    """Threads of our user, as the kernel counts them for RLIMIT_NPROC."""
    count = 0
    for entry in context.proc.iterdir() if context.proc.is_dir() else ():
        if entry.name.isdigit():
            status = dict(line.partition(":\t")[::2] for line in (context.read(entry / "status") or "").splitlines())
            if status.get("Uid", "").split()[:1] == [str(os.getuid())]:
                count += int(status.get("Threads", "1"))
    return count


def _pids_max(context: CheckContext) -> list[tuple[int, int, str]]:
    """`pids.max` and `pids.current` of every control group that we are in (version 2)."""
    found = []
    path = PurePosixPath(context.cgroup or "/")
    for group in (path, *path.parents):
        directory = context.sys / "fs" / "cgroup" / str(group).lstrip("/")
        limit, now = context.number(directory / "pids.max"), context.number(directory / "pids.current")
        if limit is not None and now is not None:
            found.append((limit, now, f"pids.max of {group}"))
    return found


def memory(context: CheckContext) -> Finding:
    """Memory and swap against the slots."""
    total, swap = context.memory()
    group = context.number(context.sys / "fs" / "cgroup" / (context.cgroup or "/").lstrip("/") / "memory.max")
    total = min(total, group or total)
    seen = f"{total / GIB:.1f} GiB, {f'{swap / GIB:.1f} GiB swap' if swap else 'no swap'}, {context.slots} slots"
    if total + swap < GIB + MEMORY_EACH * context.slots:
        why = "an agent takes half a GiB and more; when memory runs out the kernel kills the largest program, whosever it is"
        return warn(seen, why, f"slots = {max(1, (total + swap - GIB) // MEMORY_EACH)} in {context.config}, or add swap")
    return ok(seen)


def out_of_memory(context: CheckContext) -> Finding:
    """What systemd does to the whole crew when one agent runs out of memory."""
    if not context.systemd:
        return unknown("systemd does not run here", "who is killed when memory runs out, one agent or all, is not known")
    unit, scope = _unit(context)
    said = context.ask("systemctl", *scope, "show", unit, "--property=OOMPolicy")
    if said.code != 0:
        return unknown(said.text or f"systemctl does not know {unit}")
    policy = said.text.partition("=")[2] or "continue"
    oomd = context.ask("systemctl", "is-active", "systemd-oomd").text == "active"
    seen = f"{unit}: OOMPolicy={policy}{', systemd-oomd runs' if oomd else ''}"
    fix = "systemd-run --user --scope -p OOMPolicy=continue -p ManagedOOMPreference=avoid nightcrew up -d (after nightcrew down)"
    if policy in ("stop", "kill"):
        return warn(seen, "one agent out of memory ends the supervisor and every other agent with it", fix)
    if oomd:
        return warn(seen, "it kills a whole control group under pressure: the tmux server with every agent", fix)
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


def _unit(context: CheckContext) -> tuple[str, tuple[str, ...]]:
    """The innermost unit that we are in, and where systemctl finds it."""
    parts = [part for part in (context.cgroup or "").split("/") if part.endswith((".service", ".scope"))]
    unit = parts[-1] if parts else "init.scope"
    inside = any(part.startswith("user@") for part in parts) and not unit.startswith("user@")
    return unit, ("--user",) if inside else ()


def kernel(context: CheckContext) -> Finding:  # noqa: ARG001 - the shape of every check
    """What of the kernel's help nightcrew does not get here."""
    missing = limits.shortfalls(limits.probe())
    if missing:
        why = "the stop of an agent may miss a process, or a limit may not hold"
        return warn("; ".join(missing), why, "a newer kernel, or fewer limits around nightcrew")
    return ok("pidfd, affinity, inherited mark and limits all work")


def processor(context: CheckContext) -> Finding:
    """What keeps busy agents from being felt."""
    return judged_processor(cores.topology(system=context.sys / "devices" / "system"), bool(cgroups.probe().shares), context)


def judged_processor(found: Sequence[Core], shares: bool, context: CheckContext) -> Finding:
    """Warns where neither a control group nor niceness tells agents from your own commands. `shares`: control groups have a weight here."""
    cpus, nodes = sum(len(core.cpus) for core in found), len({core.node for core in found})
    seen = f"{len(found)} cores{f', {cpus} CPUs' if cpus > len(found) else ''}{f', {nodes} NUMA nodes' if nodes > 1 else ''}"
    if shares:
        return ok(f"{seen}; busy agents give way to you by the weight of a control group")
    if context.number(context.proc / "sys" / "kernel" / "sched_autogroup_enabled") != 1:
        return ok(f"{seen}; busy agents give way to you by their niceness and policy")
    fix = "sudo sysctl -w kernel.sched_autogroup_enabled=0  (to stay: /etc/sysctl.d)"
    if context.systemd:
        fix = "nightcrew down; systemd-run --user --scope -p Delegate=yes nightcrew up -d"
    why = "what an agent starts in a session of its own takes as much of the processor as you do: the kernel shares time between sessions"
    return warn(f"{seen}; no control group with a weight", why, fix)


CHECKS: Mapping[str, Check] = {
    "inotify": inotify,
    "open files": open_files,
    "processes": processes,
    "processor": processor,
    "memory": memory,
    "out of memory": out_of_memory,
    "logout": logout,
    "kernel": kernel,
}
