"""Moving the providers' keys from a person's shell into the gateway's files, where no agent can read them from an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.core.gateway.client_env import PROVIDER_KEYS
from supervisor.host import secrets
from supervisor.host.audit import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home


def take(home: Home, environ: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """Store each provider's key that `environ` holds and no file does yet. Returns the environment without any of them.

    Raises Refused when the key directory is not private, DiskFull.
    """
    for name, api in PROVIDER_KEYS.items():
        if key := environ.get(name, "").strip():
            file = home.keys / f"{api}.key"
            before = file.exists()
            if not secrets.store(file, key):
                say(f"{name} differs from the key in {file}, which stays in use; to change it: rm {file}, then nightcrew up -d")
            elif not before:
                Audit(home.audit, secrets.own(home.secret), SystemClock(), "supervisor").note(
                    "key stored", {"of": str(api), "in": str(file)}
                )
                say(f"kept {name} in {file} (only you can read it); agents reach the provider through the gateway, with a token")
    return {name: text for name, text in environ.items() if name not in PROVIDER_KEYS}
