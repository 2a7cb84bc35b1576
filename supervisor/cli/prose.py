"""Prose for the report of an analysis, where a model is configured for it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from supervisor.cli import common
from supervisor.faces.report.model import PROSE
from supervisor.host import files
from supervisor.host.paths import Home


def ready(model: str) -> str:
    """`model` when it can be asked, as far as that shows before; else nothing, and that is said."""
    if not model or os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"):
        return model
    common.say("no prose: ANTHROPIC_API_KEY is not set")
    return ""


def write(home: Home, run: str, summary: Mapping[str, Any], model: str) -> dict[str, str] | None:
    """Have `model` write about the summary of a run, keep that beside the run's records, and return it as the report's `prose`. None when
    `model` is empty, or when it did not come to that: then it is said why, no more."""
    if not model:
        return None
    from agents.analysts import prose

    common.say(f"asking {model} for a summary in prose")
    try:
        written = {"text": prose.compose(summary, model), "model": model}
    except prose.ProseError as error:
        common.say(f"no prose: {error}; the report is whole without it")
        return None
    files.atomic_write(home.root / "runs" / run / PROSE, json.dumps(written).encode())
    return written
