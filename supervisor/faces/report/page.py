"""What our pages have in common: each is one file that opens from a disk without a network, and runs nothing that it was not written with.

A page's policy allows exactly the script and the style sheet that we ship, by their hashes, and no connection to anywhere. The templates
escape every text.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from supervisor.faces.report import words

HERE = Path(__file__).parent
"""`report.css`, `copy.js` and `macros.html.j2` are every page's."""


def policy(script: str, style: str) -> str:
    """The page's Content-Security-Policy."""
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def text(file: Path) -> str:
    """A file of ours."""
    return file.read_text(encoding="utf-8")


def environment(directory: Path) -> Environment:
    """For the templates of `directory`, which may import `macros.html.j2`. What they print is escaped; what is not there is an error."""
    loader = FileSystemLoader([directory, HERE])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals |= {"words": words}
    return made
