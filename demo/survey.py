"""What the tasks of `demo/plan.toml` run: each looks at one side of the repository it stands in.

    python3 demo/survey.py lines|functions|imports|tests|summary

Prints a table, then one line of JSON, which nightcrew keeps as the task's output. The same JSON is left uncommitted in
`survey/NAME.json`: nightcrew commits what an agent leaves behind, and `summary` reads it from there.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = {".py": "Python", ".md": "Markdown", ".toml": "TOML", ".sql": "SQL", ".sh": "shell", ".txt": "text"}
Rows = list[tuple[str, int]]


def git(*argv: str) -> str:
    return subprocess.run(["git", *argv], capture_output=True, text=True, check=True).stdout


def files(*patterns: str) -> list[Path]:
    return [Path(name) for name in git("ls-files", "-z", *patterns).split("\0") if name]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in files("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def lines() -> Rows:
    """Lines a language."""
    count: Counter[str] = Counter()
    for path in files():
        count[LANGUAGES.get(path.suffix, "other")] += len(path.read_bytes().splitlines())
    return count.most_common()


def functions() -> Rows:
    """The ten longest functions."""
    found = [
        (f"{path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(found, key=lambda row: -row[1])[:10]


def imports() -> Rows:
    """The ten modules that most files import."""
    count: Counter[str] = Counter()
    for _, tree in trees():
        count.update({node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module})
    del count["__future__"]
    return count.most_common(10)


def tests() -> Rows:
    """Test functions a directory."""
    count: Counter[str] = Counter()
    for path, tree in trees():
        defined = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        count[str(path.parent)] += sum(name.startswith("test_") for name in defined)
    return [row for row in count.most_common() if row[1]]


def summary() -> Rows:
    """The first row of every survey that the other tasks of this run left on their branches."""
    run = os.environ["NIGHTCREW_RUN"]
    refs = git("for-each-ref", "--format=%(refname)", f"refs/heads/nightcrew/{run}", f"refs/nightcrew/rescue/{run}").split()
    found: dict[str, tuple[str, int]] = {}
    for ref in refs:
        for name in git("ls-tree", "--name-only", ref, "survey/").split():
            first = next(iter(json.loads(git("show", f"{ref}:{name}")).items()), ("nothing", 0))
            found[Path(name).stem] = (f"{Path(name).stem}: {first[0]}", first[1])
    return [found[name] for name in sorted(found)]


def main(name: str) -> None:
    surveys = {survey.__name__: survey for survey in (lines, functions, imports, tests, summary)}
    rows = surveys[name]()
    for label, number in rows:
        print(f"{number:>9}  {label}")
    text = json.dumps(dict(rows))
    Path("survey").mkdir(exist_ok=True)
    Path("survey", f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1])
