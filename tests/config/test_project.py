"""The project file: read strictly, and trusted with nothing that could make a stranger's file run or send something."""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from supervisor.config import plan, project, task_keys
from supervisor.config.project import Analyze, Project, load, template
from supervisor.config.task_keys import SnapshotModel
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Kind
from supervisor.kernel.states import TaskClass
from supervisor.kernel.train_orders import GeneratedRule
from supervisor.results.findings import Perspective
from tests.config.test_fuzz import tables

KINDS: dict[str, Kind] = {name: Kind(name, "") for name in ("shell", "terminal")} | {
    "analyst": Kind("analyst", "", program=("python", "-m", "x"))
}


def write(root: Path, text: str) -> Path:
    file = root / "nightcrew.toml"
    file.write_text(text)
    return file


def test_without_a_file_all_is_default(tmp_path: Path) -> None:
    assert load(tmp_path, KINDS) == Project() == load(tmp_path / "absent" / "deeper", KINDS)
    assert Project().analyze == Analyze(tuple(Perspective), (), 600.0)
    assert load(write(tmp_path, "# nothing\n").parent, KINDS) == Project(file=tmp_path / "nightcrew.toml", defaults=project.DefaultsModel())


def test_every_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        base = "main"
        [defaults]
        kind = "terminal"
        priority = 70
        class = "batch"
        timeout = "2h"
        retries = 3
        cores = [0, 1]
        sandbox = 2
        network = false
        [analyze]
        agents = ["structure", "security", "structure"]
        exclude = ["vendor/*", "*_pb2.py"]
        timeout = "90s"
        [[generated]]
        paths = ["package-lock.json", "web/**/*.lock", "gen/"]
        command = "npm install --package-lock-only"
        """,
    )
    found = load(tmp_path, KINDS)
    assert (found.file, found.base) == (tmp_path / "nightcrew.toml", "main")
    assert found.defaults.model_fields_set == {
        "kind", "priority", "task_class", "timeout", "retries", "cores", "sandbox", "network",
    }  # fmt: skip
    assert found.analyze == Analyze((Perspective.STRUCTURE, Perspective.SECURITY), ("vendor/*", "*_pb2.py"), 90.0)
    assert found.generated == (GeneratedRule(("package-lock.json", "web/**/*.lock", "gen"), "npm install --package-lock-only"),)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("bases = 'main'", ":1 bases: did you mean base?"),
        ("base = ''", ":1 base: String should have at least 1 character"),
        ("[analyse]\n", ":1 analyse: did you mean analyze?"),
        ("[defaults]\nretires = 1", ":2 retires: did you mean retries?"),
        ("[defaults]\ncommand = 'x'", ":2 command: "),
        ("[defaults]\nretries = -1", ":2 defaults.retries: Input should be greater than or equal to 0"),
        ("[defaults]\nkind = 'shel'", ":2 defaults.kind: 'shel' is not a kind of agent; did you mean shell?"),
        ("\n[defaults]\nkind = 'analyst'", ":3 defaults.kind: a task of kind analyst brings its own command"),
        ("[analyze]\nagents = []", ":2 analyze.agents: List should have at least 1 item"),
        ("[analyze]\nagents = ['securty']", ":2 analyze.agents: 'securty' is no analyst; did you mean security?"),
        ("[analyze]\ntimeout = 0", ":2 analyze.timeout: Input should be greater than 0"),
        ("[analyze]\ntimeout = '2d'", ":2 analyze.timeout: Input should be less than or equal to 86400"),
        ("[analyze]\nexclude = ['']", ":2 analyze.exclude: String should have at least 1 character"),
        ('[analyze]\nexclude = ["a\\nb"]', ":2 analyze.exclude: a pattern has no line breaks"),
        ("[analyze]\nexclude = 'vendor'", ":2 analyze.exclude: Input should be a valid list"),
        ("[analyze]\nmodel = 'm'", ":2 model: known: agents, exclude, timeout"),
        ("analyze = 1", ":1 analyze: "),
        ("[[generated]]\npaths = ['a.lock']", ":1 command: it must be given"),
        ("[[generated]]\npaths = ['a.lock']\ncommand = ' '", ":3 generated.command: a command must not be empty"),
        ("[[generated]]\npaths = []\ncommand = 'x'", ":2 generated.paths: List should have at least 1 item"),
        ("[[generated]]\npaths = ['../a.lock']\ncommand = 'x'", ":2 generated.paths: '../a.lock' leads out of the repository"),
        ("[[generated]]\npaths = ['.git/config']\ncommand = 'x'", ":2 generated.paths: '.git/config': git's own files"),
        ("[[generated]]\npaths = ['a', '**/']\ncommand = 'x'", ":2 generated.paths: not every file is made by a command"),
        ("[[generated]]\npath = ['a']\ncommand = 'x'", ":2 path: did you mean paths?"),
        ("[generated]\npaths = ['a']\ncommand = 'x'", ":1 generated: Input should be a valid list"),
        ("[[generate]]\npaths = ['a']\ncommand = 'x'", ":1 generate: did you mean generated?"),
        ("base = 1\nbase = 2", ":2: not valid TOML"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, answer: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, KINDS)
    assert f"{file}{answer}" in caught.value.line()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("snapshot = 'deps'", "runs no set-up of its own for every task"),
        ("snapshot = ''", "runs no set-up of its own for every task"),
        ("sandbox = 0", "may tighten isolation and never loosen it: only 2"),
        ("sandbox = 1", "may tighten isolation and never loosen it: only 2"),
        ("network = true", "may tighten isolation and never loosen it: only false"),
        ("network = ['a.org']", "may tighten isolation and never loosen it: only false"),
    ],
)
def test_a_strangers_file_starts_no_set_up_and_loosens_no_isolation(tmp_path: Path, line: str, why: str) -> None:
    write(tmp_path, f"[defaults]\n{line}\n")
    with pytest.raises(ConfigError, match=rf":2 defaults\.{line.split()[0]}: a file that comes with a clone {why}"):
        load(tmp_path, KINDS)


def test_a_plan_that_asks_for_less_than_the_project_forbids_is_told_so(tmp_path: Path) -> None:
    ours = project_of(tmp_path, "[defaults]\nnetwork = false\n")
    file = tmp_path / "plan.toml"
    file.write_text("[[tasks]]\ncommand = 'x'\nsandbox = 1\n")
    with pytest.raises(ConfigError, match=r":3 tasks\.sandbox: network = false needs tier 2"):
        plan.load(file, KINDS, ours.defaults)
    file.write_text("[[tasks]]\ncommand = 'x'\nsandbox = 1\nnetwork = true\n")
    assert plan.load(file, KINDS, ours.defaults).tasks[0].network


@pytest.mark.parametrize("table", ["params = { LD_PRELOAD = './evil.so' }", "params = { HARMLESS = 1 }", "params = {}", "params.A = 1"])
def test_a_strangers_file_sets_no_variable(tmp_path: Path, table: str) -> None:
    write(tmp_path, f"[defaults]\n{table}\n")
    with pytest.raises(ConfigError, match=r":2 defaults\.params.*comes with a clone sets no environment variables"):
        load(tmp_path, KINDS)


def test_only_a_plain_file_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("base = 'main'\n")
    file = tmp_path / "nightcrew.toml"
    makes: list[Callable[[], None]] = [
        lambda: file.symlink_to(secret),
        lambda: file.symlink_to(tmp_path / "nowhere"),
        lambda: os.mkfifo(file),
        file.mkdir,
    ]
    for make in makes:
        make()
        with pytest.raises(ConfigError, match="it is not a plain file"):
            load(tmp_path)
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_looked_at_is_not_no_file(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    write(closed, "base = 'main'\n")
    closed.chmod(0)
    try:
        with pytest.raises(ConfigError, match="Permission denied"):
            load(closed)
    finally:
        closed.chmod(0o700)


@given(
    st.lists(st.sampled_from(["", "[defaults]\n", "[analyze]\n", "[snapshot.a]\n", "[[generated]]\n"]).flatmap(tables), max_size=3).map(
        "".join
    )
    | st.text()
)
def test_whatever_it_holds_is_a_project_or_one_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.getbasetemp()
    (root / "nightcrew.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        load(root, KINDS)


# The order: command line, task, plan's [defaults], project's [defaults] -----------------------------------------------------------------


def project_of(tmp_path: Path, text: str) -> Project:
    write(tmp_path, text)
    return load(tmp_path, KINDS)


def test_the_plan_overrides_the_project_and_the_task_the_plan(tmp_path: Path) -> None:
    ours = project_of(tmp_path, "base = 'ours'\n[defaults]\nretries = 1\npriority = 10\ntimeout = 60\nclass = 'batch'\n")
    file = tmp_path / "plan.toml"
    file.write_text(
        "[defaults]\npriority = 20\n[[tasks]]\nid = 'a'\ncommand = 'x'\n[[tasks]]\nid = 'b'\ncommand = 'x'\npriority = 0\nretries = 0\n"
    )
    spec = plan.load(file, KINDS, ours.defaults, ours.base)
    first, second = spec.tasks
    assert (first.priority, first.retries, first.timeout_s, first.task_class) == (20, 1, 60.0, TaskClass.BATCH)
    assert (second.priority, second.retries) == (0, 0), "a task that says the usual value has said it"
    assert spec.base == "ours"
    file.write_text("base = 'theirs'\n" + file.read_text())
    assert plan.load(file, KINDS, ours.defaults, ours.base).base == "theirs"
    assert plan.load(file, KINDS).tasks[0].retries == 0
    file.write_text("[[tasks]]\ncommand = 'x'\n")
    assert plan.load(file, KINDS).base == "HEAD"


def test_a_typed_task_has_the_projects_defaults_too(tmp_path: Path) -> None:
    ours = project_of(tmp_path, "base = 'ours'\n[defaults]\nkind = 'terminal'\nretries = 2\n")
    options = {"id": "task", "retries": 0, "kind": None}
    spec = plan.single(("x",), KINDS, options, ours.defaults, ours.base)
    assert (spec.base, spec.tasks[0].kind, spec.tasks[0].retries) == ("ours", "terminal", 0)
    assert plan.single(("x",), KINDS, options).tasks[0].kind == "shell"


# The file that `init` writes --------------------------------------------------------------------------------------------------------------

UNCOMMENTED = re.sub(r"^#(?! )", "", template(), flags=re.MULTILINE)


def keys_of(model: type[BaseModel], before: str = "") -> set[str]:
    """Every key of a model and of the models in it, dotted."""
    found = set()
    for name, item in model.model_fields.items():
        found.add(f"{before}{item.alias or name}")
        if isinstance(item.annotation, type) and issubclass(item.annotation, BaseModel):
            found |= keys_of(item.annotation, f"{before}{item.alias or name}.")
    return found


def test_the_template_says_nothing_until_a_comment_is_taken_away(tmp_path: Path) -> None:
    write(tmp_path, template())
    assert load(tmp_path, KINDS) == Project(file=tmp_path / "nightcrew.toml", defaults=project.DefaultsModel())


def test_the_template_has_every_key_once_and_loads_with_all_of_them(tmp_path: Path) -> None:
    shape = tomllib.loads(UNCOMMENTED)
    written = {*shape, *(f"{table}.{key}" for table in ("defaults", "analyze", "land") for key in shape[table])}
    refused = ("params", "snapshot", "allow", "interactive", "children_max", "depth_max", "gate", "gate_timeout")
    assert written == keys_of(project.ProjectModel) - {f"defaults.{key}" for key in refused}
    assert set(shape["snapshot"]["deps"]) == keys_of(SnapshotModel)
    assert set(shape["generated"][0]) == keys_of(project.GeneratedModel)
    found = load(write(tmp_path, UNCOMMENTED).parent, KINDS)
    assert found.base == "HEAD"
    assert found.analyze == Analyze()
    assert found.snapshots["deps"].setup == ("make deps",)


def test_the_template_shows_the_true_defaults() -> None:
    shape = tomllib.loads(UNCOMMENTED)
    # The first eight have none, and say so; of the last two only what is tighter than the default can be said.
    without = ["timeout", "cores", "tpm_max", "cost_max", "memory_max", "disk_max", "processes_max", "cpu_max", "sandbox", "network"]
    without += ["model", "steps_max", "on_loss", "same_path"]
    without += ["tokens_max", "size", "engine_seconds_max", "work"]
    given = {key: value for key, value in shape["defaults"].items() if key not in without}
    assert task_keys.Shared.model_validate(given) == task_keys.Shared()
    assert project.AnalyzeModel.model_validate(shape["analyze"]) == project.AnalyzeModel()
    land = {key: value for key, value in shape["land"].items() if key not in ("gate", "width", "snapshot")}
    assert project.LandModel.model_validate(land) == project.LandModel()


def test_every_line_of_the_template_is_prose_or_one_key_and_each_key_has_its_reason() -> None:
    lines = template().splitlines()
    for number, line in enumerate(lines):
        assert not line or (line.startswith("#") and len(line) <= 140)
        if re.match(r"#\w", line):
            assert lines[number - 1].startswith("# "), f"no reason above {line}"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    found, none = load(tmp_path, KINDS), load(tmp_path / "none", KINDS)
    assert replace(found, file=None, defaults=none.defaults) == none and found.file == file
    assert found.defaults.model_dump() == none.defaults.model_dump()
