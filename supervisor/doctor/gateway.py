"""The gateway, and the files that hold keys. No keyring's program is run: it might ask its user for a password."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from supervisor.config import user
from supervisor.core.errors import ConfigError, NightcrewError, NotFound, Refused
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.daemon import gateway_problems, gateway_process, lock
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.gateway import status_client
from supervisor.host import secrets


def process(context: CheckContext) -> Finding:
    """Whether a gateway runs when there should be one, answers, and can use every upstream."""
    settings = _settings(context)
    if settings is None:
        return unknown("the settings cannot be read")
    if not settings.upstreams:
        return ok("none is needed: no upstream is configured, so agents reach their providers by themselves")
    found = gateway_process.running(context.home)
    if found is None:
        return _nobody(context)
    seen = f"pid {found.identity.pid}, 127.0.0.1:{found.port}"
    try:
        status = status_client.ask(context.home, status_client.STATUS, timeout_s=context.tool_s)
    except NightcrewError as error:
        return fail(f"{seen}: {error.line()}", "agents wait for a model", f"kill -9 {found.identity.pid}: the supervisor starts another")
    return _usable(context, settings, status, seen) or ok(
        f"{seen}; upstreams: {', '.join(upstream.name for upstream in settings.upstreams)}"
    )


def _usable(context: CheckContext, settings: GatewaySettings, status: dict[str, Any], seen: str) -> Finding | None:
    """The worst of what keeps agents from an upstream, or None. What others there are stands in `nightcrew gateway status`."""
    if refused := gateway_problems.refused(status, settings):
        names = ", ".join(upstream.name for upstream in refused)
        step = gateway_problems.next_step(context.home, refused[0])
        return fail(f"{seen}: the key of {names} is refused", "nothing is sent there with a key that is wrong", step)
    for upstream in settings.upstreams:
        if lines := [line for line in status["problems"] if f"upstream {upstream.name}:" in line]:
            return warn(f"{seen}: {lines[0]}", "requests for it are refused", gateway_problems.next_step(context.home, upstream))
    if problems := gateway_problems.standing(context.home, status, settings):
        return warn(f"{seen}: {problems[0]}", "it does less than it should", "nightcrew gateway status")
    if silent := list(gateway_problems.unserved(status).values()):
        return warn(
            f"{seen}: {silent[0]}", "requests wait until it does", "see whether the provider can be reached: nightcrew gateway status"
        )
    return None


def _nobody(context: CheckContext) -> Finding:
    if lock.holder(context.home.lock) is None:
        return ok("none runs; the supervisor starts one")
    words = gateway_process.last_words(context.home)
    why = f"nothing new starts without it; it said: {words}" if words else "nothing new starts without it"
    return fail("none runs, although the supervisor does", why, f"tail {shlex.quote(str(context.home.gateway_log))}")


def keys(context: CheckContext) -> Finding:
    """Whether the files that hold secrets can be read by their owner alone, and whether every upstream's is there."""
    settings = _settings(context)
    wanted = dict(_key_files(context, settings)) if settings is not None else {}
    own = {context.home.secret, context.home.metrics_token}
    files = {*own, *context.home.keys.glob("*.key"), *wanted}
    for path in sorted(files):
        try:
            secrets.key(path)
        except NotFound:
            if path in wanted:
                why = f"the upstream {wanted[path]} cannot be used without its key"
                return fail(f"no file {path}", why, f"put the key into {path} (mode 600), then {gateway_problems.RELOAD}")
        except Refused as error:
            fix = error.hint or f"look at it: ls -l {shlex.quote(str(path))}"
            return fail(f"{path}: {error.why}", "it is not used like that; whoever could read it may have", fix, _closer(path))
    held = sum(path.exists() for path in files - own)
    if not held:
        return ok("none of a provider is kept here")
    return ok("the key of 1 provider, which only you can read" if held == 1 else f"the keys of {held} providers, which only you can read")


def _key_files(context: CheckContext, settings: GatewaySettings) -> Iterable[tuple[Path, str]]:
    for upstream in settings.upstreams:
        if upstream.key.kind == "file":
            value = upstream.key.value
            yield Path(value).expanduser() if value else context.home.keys / f"{upstream.name}.key", upstream.name


def _closer(path: Path) -> Callable[[], str] | None:
    """Makes a plain file of ours private; None for anything else, and for one that is private already."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or not found.st_mode & 0o077:
        return None

    def mend() -> str:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
        return f"{path} is 0600; if others use this machine, get a new key"

    return mend


def _settings(context: CheckContext) -> GatewaySettings | None:
    """None when they cannot be read: the check of the settings says why."""
    try:
        return user.load_gateway(context.config, context.home.keys)
    except ConfigError:
        return None
