"""The token with which a scraper reads the metrics: a random word in a file of its own, and the job of Prometheus that sends it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from supervisor.host import files, secrets
from supervisor.kernel.errors import NotFound

PREFIX = "ncm_"
_BYTES = 24


def ensure(path: Path, *, new: bool = False) -> bool:
    """Have a token in the file (0600), in a private directory; whether it was made by this. Raises Refused when a file is there that
    others can read or that is no token, DiskFull."""
    files.private_dir(path.parent)
    if not new:
        try:
            secrets.key(path)
        except NotFound:
            pass
        else:
            return False
    files.atomic_write(path, f"{PREFIX}{os.urandom(_BYTES).hex()}\n".encode())
    return True


def job(path: Path, port: int) -> str:
    """One entry of `scrape_configs`."""
    return f"""\
  - job_name: nightcrew
    scrape_interval: 15s
    authorization:
      credentials_file: {json.dumps(str(path))}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""
