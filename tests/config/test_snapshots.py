"""`[snapshot.NAME]` tables: what they mean, what is said about each mistake, and what a stranger's file cannot reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config import plan, project
from supervisor.config.task_keys import check_inside, check_name
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.kind import Kind
from supervisor.kernel.snapshots import LOCK_FILES, SnapshotKind, SnapshotSpec

Load = Callable[[str], Mapping[str, SnapshotSpec]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loading(text: str) -> Mapping[str, SnapshotSpec]:
        (tmp_path / project.NAME).write_text(text)
        return project.load(tmp_path).snapshots

    return loading


def test_every_key(load: Load) -> None:
    found = load("""
        [snapshot.deps]
        setup = ["uv sync", "make tools"]
        verify = [".venv/bin/ruff --version"]
        copy = [".env.local", "config/*.local", ".env.local"]
        [snapshot.warm-2]
        kind = "memory"
        preload = ["bandit.core.manager", "ast", "ast"]
        lock_files = ["sub/uv.lock"]
        memory_max = "2GiB"
        processes_max = 64
        cores = 2
    """)
    assert dict(found) == {
        "deps": SnapshotSpec(
            "deps",
            setup=("uv sync", "make tools"),
            verify=(".venv/bin/ruff --version",),
            copy=(".env.local", "config/*.local"),
            lock_files=LOCK_FILES,
        ),
        "warm-2": SnapshotSpec(
            "warm-2",
            SnapshotKind.MEMORY,
            preload=("bandit.core.manager", "ast"),
            lock_files=("sub/uv.lock",),
            memory_max=2**31,
            processes_max=64,
            cores=2,
        ),
    }


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("setop = ['x']", "unknown key {}:2 setop: did you mean setup?"),
        ("zzz = 1", "unknown key {}:2 zzz: known: copy, cores, kind, lock_files, memory_max, preload, processes_max, setup, verify"),
        ("kind = 'disk'", "bad value {}:2 snapshot.deps.kind: Input should be 'filesystem' or 'memory', not 'disk'"),
        ("setup = 'make'", "bad value {}:2 snapshot.deps.setup: Input should be a valid list, not 'make'"),
        ("setup = ['']", "bad value {}:2 snapshot.deps.setup: String should have at least 1 character"),
        ("setup = ['  ']", "bad value {}:2 snapshot.deps.setup: a command must not be empty"),
        ('setup = ["a\\u0000b"]', "bad value {}:2 snapshot.deps.setup: a command must not be empty, and cannot hold a NUL"),
        ("preload = ['os; import x']", "bad value {}:2 snapshot.deps.preload: 'os; import x' is no module; preload holds dotted names"),
        ("preload = ['.x']", "bad value {}:2 snapshot.deps.preload: '.x' is no module"),
        ("preload = ['--help']", "bad value {}:2 snapshot.deps.preload: '--help' is no module"),
        ("preload = ['a\\n']".replace("'", '"'), "bad value {}:2 snapshot.deps.preload: 'a\\n' is no module"),
        ("copy = ['/etc/passwd']", "bad value {}:2 snapshot.deps.copy: '/etc/passwd' leads out of the repository"),
        ("copy = ['~/.ssh/id']", "bad value {}:2 snapshot.deps.copy: '~/.ssh/id' leads out of the repository"),
        ("copy = ['a/../../x']", "bad value {}:2 snapshot.deps.copy: 'a/../../x' leads out of the repository"),
        ('copy = ["a\\u001bb"]', "bad value {}:2 snapshot.deps.copy: a pattern has no line breaks and no control characters"),
        ("copy = ['.GIT/config']", "bad value {}:2 snapshot.deps.copy: '.GIT/config': git's own files cannot be named"),
        ("lock_files = ['../uv.lock']", "bad value {}:2 snapshot.deps.lock_files: '../uv.lock' leads out of the repository"),
        ("memory_max = 5", "bad value {}:2 snapshot.deps.memory_max: Input should be greater than or equal to 1048576, not 5"),
        ("cores = 0", "bad value {}:2 snapshot.deps.cores: Input should be greater than or equal to 1, not 0"),
        ("preload = ['os']", 'bad value {}:1 snapshot.deps: preload needs kind = "memory"'),
        ("kind = 'memory'", 'bad value {}:1 snapshot.deps: kind = "memory" needs preload'),
        ("verify = ['true']", "bad value {}:1 snapshot.deps: a snapshot needs setup, preload or copy"),
    ],
)
def test_a_bad_line_is_named(load: Load, tmp_path: Path, line: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"[snapshot.deps]\n{line}\n")
    assert caught.value.line().startswith(answer.format(tmp_path / project.NAME))


@pytest.mark.parametrize("name", ["", "Deps", "a b", "-x", "x-", "a.b", "../x", "a/b", "x" * 33, "ü", "a\n"])
def test_a_name_that_could_be_anything_else_is_refused(load: Load, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a snapshot"):
        load(f'[snapshot."{name}"]\nsetup = ["x"]\n'.replace("a\n", "a\\n"))


@given(st.text("abz019-", min_size=1, max_size=32))
def test_a_name_is_kept_or_refused_as_it_is(name: str) -> None:
    if name[0] == "-" or name[-1] == "-":
        with pytest.raises(ValueError, match="cannot be"):
            check_name(name)
    else:
        assert check_name(name) == name


@pytest.mark.parametrize("pattern", [".env.local", "*.local", "config/**/x", "..x", "a..b/c", ".gitignore", "node_modules"])
def test_what_lies_in_the_repository_is_accepted(pattern: str) -> None:
    assert check_inside(pattern) == pattern


def test_a_snapshot_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('[[tasks]]\nid = "a"\ncommand = "true"\nsnapshot = "dep"\n')
    assert plan.load(path, {"shell": Kind("shell", "")}).tasks[0].snapshot == "dep"
    assert plan.load(path, {"shell": Kind("shell", "")}, snapshots=["dep"]).tasks[0].snapshot == "dep"
    for known, answer in ((["deps"], "did you mean deps?"), ([], "there is none; describe it as")):
        with pytest.raises(ConfigError, match=f"plan.toml:4 tasks.snapshot: 'dep' is not a snapshot; {re.escape(answer)}"):
            plan.load(path, {"shell": Kind("shell", "")}, snapshots=known)
