"""The programs that nightcrew needs, and those that it can use."""

from __future__ import annotations

import concurrent.futures
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from agents import trust
from agents.kinds import Kind, kinds
from agents.tmux import server_process as tmux_process
from supervisor import __version__
from supervisor.config import user
from supervisor.core.errors import ConfigError, HostError, NightcrewError
from supervisor.core.kind import version
from supervisor.doctor.check_context import CheckContext, Said
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host import import_guard
from supervisor.host.scratch import locked_directory
from worktrees.git import parse_version
from worktrees.hardening import MINIMUM


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
    return _program(context, ("tmux", "-V"), tmux_process.MINIMUM, tmux_process.parse_version, "every agent lives in a tmux session")


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
    missing = ", ".join(name for name in ours if name not in found)
    said = asked(context, {name: (path, "--version") for name, path in found.items()})
    failed = {name: answer for name, answer in said.items() if answer.code != 0}
    if failed:
        hung = [name for name, answer in failed.items() if answer.is_late]
        broken = ", ".join(name for name in failed if name not in hung)
        seen = [f"{', '.join(hung)} did not answer in {context.agent_s:g} s" if hung else ""]
        seen += [f"{broken}: on PATH, but --version fails" if broken else ""]
        why = "an agent that does not start ends its tasks; on a busy machine a program may only be slow"
        return unknown("; ".join(filter(None, seen)), why, f"{next(iter(failed))} --version")
    shown = [f"{name} {version_line(answer.text)}".strip() for name, answer in said.items()]
    if old := [f"{name} {ours[name].version}" for name, answer in said.items() if is_older(answer.text, ours[name].version)]:
        why = "its arguments were tried with that one: it may not know them"
        return warn(
            f"{'; '.join(shown)}; older than {', '.join(old)}", why, f"update it, then nightcrew kinds test {ours[old[0].split()[0]].name}"
        )
    return ok("; ".join([*shown, f"not on PATH: {missing}" if missing else ""]).rstrip("; "))


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


def trusted(context: CheckContext) -> Finding:
    """Which agents' programs trust the repository around the current directory: one with a person at it asks in its pane otherwise."""
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    records = {name: kind.trust for name, kind in _programs()[0].items() if kind.trust is not None and context.which(name)}
    with locked_directory(Path(tempfile.gettempdir()), "nightcrew-doctor-") as scratch:  # the state directory may be what is broken
        try:
            root = main_root(discover(Git(scratch / "git"), context.cwd))
        except NightcrewError:
            return ok("not in a repository")
    seen = {name: trust.look(record, root, context.environ).is_there for name, record in records.items()}
    yes, no = (", ".join(name for name in seen if seen[name] is whether) for whether in (True, False))
    asks = f"{no} will ask in its pane, unless it works by itself: nightcrew trust" if no else ""
    return ok("; ".join(filter(None, (f"by {yes}" if yes else "", asks))) or "nobody asks")


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


CHECKS: Mapping[str, Check] = {"nightcrew": packages, "tmux": tmux, "git": git, "agents": agents, "logins": logins, "trust": trusted}
