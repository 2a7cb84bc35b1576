"""The programs that nightcrew needs, and those that it can use."""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Mapping
from pathlib import Path

from agents.tmux import server_process as tmux_process
from supervisor import __version__
from supervisor.core.errors import HostError
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown
from supervisor.host import import_guard
from worktrees.git import parse_version
from worktrees.hardening import MINIMUM

AGENTS = ("claude", "codex", "gemini", "aider", "opencode")
BROWSERS = ("xdg-open", "firefox", "chromium", "google-chrome")


def python(place: CheckContext) -> Finding:  # noqa: ARG001 - the shape of every check
    """The interpreter that runs the supervisor and every runner."""
    return ok(f"{'.'.join(map(str, sys.version_info[:3]))}  {sys.executable}")


def packages(place: CheckContext) -> Finding:
    """Whether our import names are our own."""
    try:
        import_guard.check_packages()
    except HostError as error:
        return fail(f"{error.on}: {error.why}", "half of another program would run in place of ours", error.hint)
    ignored = "; PYTHONPATH is set, and neither nightcrew nor its agents use it" if place.environ.get("PYTHONPATH") else ""
    return ok(f"{__version__}  {Path(import_guard.__file__).resolve().parents[2]}{ignored}")


def tmux(place: CheckContext) -> Finding:
    """tmux, and whether it is new enough."""
    least = ".".join(map(str, tmux_process.MINIMUM))
    why, fix = "every agent lives in a tmux session", f"install tmux {least} or newer: apt install tmux, dnf install tmux"
    path = place.which("tmux")
    if path is None:
        return fail("not on PATH", why, fix)
    said = place.ask(path, "-V")
    if said.code != 0:
        return fail(said.text, why, fix)
    version = tmux_process.parse_version(said.text)
    if version is not None and version < tmux_process.MINIMUM:
        return fail(f"{said.text}, which is too old", why, fix)
    return ok(f"{said.text.removeprefix('tmux ')}  {path}")


def git(place: CheckContext) -> Finding:
    """git, and whether it is new enough."""
    least = ".".join(map(str, MINIMUM))
    why, fix = "every agent works in a git worktree", f"install git {least} or newer: apt install git, dnf install git"
    path = place.which("git")
    if path is None:
        return fail("not on PATH", why, fix)
    said = place.ask(path, "version")
    if said.code != 0:
        return fail(said.text, why, fix)
    if parse_version(said.text) < MINIMUM:
        return fail(f"{said.text}, which is too old", why, fix)
    return ok(f"{said.text.removeprefix('git version ')}  {path}")


def agents(place: CheckContext) -> Finding:
    """The agents' own command lines, for information: a task may run anything."""
    found = {name: path for name in AGENTS if (path := place.which(name)) is not None}
    if not found:
        return ok("none found; shell tasks work")
    missing = ", ".join(name for name in AGENTS if name not in found)
    with concurrent.futures.ThreadPoolExecutor(len(AGENTS)) as pool:
        said = dict(zip(found, pool.map(lambda path: place.ask(path, "--version"), found.values()), strict=True))
    silent = [name for name, answer in said.items() if answer.code != 0]
    shown = [f"{name} {answer.text.splitlines()[0] if answer.text else ''}".strip() for name, answer in said.items() if answer.code == 0]
    if silent:
        why = "an agent that does not start ends its tasks"
        return unknown(f"{', '.join(silent)}: on PATH, but --version fails", why, f"{silent[0]} --version")
    return ok("; ".join([*shown, f"not on PATH: {missing}" if missing else ""]).rstrip("; "))


def browser(place: CheckContext) -> Finding:
    """Something that shows a report, for information."""
    wanted = [*place.environ.get("BROWSER", "").split(":"), *BROWSERS]
    found = next((path for name in wanted if name and (path := place.which(name)) is not None), None)
    return ok(found or "none on PATH: a report.html is one file, open it anywhere")


CHECKS: Mapping[str, Check] = {"python": python, "nightcrew": packages, "tmux": tmux, "git": git, "agents": agents, "browser": browser}
