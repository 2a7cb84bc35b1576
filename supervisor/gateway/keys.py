"""The providers' keys. They are read when the gateway starts and when it is told to reload, and live in this process alone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.errors import NightcrewError, NotFound, Refused
from supervisor.core.gateway.settings import KeySource, Upstream
from supervisor.host import secrets
from supervisor.host.paths import Home

_COMMAND_S = 30.0
"""A keyring may ask its user to unlock it."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """Upstream -> key. A key is empty where the server wants none or the client sends its own; an upstream that is not in `keys` cannot
    be used, and `problems` says why."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    problems: Mapping[str, NightcrewError] = field(default_factory=dict)


def read_all(home: Home, upstreams: tuple[Upstream, ...]) -> Keyring:
    """Every key that can be had: one that is missing must not keep the other providers from being used."""
    keys: dict[str, str] = {}
    problems: dict[str, NightcrewError] = {}
    for upstream in upstreams:
        try:
            keys[upstream.name] = _read(home, upstream.name, upstream.key)
        except NightcrewError as error:
            problems[upstream.name] = error
    return Keyring(keys, problems)


def _read(home: Home, name: str, source: KeySource) -> str:
    if source.kind == "command":
        return _printed(source.argv)
    if source.kind != "file":
        return ""
    path = Path(source.value).expanduser() if source.value else home.keys / f"{name}.key"
    try:
        return secrets.key(path)
    except NotFound as error:
        hint = "put the key there, mode 600, then nightcrew gateway reload"
        raise NotFound("there is no key for the upstream", on=name, why=f"no file {path}", hint=hint) from error


def _printed(argv: tuple[str, ...]) -> str:
    """What a command prints. Neither that nor what it says about a failure is repeated: a key may be in it."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror or "" if isinstance(error, OSError) else f"it did not end in {_COMMAND_S:.0f} s"
        raise Refused("the command that prints a key failed", on=argv[0], why=why) from None
    key = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Refused("the command that prints a key failed", on=argv[0], why=f"it ended with {done.returncode}")
    if not key or not key.isprintable() or " " in key:
        raise Refused("the command that prints a key failed", on=argv[0], why="it did not print a single word")
    return key
