"""Groups and processes for the tests of what holds agents: ended and removed by their own ids, also when a test fails."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from supervisor.host import cgroups
from supervisor.host.cgroups import Group, Support

AS_NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]
JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 99; shift; done; shift; exec "$@"'
"""Joins the groups whose files are named before `--`, then runs what is behind it."""


@pytest.fixture(scope="session")
def support() -> Support:
    """What this machine's groups can do; skips where they can do nothing."""
    found = cgroups.probe()
    if not found.parents:
        pytest.skip("; ".join(found.missing))
    return found


@contextlib.contextmanager
def group_of(support: Support, tag: str = "") -> Iterator[Group]:
    """A group that nobody else has."""
    made = cgroups.create(support, tag or f"{uuid.uuid4().hex[:16]}:run/task:1")
    try:
        yield made
    finally:
        assert made.kill()
        assert made.remove()
        assert [place for place in made.places if place.exists()] == []


@contextlib.contextmanager
def started(group: Group, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A process that joined before its own code ran, as a runner's child does."""
    whole = ["/bin/sh", "-c", JOIN, "sh", *group.join_files, "--", *argv]
    with subprocess.Popen(whole, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            group.kill()
            process.kill()


def python(code: str) -> list[str]:
    """A small program as an argv."""
    return [sys.executable, "-I", "-S", "-c", code]
