"""Reports to test with: the samples on disk, and small ones built by hand."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

from supervisor.results.findings import COUNTS, FORMULAS, WEIGHTS, Perspective

SAMPLES = Path(__file__).resolve().parent.parent.parent / "data" / "report"
NAMES = ("large", "failed", "ordinary")
ZERO = 1_795_242_600.0
"""2026-11-21 06:30 UTC, in seconds since 1970."""
HOSTILE = (
    "<script>alert(1)</script>.py",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "</script><script>alert(2)</script>",
    "a\nb\r# heading.py",
    "\u202egpj.py",
    "x" * 200,
    "a|b`c`|d.py",
    "[link](http://evil.example) @everyone www.evil.example #1 **bold**",
    "'; alert(1); '",
    "${7*7}\\`.py",
    "\u2028\u2029\x00\x1b[31m\udcff.py",
)


def sample(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text())
    return found


def report(**changes: Any) -> dict[str, Any]:
    """An ordinary run without tasks, with some of its top-level keys replaced."""
    return {
        "schema": 1,
        "generated": "2026-11-21T06:40:00.000Z",
        "nightcrew": "0.1.0",
        "run": {
            "id": "1121-k3f9",
            "title": "evening chores",
            "state": "done",
            "submitted": "2026-11-21T06:30:00.000Z",
            "started": "2026-11-21T06:30:00.100Z",
            "ended": "2026-11-21T06:31:30.000Z",
            "wall_s": 90.0,
        },
        "repository": {"name": "shop", "root": "/srv/shop", "base": "HEAD", "commit": "3f2a" * 10},
        "summary": None,
        "prose": None,
        "findings": [],
        "findings_total": 0,
        "figures": None,
        "tasks": [],
    } | changes


def task(name: str, state: str = "done", **changes: Any) -> dict[str, Any]:
    end = {"done": "done", "running": None}.get(state, "failed")
    times = {"created": ZERO, "up": ZERO + 0.1, "began": ZERO + 0.2, "ended": ZERO + 9.0 if end else None}
    return {
        "id": f"1121-k3f9/{name}",
        "name": name,
        "title": "",
        "kind": "command",
        "phase": None,
        "state": state,
        "reason": "" if state == "done" else "exit code 3",
        "epoch": 1,
        "branch": f"nightcrew/1121-k3f9/{name}/work",
        "commits": 0,
        "diff": None,
        "cpu_s": 1.2,
        "last_line": "",
        "attempts": [{"epoch": 1, **times, "end": end, "cause": ""}],
    } | changes


def perspective(name: str, state: str = "done", score: float | None = 50.0, **changes: Any) -> dict[str, Any]:
    plain, per_kloc = FORMULAS[Perspective(name)]
    known = score is not None
    return {
        "name": name,
        "state": state,
        "reason": "" if state == "done" else "timed out after 300 s",
        "score": score,
        "score_per_kloc": score,
        "formula": plain,
        "formula_per_kloc": per_kloc,
        "files": 120 if known else 0,
        "counts": dict.fromkeys(COUNTS[Perspective(name)], 12) if known else {},
        "severities": {"high": 1, "medium": 2, "low": 3} if known else {},
        "unparsable": 0,
        "shards": 1,
    } | changes


def finding(file: str, line: int = 12, **changes: Any) -> dict[str, Any]:
    base = {"perspective": "security", "severity": "high", "file": file, "line": line, "code": "B602", "message": "shell=True"}
    return base | changes


def summary(perspectives: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    asked = {one["name"]: WEIGHTS[Perspective(one["name"])] for one in perspectives}
    known = [(asked[one["name"]], one["score_per_kloc"]) for one in perspectives if one["score_per_kloc"] is not None]
    weight = sum(number for number, _ in known)
    return {
        "health": round(sum(number * score for number, score in known) / weight, 1) if weight else None,
        "weights": asked,
        "files": max((one["files"] for one in perspectives), default=0),
        "lines": 24_000,
        "perspectives": perspectives,
        "issues": [],
        "actions": [],
        "hot_spots": [],
        "failed": [],
        "parallel": "",
    } | changes


def hostile(files: tuple[str, ...] = HOSTILE) -> dict[str, Any]:
    """An analysis in which every text that a repository or an agent can choose is one of `files`, in turn."""
    some = cycle(files)
    parts = [perspective("security", "partial", reason=next(some)), perspective("tests", "failed", None, reason=next(some))]
    found = [finding(next(some), code=next(some), message=next(some)) for _ in files]
    told = summary(
        parts,
        issues=found,
        actions=[f"Look at {next(some)}." for _ in files],
        hot_spots=[{"file": name, "high": 1, "medium": 2, "low": 30} for name in files],
        failed=[{"task": f"1121-k3f9/{next(some)}", "perspective": "tests", "shard": "1/2", "reason": next(some)}],
        parallel=next(some),
    )
    tasks = [
        task(next(some), "failed", title=next(some), reason=next(some), last_line=next(some), branch=next(some), phase="crew", epoch=2)
        for _ in files
    ]
    made = report(summary=told, findings=found, findings_total=len(found) + 1, tasks=tasks)
    made["prose"] = {"text": "\n\n".join(files), "model": next(some)}
    made["run"] |= {"title": next(some), "state": "failed"}
    made["repository"] |= {"name": next(some), "base": next(some)}
    return made


def ready(names: tuple[str, ...] = HOSTILE) -> dict[str, Any]:
    """An ordinary run whose tasks left commits, named and titled by `names`."""
    some = cycle(names)
    diff = {"files": 1, "plus": 2, "minus": 3}
    word = {"verdict": "accepted", "commit": "c0ffee", "why": names[0]}
    tasks = [task(next(some), title=next(some), commits=2, diff=diff, last_line=next(some), review=word) for _ in names]
    return report(tasks=tasks, conflicts=conflicts(tasks[0]["id"], tasks[-1]["id"], names), choices=[group(names), group(names, True)])


def group(names: tuple[str, ...], decided: bool = False) -> dict[str, Any]:
    """Two candidates whose names, reasons and commands are `names`; the first is chosen, or nobody chose."""
    some = cycle(names)
    known = {"judged": 0, "lines": 88, "cost_usd": 0.925, "seconds": 412.04}
    nothing = dict.fromkeys(known)
    one = {"task": f"r/{next(some)}", "state": "done", "gate": True, "weakened": [next(some)], "place": 1, "why": next(some), **known}
    other = {"task": f"r/{next(some)}", "state": "failed", "gate": None, "weakened": None, "place": 2, "why": next(some), **nothing}
    choice = {"winner": one["task"], "by": "person", "why": next(some), "epoch": 1, "commit": "c0ffee"} if decided else None
    found = {"group": f"r/{next(some)}", "places": [one, other], "notes": [next(some)], "choice": choice}
    return found | {"said": next(some), "commands": [f"nightcrew diff {next(some)}", f"nightcrew choose {next(some)}"]}


def conflicts(one: str, two: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Two results that conflict with each other, one with the checkout's branch, and one of which nobody knows."""
    rows = [{"task": one, "with": two, "files": [names[0]], "more": 3}, {"task": one, "with": None, "files": list(names), "more": 0}]
    unknown = [{"task": two, "with": None, "why": names[0]}]
    return {"base": {"commit": "c0ffee", "branch": names[-1]}, "conflicts": rows, "unknown": unknown, "not_compared": 1}


def young(known: bool = False) -> dict[str, Any]:
    """An analysis that still runs: nobody has answered, or one of two has."""
    parts = [perspective("tests", "running", None, reason="")]
    parts += [perspective("structure")] * known
    tasks = [task("tests", "running", phase="crew"), task("structure", "done" if known else "running", phase="crew")]
    made = report(summary=summary(parts, parallel="No analyst ran."), tasks=tasks, figures=sample("large")["figures"], exclude=["vendor/*"])
    made["run"] |= {"title": "analysis of shop", "state": "running", "ended": None}
    return made


def analysis(findings: int = 0, tasks: int = 1, **changes: Any) -> dict[str, Any]:
    """A whole analysis of five perspectives with so many findings and tasks."""
    found = [
        finding(f"package/sub/module_{n}.py", n, message=f"Possible SQL injection vector number {n} through string-based query.")
        for n in range(findings)
    ]
    parts = [perspective(str(name)) for name in Perspective]
    crew = [task(f"security-{n}", phase="crew", last_line=f"security: {n} of 912 files") for n in range(tasks)]
    return report(summary=summary(parts, issues=found[:20]), findings=found, findings_total=findings, tasks=crew) | changes
