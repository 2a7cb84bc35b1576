#!/usr/bin/env python3
"""Show how large the product is, folder by folder: files, lines, tokens. Run it in the project's root.

A token is a name, operator, number or string of a Python file, or a word of a page's asset (JavaScript, CSS, HTML, Jinja, SQL, C, TOML).
A docstring is one token and a comment none, so that neither longer lines nor fewer docstrings make the figure smaller. Tests and
documents are counted apart.

    size.py [--json] [--max-tokens N] [--max-files N]   exit 1 when the product is larger
    size.py --budget tools/size.toml                    exit 1 when it is larger than its budget, or much smaller
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path

PRODUCT = ("nightcrew", "supervisor", "agents", "memory", "worktrees")
ASSETS = {".js", ".css", ".html", ".j2", ".sql", ".c", ".h", ".toml", ".json"}
SLACK = {"tokens": 2_000, "files": 3}
"""The budget may be larger than the product by so much; more, and it must be lowered, so that it only falls."""
KINDS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}


def tokens(path: Path, text: str) -> int:
    if path.suffix != ".py":
        return len(re.findall(r"\w+|[^\w\s]", text))
    try:
        return sum(token.type in KINDS for token in tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError):
        return 0


def room(path: str) -> str:
    parts = path.split("/")
    if parts[0] not in PRODUCT:
        return {"tests": "(tests)", "docs": "(documents)"}.get(parts[0], "(documents)" if path.endswith(".md") else "")
    deep = 3 if parts[:2] in (["nightcrew", "plugins"], ["supervisor", "features"]) else 2 if parts[0] == "supervisor" else 1
    return "/".join(parts[:deep]) if len(parts) > deep else "/".join(parts[: len(parts) - 1])


def against_budget(product: dict[str, int], file: Path) -> int:
    """Compare the product with its budget, and say what to do. Returns the exit status."""
    budget = tomllib.loads(file.read_text("utf-8"))
    status = 0
    for key in ("tokens", "files"):
        if product[key] > budget[key]:
            print(
                f"size: the product has {product[key]:,} {key}, its budget in {file} is {budget[key]:,}: take something away first",
                file=sys.stderr,
            )
            status = 1
        elif product[key] + SLACK[key] < budget[key]:
            print(f"size: the product has only {product[key]:,} {key}: lower `{key}` in {file} from {budget[key]:,}", file=sys.stderr)
            status = 1
    return status


def main(args: list[str]) -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=False, text=True)
    if listed.returncode:
        print(f"size: not measured, this is no git checkout: {listed.stderr.strip()}", file=sys.stderr)
        return 0
    files = listed.stdout.split("\0")
    rooms: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "lines": 0, "tokens": 0, "words": 0})
    for name in filter(None, files):
        path, where = Path(name), room(name)
        if not where or not path.is_file() or (path.suffix != ".py" and path.suffix not in ASSETS | {".md"}) or "vendor" in path.parts:
            continue
        if where not in ("(tests)", "(documents)") and path.suffix == ".md":
            continue
        text = path.read_text("utf-8", "replace")
        row = rooms[where]
        row["files"] += 1
        row["lines"] += text.count("\n")
        row["words"] += len(text.split()) if path.suffix == ".md" else 0
        row["tokens"] += tokens(path, text) if path.suffix != ".md" else 0
    product = {key: sum(row[key] for name, row in rooms.items() if not name.startswith("(")) for key in ("files", "lines", "tokens")}
    plugins = {
        key: sum(row[key] for name, row in rooms.items() if name.startswith("nightcrew/plugins")) for key in ("files", "lines", "tokens")
    }
    if "--budget" in args:
        return against_budget(product, Path(args[args.index("--budget") + 1]))
    if "--json" in args:
        print(json.dumps({"product": product, "of_it_plugins": plugins, "rooms": rooms}))
    else:
        for name, row in sorted(rooms.items(), key=lambda item: -item[1]["tokens"]):
            print(
                f"{name:28}{row['files']:6} files{row['lines']:9,} lines{row['tokens']:10,} tokens"
                + (f"{row['words']:9,} words" if row["words"] else "")
            )
        whole = f"{product['files']:6} files{product['lines']:9,} lines{product['tokens']:10,} tokens"
        print(f"{'product':28}{whole}, of these in plugins {plugins['tokens']:,}")
    bound = {key: int(args[args.index(flag) + 1]) for key, flag in (("tokens", "--max-tokens"), ("files", "--max-files")) if flag in args}
    return int(any(product[key] > most for key, most in bound.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
