"""The programs that nightcrew needs, and those that it can use."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.kinds import kinds
from agents.tmux import server_process as tmux_process
from supervisor import __version__
from supervisor.core.errors import ConfigError, HostError
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host import import_guard
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
    """The agents' own command lines, for information: a task may run anything."""
    names, broken = _binaries()
    found = {name: path for name in names if (path := context.which(name)) is not None}
    if broken:
        return warn(broken, "its tasks are refused", "mend the file: nightcrew kinds ls")
    if not found:
        return ok("none found; shell tasks work")
    missing = ", ".join(name for name in names if name not in found)
    with concurrent.futures.ThreadPoolExecutor(len(found)) as pool:
        said = dict(zip(found, pool.map(lambda path: context.ask(path, "--version"), found.values()), strict=True))
    silent = [name for name, answer in said.items() if answer.code != 0]
    shown = [f"{name} {answer.text.splitlines()[0] if answer.text else ''}".strip() for name, answer in said.items() if answer.code == 0]
    if silent:
        why = "an agent that does not start ends its tasks"
        return unknown(f"{', '.join(silent)}: on PATH, but --version fails", why, f"{silent[0]} --version")
    return ok("; ".join([*shown, f"not on PATH: {missing}" if missing else ""]).rstrip("; "))


def _binaries() -> tuple[list[str], str]:
    """The programs of every kind, and what is wrong with the first kind that cannot be read."""
    found, broken = [], ""
    for name in kinds():
        try:
            found.append(kinds()[name].binary)
        except ConfigError as error:
            broken = broken or f"{error.on}: {error.why}"
    return sorted({name for name in found if name}), broken


CHECKS: Mapping[str, Check] = {"nightcrew": packages, "tmux": tmux, "git": git, "agents": agents}
