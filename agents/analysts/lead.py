"""The lead: waits for nobody, reads what the analysts of its run came to, and prints the summary as one line of JSON.

    python -I -m agents.analysts.lead

`NIGHTCREW_AFTER` names what the analysts came to, `ANALYST_CORES` how many cores they had, `LEAD_MODEL` who writes prose about
it, if anybody. The people's version goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from supervisor.core.analysis import analyst_results, lead, speedup
from supervisor.core.analysis.analysis_tasks import MODEL


def main(environ: Mapping[str, str], out: TextIO, talk: TextIO) -> int:
    """Print the summary on `out`. Exit status 2 with a sentence on `talk` when there is nothing to read."""
    try:
        tasks = json.loads(Path(environ["NIGHTCREW_AFTER"]).read_bytes())["tasks"]
        cores = int(environ.get("ANALYST_CORES", "1"))
    except (KeyError, OSError, ValueError) as error:
        print(f"lead: nothing to merge: {type(error).__name__}: {error}", file=talk)
        return 2
    found = lead.summary(analyst_results.told(tasks), speedup.figures(analyst_results.spans(tasks), cores, analyst_results.spoilt(tasks)))
    _say(found, talk)
    found["prose"] = _prose(found, environ, talk)
    print(json.dumps(found, ensure_ascii=False, separators=(",", ":")), file=out)
    return 0


def _prose(found: Mapping[str, Any], environ: Mapping[str, str], talk: TextIO) -> dict[str, str] | None:
    """What the model wrote that was asked for; None without one, or when it did not come to that: then `talk` says why."""
    if not (model := environ.get(MODEL)):
        return None
    from agents.analysts import prose

    try:
        return {"text": prose.compose(found, model), "model": model}
    except prose.ProseError as error:
        print(f"no prose: {error}", file=talk)
        return None


def _say(found: Mapping[str, Any], talk: TextIO) -> None:
    for one in found["perspectives"]:
        points = "   -" if one["score_per_kloc"] is None else f"{one['score_per_kloc']:5.1f}"
        print(f"{points}  {one['name']}" + (f"  {one['state']}: {one['reason']}" if one["reason"] else ""), file=talk)
    for action in found["actions"]:
        print(f"- {action}", file=talk)
    health = "unknown" if found["health"] is None else f"{found['health']:.0f} of 100"
    print(f"health {health}, {found['files']:,} files", file=talk)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]  # both are text files here
    sys.exit(main(os.environ, sys.stdout, sys.stderr))
