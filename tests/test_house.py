"""Rules of the house that import-linter cannot express: what features may import directly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FEATURES = Path(__file__).parent.parent / "supervisor" / "features"


def imported(file: Path) -> Iterator[str]:
    """Return the modules of features that a file imports, as `feature.module`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("supervisor.features"):
            continue
        for name in node.names:
            parts = [*(node.module or "").split(".")[2:], name.name]
            while parts and not (
                FEATURES.joinpath(*parts).with_suffix(".py").exists() or FEATURES.joinpath(*parts, "__init__.py").exists()
            ):
                parts.pop()
            yield ".".join(parts)


def test_a_feature_imports_no_other_feature() -> None:
    found = set()
    for file in FEATURES.rglob("*.py"):
        parts = file.relative_to(FEATURES).with_suffix("").parts
        source = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found |= {(source, target) for target in imported(file) if target.split(".")[0] != parts[0]}
    assert found == set()


def test_the_loop_has_at_most_twenty_attributes_and_none_is_assigned_from_outside() -> None:
    root = FEATURES.parent.parent
    named, outside = set(), []
    for node in ast.walk(ast.parse((root / "supervisor/server/loop.py").read_text())):
        if isinstance(node, ast.ClassDef) and node.name == "Loop":
            named = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and _is_assigned(one, "self")}
    for room in ("supervisor", "agents", "memory", "worktrees", "nightcrew"):
        for file in (root / room).rglob("*.py"):
            tree = ast.parse(file.read_text())
            outside += [
                f"{file.name}: {one.attr}" for one in ast.walk(tree) if isinstance(one, ast.Attribute) and _is_assigned(one, "loop")
            ]
    assert len(named) <= 20, sorted(named)
    assert [one for one in outside if not one.startswith("fake_doors.py")] == []


def _is_assigned(node: ast.Attribute, to: str) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == to
