"""A crontab of the test's own, and a real cron that reads nothing but it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import House, wait_until

CRONTAB = """#!/bin/sh
t={table}
case "$1" in
-l) [ -f "$t" ] || {{ echo "no crontab for me" >&2; exit 1; }}; cat "$t";;
-r) rm "$t";;
-) cat >"$t";;
esac
"""
"""Speaks as Debian's does. The real one needs a spool of root's: see `RealCron`."""


def own_crontab(house: House, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the `crontab` on the PATH of the house keeps its table; no systemd answers there."""
    directory = house.home.root.parent / "programs"
    directory.mkdir()
    table = directory / "table"
    for name, text in {"crontab": CRONTAB.format(table=table), "systemctl": "#!/bin/sh\necho offline\nexit 1\n"}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return table


class RealCron:
    """A mount namespace in which the spool, /etc/cron.d, /etc/crontab and /run are the test's own."""

    def __init__(self, holder: int) -> None:
        self._holder = holder

    def run(self, argv: Sequence[str], env: Mapping[str, str], **options: object) -> subprocess.CompletedProcess[str]:
        """A command in there."""
        return subprocess.run(self.inside(argv), env=dict(env), capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The words that run a command in there, in the current directory."""
        return ["nsenter", "-t", str(self._holder), "-m", f"--wd={os.getcwd()}", *argv]

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """A cron daemon that runs what the spool says; @reboot lines at once."""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        daemon = subprocess.Popen(self.inside(["cron", "-f"]), env=env)
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait()


SETUP = """set -e
mount -t tmpfs tmpfs /var/spool/cron
mkdir /var/spool/cron/crontabs
chgrp crontab /var/spool/cron/crontabs
chmod 1730 /var/spool/cron/crontabs
mount -t tmpfs tmpfs /etc/cron.d
mount --bind /dev/null /etc/crontab
mount -t tmpfs tmpfs /run
touch "$0"
exec sleep 600
"""


@contextmanager
def real_cron(place: Path) -> Iterator[RealCron]:
    """One, until the end of the block. Skips, and says why, where there is no cron or no right to mount."""
    if os.geteuid() != 0:
        pytest.skip("a cron with a spool of its own needs a mount namespace of root's")
    if shutil.which("cron", path="/usr/sbin:/sbin") is None or shutil.which("crontab") is None:
        pytest.skip("cron is not installed: no line was run by a real one")
    ready = place / "cron-is-ready"
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", SETUP, str(ready)], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: ready.exists() or holder.poll() is not None, "the namespace of cron")
        if holder.poll() is not None:
            said = holder.stderr.read().decode() if holder.stderr else ""
            pytest.skip(f"no spool of its own can be mounted for cron: {said.strip()}")
        yield RealCron(holder.pid)
    finally:
        holder.kill()
        holder.communicate()
