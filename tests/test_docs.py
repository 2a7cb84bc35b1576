"""The documents are complete and true: everything a user can type or meet is described, and everything they name exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from agents.kinds import kinds
from supervisor.config import plan

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MANUAL = sorted(ROOT.glob("docs/*.md"))


def manual() -> str:
    return "\n".join(page.read_text() for page in MANUAL)


def code(text: str) -> list[str]:
    """Every `span` and every line of a fenced block, which is where commands, keys and paths are written."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose) + [line.strip() for block in blocks for line in block.splitlines()]


def describes_key(text: str, key: str) -> bool:
    """Whether `key` (or `table.key`) is written as code, alone or in an example such as `key = 1` or `[key]`."""
    written = re.compile(rf"(?:[\w.\[\]]+[. ])?\[{{0,2}}{re.escape(key)}\]{{0,2}}(?:\s*=.*)?")
    return any(written.fullmatch(piece) for piece in code(text))


def describes_verb(text: str, verb: str) -> bool:
    """Whether `nightcrew VERB` is written as code."""
    return any(re.match(rf"(?:\$ )?nightcrew {re.escape(verb)}(?![\w-])", piece) for piece in code(text))


def paths(text: str) -> set[str]:
    """Paths written as code; patterns such as `commands/<verb>.py` are none."""
    return {piece for piece in code(text) if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/?", piece)}


def links(text: str) -> set[str]:
    """Targets of relative links."""
    return {target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target}


def make_targets_named(text: str) -> set[str]:
    calls = [re.match(r"(?:\$ )?make((?: +[a-z]+)+)", piece) for piece in code(text)]
    return {target for call in calls if call for target in call[1].split()}


def example_plans(text: str) -> list[str]:
    """The fenced TOML blocks that hold tasks."""
    return [block for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "[[tasks]]" in block]


def verbs(group: click.Group, context: click.Context, before: str = "") -> Iterator[str]:
    """Every command of a click group with the words that lead to it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from verbs(command, context, f"{before}{name} ")
        elif not command.hidden:
            yield before + name


def all_verbs() -> list[str]:
    main = importlib.import_module("supervisor.cli.main")
    return list(verbs(main.cli, click.Context(main.cli)))


def all_keys() -> set[str]:
    """Every key of every file that a person writes, as it is spelt in the file."""
    package = importlib.import_module("supervisor.config")
    modules = [importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)]
    models = [item for module in modules for item in vars(module).values() if isinstance(item, type) and issubclass(item, BaseModel)]
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def all_errors() -> set[str]:
    module = importlib.import_module("supervisor.kernel.errors")
    return {name for name, item in vars(module).items() if isinstance(item, type) and issubclass(item, module.NightcrewError)}


def test_every_verb_is_described() -> None:
    found = all_verbs()
    assert found
    assert [verb for verb in found if not describes_verb(manual(), verb)] == []


def test_every_configuration_key_is_described() -> None:
    found = all_keys()
    assert {"id", "command", "after"} <= found
    assert sorted(key for key in found if not describes_key(manual(), key)) == []


def test_every_error_is_described() -> None:
    found = all_errors()
    assert "NightcrewError" in found
    assert sorted(name for name in found if name not in code(manual())) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    ours = {entry.name for entry in ROOT.iterdir()}  # `refs/heads/x` or `run/tmux.sock` are not about this repository
    assert sorted(path for path in paths(text) if path.split("/")[0] in ours and not (ROOT / path).exists()) == []
    assert sorted(link for link in links(text) if not (page.parent / link).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert sorted(make_targets_named(text) - targets) == []
    cli = importlib.import_module("supervisor.cli.main").cli
    named = {match[1] for piece in code(text) if (match := re.match(r"(?:\$ )?nightcrew ([a-z][a-z-]*)", piece))}
    assert sorted(named - set(cli.list_commands(click.Context(cli)))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_plan_in_a_page_is_accepted(page: Path, tmp_path: Path) -> None:
    for number, example in enumerate(example_plans(page.read_text())):
        file = tmp_path / f"{number}.toml"
        file.write_text(example)
        plan.load(file, kinds())


def test_the_demo_is_a_plan_of_ten_tasks() -> None:
    assert len(plan.load(ROOT / "demo" / "plan.toml", kinds()).tasks) == 10


SAMPLE = """
Run `nightcrew retry TASK`, `make check test` or see [the plan](docs/plan.md) and `docs/decisions/`, `commands/<verb>.py`.

```toml
[limits]
log_max = "64MiB"
```

Raises `Refused`; `tasks.after` waits. A plain word such as timeout is no description.
"""


def test_what_the_checks_read_in_a_page() -> None:
    assert describes_verb(SAMPLE, "retry")
    assert not describes_verb(SAMPLE, "ret")
    assert all(describes_key(SAMPLE, key) for key in ("limits", "log_max", "after"))
    assert not describes_key(SAMPLE, "timeout")
    assert "docs/decisions/" in paths(SAMPLE)
    assert "commands/<verb>.py" not in paths(SAMPLE)
    assert links(SAMPLE) == {"docs/plan.md"}
    assert make_targets_named(SAMPLE) == {"check", "test"}
    assert "Refused" in code(SAMPLE)
    assert example_plans(SAMPLE) == []
    assert example_plans('```toml\n[[tasks]]\nid = "a"\n```\n') == ['[[tasks]]\nid = "a"\n']


def test_verbs_inside_groups_are_walked() -> None:
    group = click.Group("top", {"env": click.Group("env", {"list": click.Command("list")}), "run": click.Command("run")})
    assert list(verbs(group, click.Context(group))) == ["env list", "run"]
