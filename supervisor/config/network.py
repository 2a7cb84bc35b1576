"""What a task may connect to: `true`, `false`, or the hosts by name."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import PlainValidator

MAX_HOSTS = 100
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, 2.1, and RFC 1035, 2.3.4


def network(value: Any) -> bool | tuple[str, ...]:
    """True, False, or the names in a list, small and once each. Raises ValueError for anything else."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError('give true, false, or a list of host names such as ["pypi.org", "*.pythonhosted.org"]')
    if not value:
        raise ValueError("a list names at least one host; false is no network at all, and true the whole")
    if len(value) > MAX_HOSTS:
        raise ValueError(f"a list names at most {MAX_HOSTS} hosts, and this one {len(value)}")
    return tuple(dict.fromkeys(map(_host, value)))


Network = Annotated[bool | tuple[str, ...], PlainValidator(network)]


def written(value: bool | tuple[str, ...]) -> str:
    """The value as a plan has it, a long list cut."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'["{value[0]}"{", ..." if len(value) > 1 else ""}]'


def _host(name: str) -> str:
    """Raises ValueError for what the proxy could never let through: it resolves names, and refuses whatever leads into this machine or
    the networks around it."""
    labels = name.lower().removeprefix("*.").split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            f"{name[:80]!r} is not the name of a host: write pypi.org, or *.pythonhosted.org for all below it "
            "(no http://, no port, no path; other than ASCII as xn--...)"
        )
    if labels[-1].isdigit():
        raise ValueError(f"{name!r} is an address: write the name of the host")
    if len(labels) < 2:
        raise ValueError(f"{name!r} is no host of the internet, and no other is let through")
    return name.lower()
