"""Reading the settings by a process of its own, which ends with it: what checks them (pydantic) takes 11 MB and a fifth of a second, and
the gateway lives for weeks. It also keeps a damaged file from doing anything here."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from supervisor.kernel.errors import NightcrewError, ToolFailed, from_wire
from supervisor.kernel.gateway_settings import GatewaySettings

_LONGEST_S = 60.0


class Reading:
    """It has begun; other things can be done meanwhile."""

    def __init__(self, config: Path, keys: Path) -> None:
        argv = [sys.executable, "-I", "-m", "supervisor.gateway.settings", str(config), str(keys)]
        self._config = config
        self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def result(self) -> GatewaySettings:
        """What `load_gateway` gives. Blocks. Raises what it raises, and ToolFailed."""
        with self._child as child:
            try:
                data, _ = child.communicate(timeout=_LONGEST_S)
                found = pickle.loads(data)  # noqa: S301 - our own child wrote it
            except (subprocess.TimeoutExpired, pickle.UnpicklingError, EOFError) as error:
                child.kill()
                raise ToolFailed("cannot read the settings", on=str(self._config), why=type(error).__name__) from error
        if isinstance(found, GatewaySettings):
            return found
        raise from_wire(found)


def read(config: Path, keys: Path) -> GatewaySettings:
    """The settings as they are now. Blocks. Raises ConfigError as every file does, and ToolFailed."""
    return Reading(config, keys).result()


def _main(config: str, keys: str) -> None:
    from supervisor.config import user

    found: object
    try:
        found = user.load_gateway(Path(config), Path(keys))
    except NightcrewError as error:
        found = error.to_wire()
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
