"""Prose for the report of an analysis, where a model is configured for it."""

from __future__ import annotations

import json
import os
import time

from supervisor.cli import common
from supervisor.faces.report import model as report_model
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.ledger import queries


def ready(model: str) -> str:
    """`model` when it can be asked, as far as that shows before; else nothing, and that is said."""
    if not model or os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"):
        return model
    common.say("no prose: ANTHROPIC_API_KEY is not set")
    return ""


def write(home: Home, run: str, model: str) -> None:
    """Have `model` write about the run, and keep it beside the run's records; nothing when `model` is empty. A failure is said, no more."""
    if not model:
        return
    from agents.analysts import prose

    db = common.ledger(home)
    summary = report_model.build(db, queries.run(db, run), home.root, time.time())["summary"]
    common.say(f"asking {model} for a summary in prose")
    try:
        text = prose.compose(summary, model)
    except prose.ProseError as error:
        common.say(f"no prose: {error}; the report is whole without it")
        return
    files.atomic_write(home.root / "runs" / run / report_model.PROSE, json.dumps({"text": text, "model": model}).encode())
