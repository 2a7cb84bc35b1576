"""What of a result bears on the gate that judges it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.kernel.gate_files import Change, Flag, Kind, flags, is_test, what_runs

ONE = ("def test_one():", "    assert add(1, 2) == 3")
TWO = ("def test_two():", "    assert add(2, 2) == 4")


def changed(path: str, removed: tuple[str, ...] = (), added: tuple[str, ...] = (), status: str = "M", old_path: str = "") -> Change:
    return Change(path, status, old_path, removed, added)


def said(*changes: Change, gate: str = "pytest -q") -> list[tuple[str, Kind, bool]]:
    return [(flag.path, flag.kind, flag.weakens) for flag in flags(changes, gate)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (changed("tests/test_a.py", removed=ONE), "deletes or renames 1 test"),
        (changed("tests/test_a.py", removed=ONE + TWO, status="D"), "deletes a file of 2 tests"),
        (changed("tests/data.json", removed=("{}",), status="D"), "deletes a file of tests"),
        (changed("tests/test_a.py", added=("@pytest.mark.skip(reason='later')",)), "1 line more that keep tests from running"),
        (changed("a.test.ts", removed=("it('a', () => {",), added=("it.skip('a', () => {",)), "1 line more that keep tests from running"),
        (changed("a_test.go", added=('\tt.Skip("later")',)), "1 line more that keep tests from running"),
        (changed("tests/a_test.rs", added=("#[ignore]",)), "1 line more that keep tests from running"),
        (changed("tests/test_a.py", removed=("    assert add(1, 2) == 3",), added=("    assert True",)), "1 assertion that cannot fail"),
        (changed("tests/test_a.py", removed=("    assert add(1, 2) == 3",), added=("    pass",)), "1 assertion fewer"),
        (changed("checks/a.py", old_path="checks/test_a.py", status="R"), "checks/test_a.py has a name now that no test program looks for"),
        (changed("tests/conftest.py", added=("collect_ignore = ['test_a.py']",), status="A"), "adds how tests or checks run"),
        (changed("setup.cfg", removed=("fail_under = 90",), added=("fail_under = 20",)), "changes a file that may say how tests run"),
        (changed(".github/workflows/test.yml", removed=("- run: make test",)), "changes a CI file"),
    ],
)  # fmt: skip
def test_what_weakens_a_gate_is_said_first(change: Change, why: str) -> None:
    found = flags([changed("uv.lock"), change], "pytest -q")
    assert why in [flag.why for flag in found if flag.weakens]
    assert found[0].weakens and found[-1] == Flag("uv.lock", Kind.LOCK, "changes a lock file", weakens=False)


@pytest.mark.parametrize(
    "changes",
    [
        [changed("tests/test_new.py", added=ONE + TWO, status="A")],
        [changed("tests/test_b.py", old_path="tests/test_a.py", status="R")],
        [changed("tests/test_a.py", removed=ONE), changed("tests/test_b.py", added=ONE, status="A")],
        [changed("tests/test_a.py", removed=("    assert add(1, 2) == 3",), added=("    assert add(1, 2) == 4",))],
        [changed("src/a.py", removed=("    assert x",), added=("    return x",))],
        [changed("setup.cfg2", removed=("fail_under = 20",), added=("fail_under = 90",))],
        [changed("src/contest.py"), changed("docs/testing.md")],
    ],
)
def test_what_does_not_weaken_it_is_no_weakening(changes: list[Change]) -> None:
    assert [flag for flag in flags(changes, "pytest -q") if flag.weakens] == []


def test_what_the_gate_runs_is_its_own() -> None:
    assert said(changed("Makefile"), gate="make -C . check") == [("Makefile", Kind.BUILD, True)]
    assert said(changed("Makefile"), gate="pytest") == []
    assert said(changed("tools/check.sh"), gate="cd . && ./tools/check.sh --fast") == [("tools/check.sh", Kind.BUILD, True)]
    assert said(changed("tools/gate.sh", status="D"), gate="sh 'tools/gate.sh") == [], "words that no shell would take"
    assert said(changed("tools/check.py"), gate="CI=1 python3 -u tools/check.py src/a.py") == [("tools/check.py", Kind.BUILD, True)]
    assert said(changed("src/a.py"), gate="python3 tools/check.py src/a.py") == [], "what it looks at is not what it runs"
    assert said(changed("test", status="A"), gate="make test") == [("test", Kind.BUILD, True)], "make has nothing to do then"
    assert said(changed("web/lint", status="A"), gate="make -s -C web J=2 lint") == [("web/lint", Kind.BUILD, True)]
    assert said(changed("test", status="A"), gate="pytest test") == []
    for path in ("tool.py", "tool/__init__.py", "tool/__main__.py"):
        assert said(changed(path, status="A"), gate="python3 -m tool") == [(path, Kind.BUILD, True)]
    assert said(changed("pytest.py", status="A"), gate="make test") == [("pytest.py", Kind.RUNS, True)]


def test_scripts_that_what_the_gate_runs_may_run_are_known_by_their_names() -> None:
    for path in ("scripts/check.sh", "ci/run-tests.py", "script/test", "tools/lint_all.sh"):
        assert said(changed(path), gate="make test") == [(path, Kind.BUILD, True)]
        assert said(changed(path, status="A"), gate="make test") == [], "what is new was not run before"
    assert said(changed("other/run", old_path="scripts/check.sh", status="R"), gate="make test") == [("other/run", Kind.BUILD, True)]
    assert said(changed("scripts/release.sh"), gate="make test") == []


def test_of_a_file_with_much_in_it_only_the_part_counts_that_tests_need() -> None:
    old, new = (
        '[project]\nname="a"\n[tool.pytest.ini_options]\naddopts="-q"\n',
        '[project]\nname="b"\n[tool.pytest.ini_options]\naddopts="-q"\n',
    )
    assert flags([Change("pyproject.toml", "M", old_text=old, new_text=new)]) == ()
    looser = old.replace("-q", "-k nothing")
    assert said(Change("pyproject.toml", "M", old_text=old, new_text=looser)) == [("pyproject.toml", Kind.CONFIG, True)]
    assert said(Change("pyproject.toml", "M", old_text=old, new_text="[[[")) == [("pyproject.toml", Kind.CONFIG, True)]
    scripts = '{"scripts": {"test": "jest"}}'
    assert said(Change("web/package.json", "M", old_text=scripts, new_text='{"scripts": {"test": "true"}}')) == [
        ("web/package.json", Kind.CONFIG, True)
    ]
    assert said(Change("package.json", "M", old_text="[" * 100_000, new_text="1")) == [("package.json", Kind.CONFIG, True)]


def test_lines_of_any_length_and_many_files_are_looked_through() -> None:
    long = ("assert " + "x" * 10_000_000, "it('" + "a" * 10_000_000, " " * 10_000_000 + "def test_a")
    assert flags([changed(f"tests/test_{number}.py", removed=long, added=long) for number in range(3)]) == ()
    many = [changed(f"src/{number}.py", added=("x = 1",)) for number in range(20_000)]
    assert flags(many) == ()


def test_names_of_tests() -> None:
    assert all(map(is_test, ["test_a.py", "a/b_test.go", "web/a.spec.tsx", "src/AppTest.java", "tests/helpers.py", "spec/a_spec.rb"]))
    assert not any(map(is_test, ["src/a.py", "contest.py", "latest.py", "tests/conftest.py", "", "docs/tests.md"]))


@pytest.mark.parametrize(
    "path",
    [
        "argparse.py", "json/__init__.py", "src/secrets.pyc", "lib/_pytest/__init__.py", "tests/random.cpython-311-x86_64-linux-gnu.so",
        "random.abi3.so", "coverage.py", "sitecustomize.py", "src/usercustomize.py", "tests/usercustomize/__init__.py", "x.pth",
        "nightcrew.toml", ".worktreeinclude",
    ],
)  # fmt: skip
def test_a_new_file_that_a_program_loads_unnamed_decides_what_runs(path: str) -> None:
    found = flags([Change(path, "A")], "make test")
    assert [(flag.kind, flag.weakens) for flag in found] == [(Kind.RUNS, True)] and path in what_runs(found)


STEERING = [
    ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/run.sh", "web/.claude/agents/a.md", ".Claude/settings.json",
    ".claude", ".mcp.json", "web/.mcp.json", ".codex/config.toml", ".opencode/plugin/a.ts", "opencode.json", "opencode.jsonc",
    ".gemini/settings.json", ".qwen/settings.json", ".aider.conf.yml", ".cursor/mcp.json", ".vscode/tasks.json", "a/.vscode/settings.json",
    ".vscode/launch.json", ".vscode/extensions.json", ".idea/runConfigurations/a.xml", ".run/a.run.xml", ".devcontainer/devcontainer.json",
    ".devcontainer.json", ".husky/pre-commit", ".githooks/pre-push", "lefthook.yml", ".lefthook.toml", "lefthook-local.yml",
    ".pre-commit-config.yaml", ".env", "web/.env", ".envrc", ".crush.json", "crush.json", ".goosehints", ".amp/settings.json",
    "a.code-workspace", ".exrc", ".dir-locals.el",
]  # fmt: skip
PROGRAMS = [
    "calc.pyc", "pk/__pycache__/calc.cpython-311.pyc", "a.pyo", "calc.cpython-311-x86_64-linux-gnu.so", ".venv/lib/a.py", "venv/bin/a",
    "web/.venv/pyvenv.cfg", ".venv", "node_modules/.bin/jest", "web/node_modules/.bin/tsc", "python", "python3", "bin/python3.11",
    "tools/bin/node", "bin/npm", "pytest", "make", "bin/sh", "bin/bash", "git", "bin/cargo", "bin/go", "GNUmakefile", "rules.mk",
]  # fmt: skip


@pytest.mark.parametrize("status", ["A", "M"])
@pytest.mark.parametrize("path", [*STEERING, *PROGRAMS])
def test_what_steers_an_agent_or_runs_in_place_of_a_program_decides_what_runs(path: str, status: str) -> None:
    found = flags([Change(path, status)], "true")
    assert [(flag.kind, flag.weakens) for flag in found] == [(Kind.RUNS, True)] and path in what_runs(found)


def test_one_that_is_deleted_or_moved_decides_only_where_it_steered() -> None:
    assert said(Change(".claude/settings.json", "D")) == [(".claude/settings.json", Kind.RUNS, True)]
    assert said(Change("old.json", "R", old_path=".claude/settings.json")) == [("old.json", Kind.RUNS, True)]
    assert said(Change("calc.pyc", "D")) == []
    assert said(Change("web/bin", "A", link=True)) == [("web/bin", Kind.RUNS, True)]


@pytest.mark.parametrize(
    "path",
    [
        "claude/settings.json", "src/vscode/tasks.json", ".env.example", "env", "src/git", "go/main.go", "git/log.py", "bin/pythonic",
        "bin/tool", "src/make", "mk/rules.mk", "venv.md", "node_modules/a/b.js", "calc.pyi", "src/crush.jsonl",
    ],
)  # fmt: skip
def test_files_that_are_called_almost_so_do_not(path: str) -> None:
    assert flags([Change(path, "A")], "true") == ()


@pytest.mark.parametrize("path", ["CLAUDE.md", "web/AGENTS.md", "GEMINI.md", "QWEN.md", ".cursorrules", ".github/copilot-instructions.md"])
def test_instructions_to_agents_are_named_and_land(path: str) -> None:
    found = flags([Change(path, "A")], "true")
    assert [(flag.kind, flag.weakens) for flag in found] == [(Kind.INSTRUCTIONS, False)] and what_runs(found) == ""


@pytest.mark.parametrize(
    ("gate", "runs"),
    [
        ("cd pk && python3 -m unittest", True), ("make -C src/pk", True), ("make -Cpk", True), ("pytest --rootdir pk", True),
        ("pytest --rootdir=./pk", True), ("pytest pk/", True), ("cd $PWD/src/pk; pytest", True), ("cd src && cd pk && pytest", True),
        ("python3 src/pk/run.py", True), ("python3 -m unittest discover -s src/pk", True), ("cd src/old/../pk && pytest", True),
        ("pytest", False), ("python3 -m pk", False), ("pytest --cov=pk", False), ("cd src && pytest", False), ("cd apk && pytest", False),
    ],
)  # fmt: skip
def test_a_module_in_a_package_decides_what_runs_where_the_gate_names_its_directory(gate: str, runs: bool) -> None:
    assert said(Change("src/pk/argparse.py", "A", in_package=True), gate=gate) == [("src/pk/argparse.py", Kind.RUNS, True)] * runs


@pytest.mark.parametrize("path", ["nightcrew.toml", "sitecustomize.py"])
def test_one_that_goes_or_is_changed_does_too(path: str) -> None:
    for change in (Change("kept", "R", old_path=path), Change(path, "D"), Change(path, "M")):
        assert said(change) == [(change.path, Kind.RUNS, True)]


@pytest.mark.parametrize(
    "change",
    [
        Change("argparse.py", "M"), Change("app/types.py", "A", in_package=True), Change("new/types.py", "A", in_new_folder=True),
        Change("argparse.md", "A"), Change("json/data.py", "A"), Change("calc.py", "A"), Change("bin/profile", "A"),
        Change("docs/nightcrew.toml", "A"),
    ],
)  # fmt: skip
def test_other_files_of_such_names_do_not(change: Change) -> None:
    assert flags([change], "make test") == () and what_runs(()) == ""


def test_a_link_of_such_a_name_does() -> None:
    assert said(Change("json", "A", link=True)) == [("json", Kind.RUNS, True)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--co"\n'),
        ("package.json", '{"scripts": {"test": "true"}}'),
        ("setup.cfg", "[tool:pytest]\naddopts = --co\n"),
    ],
)
def test_a_new_file_that_says_how_tests_run_weakens_them_where_they_ran_before(path: str, text: str) -> None:
    change = Change(path, "A", added=tuple(text.splitlines()), new_text=text)
    assert said(change) == [(path, Kind.CONFIG, True)]
    plain = {"pyproject.toml": '[project]\nname = "a"\n', "package.json": '{"name": "a"}', "setup.cfg": "[metadata]\nname = a\n"}[path]
    assert said(Change(path, "A", added=tuple(plain.splitlines()), new_text=plain)) == []
    if path != "setup.cfg":
        assert said(replace(change, in_new_folder=True)) == [(path, Kind.CONFIG, False)]


def test_what_ends_the_process_of_a_test_is_seen_in_any_file() -> None:
    assert said(changed("calc.py", added=("import os", "os._exit(0)"))) == [("calc.py", Kind.CODE, True)]
    assert said(changed("calc.py", removed=("os._exit(0)",), added=("os._exit(1)",))) == []


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("os.execv('/bin/true', ['true'])", 1), ("os.execlpe(a)", 1), ("os.kill(os.getpid(), 9)", 1), ("os.killpg(os.getpgrp(), 9)", 1),
        ("os.abort()", 1), ("signal.raise_signal(9)", 1), ("from os import path, _exit", 1), ("process.kill(process.pid, 9)", 1),
        ("process.abort()", 1), ("os.kill(child, 9)", 0), ("os.executable", 0), ("macos.abort()", 0), ("self._exit()", 0),
        ("from os import path", 0),
    ],
)  # fmt: skip
def test_other_lines_that_end_a_process_are_seen_too(line: str, ends: int) -> None:
    assert said(changed("calc.py", added=(line,))) == [("calc.py", Kind.CODE, True)] * ends


@pytest.mark.parametrize(
    "path", [".cargo/config.toml", "web/.cargo/config.toml", ".mvn/maven.config", ".npmrc", "rust-toolchain.toml", "rules.mk"]
)
def test_what_steers_a_program_that_runs_tests_is_configuration(path: str) -> None:
    assert [weakens for _, _, weakens in said(Change(path, "A"), gate="./make check")] == [True]
