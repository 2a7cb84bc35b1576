"""Find the changes of a result that bear on the gate that judges it. Pure."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import posixpath
import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.kernel.format import many

# Gate lines
# ----------
# What single lines of tests say, in the languages that agents write most: which test begins here, which is skipped, what is
# asserted.
#
# Every expression is tried on the first LINE_MAX characters of a line and looks at each once: the lines are a stranger's. Pure.


LINE_MAX = 500

_BEGINS = (
    re.compile(r"[ \t]*(?:async )?def (test\w*)"),
    re.compile(r"func ((?:Test|Benchmark|Fuzz|Example)\w*)\("),
    re.compile(r"[ \t]*(?:it|test|specify|scenario|@test)(?:\.\w+)? ?\(?[ \t]*['\"`]([^'\"`]+)"),
    re.compile(r"[ \t]*(?:public )?function (test\w+)\("),
    re.compile(r"TEST(?:_F|_P)?\((\w+,[ \t]*\w+)\)"),
)
_MARKS = re.compile(r"[ \t]*(?:#\[(?:\w+::)?test\]|@(?:Parameterized)?Test\b|\[(?:Fact|Theory|Test|TestMethod)\b)")
"""A mark on the line before a test."""
_SKIPS = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|xfail|importorskip)|unittest\.(?:skip|expectedFailure)|@skip\b|self\.skipTest\("
    r"|raise SkipTest|__test__ = False|\b(?:it|test|describe|context|suite)\.(?:skip|only|todo|failing)\b"
    r"|\b(?:xit|xtest|xdescribe|xcontext|fit|fdescribe)[ (]|\bt\.Skip(?:f|Now)?\(|^//(?:go:build|[ \t]?\+build) ignore|#\[ignore"
    r"|@Disabled\b|@Ignore\b|\bAssume\.|assumeTrue\(|\[(?:Fact|Theory)\(Skip|\[(?:Ignore|Explicit)\b|markTest(?:Skipped|Incomplete)\("
    r"|GTEST_SKIP\(|\bDISABLED_|@(?:module|describe)?tag :skip|,[ \t]*(?:skip|pending):?[ \t]*(?:=>)?[ \t]*(?:true|['\"])"
    r"|^[ \t]*(?:skip|pending)[ \t]*(?:$|\(?['\"])|^exit 0\b|collect_ignore|deselect\b|--ignore[= ]|norecursedirs"
)
_ASSERTS = re.compile(
    r"[ \t]*(?:assert\b|self\.assert\w+|self\.fail\(|with pytest\.raises|pytest\.raises\(|expect\("
    r"|assert_\w+|assert(?:[A-Z]\w*)?!?\(|refute\b|assert\.\w+\(|require\.\w+\(|t\.(?:Error|Fatal)f?\(|Assert\.\w+|\$this->assert\w+"
    r"|(?:EXPECT|ASSERT)_\w+\(|should\b|\w+\.should\b|set -[a-z]*e|(?:\[\[?|test) [^|]*\|\| *(?:exit|return|fail|die)\b)"
)
_TRUE = r"(?:True|true|TRUE|1|not False)"
_EMPTY_ASSERTS = re.compile(
    rf"[ \t]*(?:assert {_TRUE}|(?:self\.|\$this->|Assert\.)?(?:assert|Is)?True\({_TRUE}\)|expect\(true\)\.to(?:Be|Equal)\(true\)"
    rf"|expect\(true\)\.to (?:be|eq)(?:_truthy|\(true\)| true)|assert!\(true\)|assert\.ok\(true\)|(?:assert|require)\.True\(t, true\)"
    rf"|(?:EXPECT|ASSERT)_TRUE\(true\)|assert [^#]* or True)[ \t;]*(?:$|#|//)"
)
_EXITS = re.compile(
    r"\bos\.(?:_exit|abort|exec[lv]\w*)\b|\bfrom os import [^#]*\b(?:_exit|abort|exec[lv]\w*)\b|\bos\.kill(?:pg)?\(\s?os\.getp(?:id|grp)\("
    r"|\bsignal\.raise_signal\b|\breallyExit\(|\bprocess\.(?:abort\(|kill\(process\.pid\b)|getRuntime\(\)\.halt\("
)


def _cut(lines: Iterable[str]) -> Iterable[str]:
    return (line[:LINE_MAX] for line in lines)


def tests(lines: Iterable[str]) -> list[str]:
    """The tests that begin in these lines, by their names; one that has a mark and no name that is known is `test`."""
    found = []
    for line in _cut(lines):
        named = next((match for pattern in _BEGINS if (match := pattern.match(line))), None)
        if named is not None:
            found.append(named.group(1))
        elif _MARKS.match(line):
            found.append("test")
    return found


def marks(lines: Iterable[str]) -> bool:
    """Whether one of them marks a test: where a language has tests amid its code."""
    return any(_MARKS.match(line) or "#[ignore" in line for line in _cut(lines))


def skips(lines: Iterable[str]) -> int:
    """Lines that keep a test from running or from counting."""
    return sum(bool(_SKIPS.search(line)) for line in _cut(lines))


def asserts(lines: Iterable[str]) -> int:
    """Lines that assert something, but for those that cannot fail."""
    return sum(bool(_ASSERTS.match(line)) and not _EMPTY_ASSERTS.match(line) for line in _cut(lines))


def empty_asserts(lines: Iterable[str]) -> int:
    """Assertions that cannot fail."""
    return sum(bool(_EMPTY_ASSERTS.match(line)) for line in _cut(lines))


def exits(lines: Iterable[str]) -> int:
    """Lines that end their process at once, so that nothing after them fails."""
    return sum(bool(_EXITS.search(line)) for line in _cut(lines))


# Gate files
# ----------
# Find the changes of a result that bear on the gate that judges it: tests, their configuration, CI files, lock files, what runs.
# Pure.
#
# An agent that may change what judges it can pass by changing that. A flag names the change, and says whether it likely lets pass
# what did not pass before. People see flags first. A train runs a weakened gate once more with the base's files, and takes no
# result that changes what runs (`Kind.RUNS`) before a person accepted it.


class Kind(StrEnum):
    """What was changed."""

    TEST = "test"
    CONFIG = "test configuration"
    BUILD = "what the gate runs"
    CI = "CI"
    LOCK = "lock file"
    GIT = "git's own file"
    RUNS = "what decides what runs"
    """A project file of nightcrew, a file that a program loads although nothing names it, or one that steers an agent or an editor."""
    INSTRUCTIONS = "instructions to agents"
    CODE = "code that ends its process"


RESTORED = frozenset({Kind.TEST, Kind.CONFIG, Kind.BUILD, Kind.CI, Kind.GIT, Kind.RUNS})
"""Kinds of files that a gate can be run with as the base has them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file's, between two commits. Names as `os.fsdecode` text, lines as text whose bad bytes are replaced."""

    path: str
    """In the newer commit; of a file that is gone, where it was."""
    status: str
    """`A` added, `M` changed, `D` gone, `R` renamed, `T` another kind of file."""
    old_path: str = ""
    """Of one that was renamed."""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    old_text: str | None = None
    """Of files for which `wants_text` holds, where they are small."""
    new_text: str | None = None
    cut: bool = False
    """It is larger than what was read: the lines are not all."""
    link: bool = False
    """It is a symbolic link or a submodule now."""
    in_package: bool = False
    """Its directory was a package of Python before (`__init__.py`), so its modules had other names than the interpreter's own."""
    in_new_folder: bool = False
    """Its directory is new: nothing that the gate runs knows it."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that whoever judges a result should see first."""

    path: str
    kind: Kind
    why: str
    weakens: bool
    """It likely lets pass what did not pass before."""


def _table(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_TESTS = _table(
    """
    test_*.py *_test.py *_test.go *.test.[jt]s *.test.[jt]sx *.spec.[jt]s *.spec.[jt]sx *.test.[cm][jt]s *Test.java *Tests.java
    *Test.kt *Tests.cs *Test.cs *_spec.rb *_test.rb *Test.php *_test.exs *_test.rs *_test.c *_test.cc *_test.cpp *.bats *.cy.[jt]s
    *.cy.[jt]sx
    """
)
_TEST_FOLDERS = frozenset({"tests", "test", "__tests__", "spec", "specs"})
_CONFIG = _table(
    """
    conftest.py pytest.ini .pytest.ini tox.ini .coveragerc mypy.ini .mypy.ini ruff.toml .ruff.toml .flake8 .pylintrc
    pyrightconfig.json jest.config.* vitest.config.* vitest.workspace.* karma.conf.* playwright.config.* cypress.config.*
    .mocharc* .eslintrc* eslint.config.* .eslintignore biome.json* tsconfig*.json .nycrc* babel.config.* .golangci.* clippy.toml
    .clippy.toml rustfmt.toml .rspec .rubocop.yml phpunit.xml* phpstan.neon* sonar-project.properties codecov.yml .codecov.yml
    noxfile.py testng.xml checkstyle.xml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs bunfig.toml .babelrc* .swcrc
    .taprc ava.config.* .bazelrc .tool-versions mise.toml .mise.toml rust-toolchain rust-toolchain.toml
    """
)
_CONFIG_PATHS = (".cargo/config", ".cargo/config.toml", "*/.cargo/config", "*/.cargo/config.toml", ".mvn/*")
_PROJECT = ("nightcrew.toml", ".worktreeinclude")
_START = _table("sitecustomize.py usercustomize.py sitecustomize/* usercustomize/* *.pth")
"""Files that an interpreter loads by itself when it starts."""
_STEERING_FOLDERS = frozenset(
    _table(
        """
    .claude .codex .opencode .gemini .qwen .cursor .amp .crush .goose .kiro .roo .continue .windsurf .vscode .idea .run .zed .devcontainer
    .husky .githooks
    """
    )
)
_STEERING = _table(
    """
    .mcp.json opencode.json opencode.jsonc .aider.conf.yml .aider.conf.yaml .crush.json crush.json .goosehints .devcontainer.json
    *.code-workspace .exrc .nvimrc .nvim.lua .dir-locals.el lefthook.* lefthook-local.* .lefthook.* .lefthook-local.*
    .pre-commit-config.yaml .pre-commit-config.yml .env .env.local .envrc
    """
)
"""Agents, editors, hook managers and shells obey these files in whatever directory a person opens. Compared in lower case."""
_INSTRUCTIONS = _table("claude.md claude.local.md agents.md agents.override.md gemini.md qwen.md .cursorrules copilot-instructions.md")
_COMPILED = _table("*.pyc *.pyo *.pyd *.so *.node *.class *.jar")
_INSTALLED = ("/.venv/", "/venv/", "/node_modules/.bin/")
_PROGRAM = re.compile(r"(?:(?:.*/)?bin/)?(?:python|python3|python3\.\d+t?|node|npm|npx|pytest|make|sh|bash|git|cargo|go)")
"""Names of programs that tests and gates run: in a `bin` directory, or at the root."""
_MAKE_FIRST = re.compile(r"GNUmakefile|[^/]*\.mk")
"""At the root: `make` reads the first instead of `Makefile`, and a `Makefile` includes the others."""
_IMPORTED = sys.stdlib_module_names | frozenset(
    _table(
        """
    pytest _pytest py pluggy iniconfig packaging exceptiongroup tomli coverage pytest_cov pytest_asyncio pytest_timeout pytest_django
    pytest_mock xdist execnet hypothesis nose nose2 tox nox mypy mypy_extensions ruff flake8 pycodestyle pyflakes pylint astroid isort black
    bandit behave robot mock freezegun responses parameterized tap
    """
    )
)
"""Modules that Python or what runs tests imports by these names: a file of that name comes before them where the gate runs."""
_MODULE = re.compile(r"(?:py|pyc|pyd|so|(?:cpython|abi)[\w.-]*\.(?:so|pyd))")
"""Endings of a module's file, after its name and a dot."""
_MIXED = ("pyproject.toml", "setup.cfg", "package.json", "Cargo.toml")
_MIXED_KEYS = {
    "pyproject.toml": _table(
        "tool.pytest tool.coverage tool.mypy tool.ruff tool.pyright tool.tox tool.nox tool.pylint tool.hatch tool.poe tool.pdm tool.taskipy"
        " project.entry-points"
    ),
    "package.json": _table("scripts jest eslintConfig mocha nyc ava c8 lint-staged"),
    "Cargo.toml": ("lints", "test", "profile.test", "workspace.lints"),
}
_TOOL_SECTION = re.compile(r"\[(?:tool:pytest|mypy|flake8|pylint|coverage:|tox:|aliases|options\.entry_points)")
"""Sections of setup.cfg that configure tests and checks."""
_MAKE = _table("Makefile makefile GNUmakefile Makefile.* makefile.* GNUmakefile.* *.mk *.mak *.make")
"""Its own, and what it includes, by how people call that."""
_BUILD = {
    "make": _MAKE,
    "gmake": _MAKE,
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "gradle": ("build.gradle", "build.gradle.kts"),
    "gradlew": ("build.gradle", "build.gradle.kts", "gradlew"),
    "mvn": ("pom.xml",),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
}
_SCRIPTS = _table(
    """
    *test*.sh *check*.sh *lint*.sh *verify*.sh ci.sh run_tests* run-tests* runtests* script/test script/check scripts/test scripts/check
    bin/test bin/check
    """
)
"""Programs that what the gate runs may run in turn, by how people call them."""
_CI = _table(
    """
    .github/workflows/* .github/actions/* .gitlab-ci.yml .gitlab/ci/* .circleci/* Jenkinsfile* azure-pipelines*.yml .buildkite/*
    .travis.yml .drone.yml .woodpecker* bitbucket-pipelines.yml .cirrus.yml .ci/* appveyor.yml buildspec.yml cloudbuild.yaml
    """
)
_LOCKS = _table(
    """
    uv.lock poetry.lock pdm.lock Pipfile.lock requirements*.txt package-lock.json npm-shrinkwrap.json pnpm-lock.yaml yarn.lock
    bun.lock* Cargo.lock go.sum Gemfile.lock composer.lock flake.lock mix.lock
    """
)
_GIT = (".gitattributes", ".gitmodules", ".gitignore")
TEXT_MAX = 2**18
"""Bytes of a file whose whole text is compared."""


def is_test(path: str) -> bool:
    """Whether test programs would take the file for one of tests, by its name."""
    *above, name = path.split("/")
    return _matches(name, _TESTS) or (bool(_TEST_FOLDERS & set(above)) and not _matches(name, _CONFIG) and "." in name)


def wants_text(path: str) -> bool:
    """Whether `flags` compares the whole text of the file."""
    return path.rpartition("/")[2] in _MIXED_KEYS


def wants_folder(path: str) -> bool:
    """Return whether `flags` needs `Change.in_package` and `Change.in_new_folder` of the file when it is new."""
    return wants_text(path) or _shadowed(path) != ""


def flags(changes: Iterable[Change], gate: str = "") -> tuple[Flag, ...]:
    """What of these changes bears on `gate`, a command as a person would type it: what weakens it first, then by path."""
    found = list(changes)
    here = Counter(name for change in found for name in tests(change.added) if _holds_tests(change))
    words = _words(gate)
    entered = _entered(gate)
    all_flags = [flag for change in found for flag in _of(change, words, entered, here)]
    return tuple(sorted(all_flags, key=lambda flag: (not flag.weakens, flag.path, flag.kind)))


def what_runs(found: Iterable[Flag]) -> str:
    """Return why a person has to accept a result with these flags before it lands: it changes what runs next. Empty if it does not."""
    said = [f"{flag.path} {flag.why}" for flag in found if flag.kind is Kind.RUNS]
    return f"it changes what runs here: {'; '.join(said[:3])}" if said else ""


def _of(change: Change, words: Sequence[str], entered: frozenset[str], elsewhere: Counter[str]) -> Iterator[Flag]:
    name, where = change.path.rpartition("/")[2], change.old_path or change.path
    ran = _ran_by(where, words)
    if runs := _what_runs(change, entered):
        yield Flag(change.path, Kind.RUNS, runs, weakens=True)
    elif ran or _matches(name, [one for word in words for one in _BUILD.get(word.rpartition("/")[2], ())]):
        yield Flag(change.path, Kind.BUILD, f"{_verb(change)} what the gate runs", weakens=True)
    elif _matches(name, _CONFIG) or _matches(change.path, _CONFIG_PATHS) or _matches(where, _CONFIG_PATHS):
        yield Flag(change.path, Kind.CONFIG, f"{_verb(change)} how tests or checks run", weakens=True)
    elif change.status != "A" and (_matches(name, _SCRIPTS) or _matches(where, _SCRIPTS)):
        yield Flag(change.path, Kind.BUILD, f"{_verb(change)} what the gate may run", weakens=True)
    elif _matches(name, _MIXED):
        yield from _mixed(change, name)
    elif _matches(change.path, _CI) or _matches(where, _CI):
        yield Flag(change.path, Kind.CI, f"{_verb(change)} a CI file", weakens=change.status != "A")
    elif _matches(name, _LOCKS):
        yield Flag(change.path, Kind.LOCK, f"{_verb(change)} a lock file", weakens=False)
    elif _matches(name, _GIT) or _matches(change.path, _GIT):
        yield Flag(change.path, Kind.GIT, f"{_verb(change)} what git does here", weakens=False)
    elif _holds_tests(change):
        yield from _tests(change, elsewhere)
    if (ends := exits(change.added) - exits(change.removed)) > 0:
        yield Flag(change.path, Kind.CODE, f"{many(ends, 'line')} more that ends its process at once, and the gate's with it", weakens=True)
    if _matches(name.lower(), _INSTRUCTIONS):
        yield Flag(change.path, Kind.INSTRUCTIONS, f"{_verb(change)} what agents are told here", weakens=False)


def _what_runs(change: Change, entered: frozenset[str]) -> str:
    """Return why the change decides what runs; empty if it does not. `entered` comes from `_entered`."""
    for path in filter(None, (change.path, change.old_path)):
        name = path.rpartition("/")[2]
        if path in _PROJECT:
            return f"{_verb(change)} a file that says what runs"
        if _matches(name, _START) or _matches("/".join(path.split("/")[-2:]), _START):
            return f"{_verb(change)} a file that an interpreter loads when it starts"
        if _matches(name.lower(), _STEERING) or not _STEERING_FOLDERS.isdisjoint(path.lower().split("/")):
            return f"{_verb(change)} a file that steers an agent, an editor or a hook"
    if change.status != "D" and _is_program(change):
        return f"{_verb(change)} a program that may run in place of another"
    shadowed = _shadowed(change.path, link=change.link) if change.status not in "MD" else ""
    if not shadowed or change.in_new_folder or (change.in_package and not _is_entered(folder_of(change.path), entered)):
        return ""
    return f"{_verb(change)} a module that is imported in place of {shadowed}"


def _is_program(change: Change) -> bool:
    name = change.path.rpartition("/")[2]
    if change.link and name in ("bin", "node_modules"):
        return True
    return bool(
        _matches(name, _COMPILED)
        or any(folder in f"/{change.path}/" for folder in _INSTALLED)
        or _PROGRAM.fullmatch(change.path)
        or _MAKE_FIRST.fullmatch(change.path)
    )


_NO_PATH = re.compile(r"[^\w./@+-]+")
_OPTION = re.compile(r"^-\w(?=.)")
"""Its value follows in the same word."""
_NAMES_MODULE = re.compile(r"(?:^|\s)(?:-m\s*|--cov(?:=|\s+))[\w.]+")


def _entered(gate: str) -> frozenset[str]:
    """The directories that the text of `gate` names, and those of the files that it names: it may run there."""
    words = [_OPTION.sub("", word).lstrip("/") for word in _NO_PATH.split(_NAMES_MODULE.sub(" ", gate))]
    named = {posixpath.normpath(word) for word in words if word}
    return frozenset(named | {posixpath.dirname(word) for word in named}) - {"", "."}


def _is_entered(folder: str, entered: frozenset[str]) -> bool:
    """Return whether the gate may run in `folder`. The last parts of a name suffice: a gate may enter one directory after the other, or
    name a longer path than the repository has."""
    return any(f"/{folder}".endswith(f"/{word}") or f"/{word}".endswith(f"/{folder}") for word in entered)


def folder_of(path: str) -> str:
    """The directory in which the file is a module or says how its package is tested; empty: the root."""
    above, _, name = path.rpartition("/")
    return above.rpartition("/")[0] if name.startswith("__init__.") else above


def _shadowed(path: str, *, link: bool = False) -> str:
    """The module of Python or of what runs tests that is not found any more where the file is looked for first; empty: none."""
    above, _, name = path.rpartition("/")
    module, _, ending = name.partition(".")
    if module == "__init__":
        module, is_module = above.rpartition("/")[2], bool(_MODULE.fullmatch(ending))
    else:
        is_module = bool(_MODULE.fullmatch(ending)) or (link and not ending)
    return module if is_module and module in _IMPORTED else ""


def _holds_tests(change: Change) -> bool:
    return is_test(change.path) or is_test(change.old_path) or _has_tests_amid(change)


def _has_tests_amid(change: Change) -> bool:
    """In Rust tests stand beside what they test."""
    return change.path.endswith(".rs") and marks((*change.removed, *change.added))


def _tests(change: Change, elsewhere: Counter[str]) -> Iterator[Flag]:
    """What became of the tests of one file. A test that another file has now was moved."""
    before, after = Counter(tests(change.removed)), Counter(tests(change.added))
    gone = sum((before - after - (elsewhere - after)).values())
    if change.status == "D" and (gone or not before):
        yield Flag(change.path, Kind.TEST, f"deletes a file of {many(gone, 'test') if gone else 'tests'}", weakens=True)
        return
    if change.old_path and not is_test(change.path):
        yield Flag(change.path, Kind.TEST, f"{change.old_path} has a name now that no test program looks for", weakens=True)
    if gone:
        yield Flag(change.path, Kind.TEST, f"deletes or renames {many(gone, 'test')}", weakens=True)
    if (skipped := skips(change.added) - skips(change.removed)) > 0:
        why = f"{many(skipped, 'line')} more that keep tests from running"
        yield Flag(change.path, Kind.TEST, why, weakens=change.status != "A")  # of a new file no test ran before
    if (empty := empty_asserts(change.added) - empty_asserts(change.removed)) > 0:
        yield Flag(change.path, Kind.TEST, f"{many(empty, 'assertion')} that cannot fail", weakens=True)
    fewer = asserts(change.removed) - asserts(change.added)
    if fewer > 0 and not before - after and change.status != "D":
        yield Flag(change.path, Kind.TEST, f"{many(fewer, 'assertion')} fewer", weakens=True)
    if change.cut:
        yield Flag(change.path, Kind.TEST, "too large to be read through", weakens=True)


def _mixed(change: Change, name: str) -> Iterator[Flag]:
    """A file that has more in it than what tests and checks need: only that part counts, where it can be read."""
    keys, is_new = _MIXED_KEYS.get(name), change.status == "A"
    old = {} if is_new else _parsed(name, change.old_text)
    new = _parsed(name, change.new_text)
    if keys is None or old is None or new is None:
        if not is_new or keys is not None or any(_TOOL_SECTION.match(line) for line in change.added):
            yield Flag(change.path, Kind.CONFIG, f"{_verb(change)} a file that may say how tests run", weakens=True)
        return
    differ = [key for key in keys if _at(old, key) != _at(new, key)]
    if differ:
        yield Flag(change.path, Kind.CONFIG, f"{'sets' if is_new else 'changes'} {', '.join(differ)}", weakens=not change.in_new_folder)


def _parsed(name: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _at(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


_SPLIT = re.compile(r"[;&|()\n]+")
_INTERPRETERS = frozenset(
    {"sh", "bash", "zsh", "dash", "python", "python3", "node", "ruby", "perl", "php", "env", "time", "exec", "uv", "npx", "run"}
)


def _words(gate: str) -> list[str]:
    """The programs that it runs: the first word of each command, the file that an interpreter is given, the module after `-m`, and what
    `make` is to make, which it does not when there is a file of that name."""
    found: list[str] = []
    for part in _SPLIT.split(gate):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        found += _programs(words)
    return found


def _programs(words: Sequence[str]) -> Iterator[str]:
    """Of one command."""
    for number, word in enumerate(words):
        if word.startswith("-") or "=" in word:
            continue
        yield word
        name = word.rpartition("/")[2]
        if number and words[number - 1] == "-m":
            module = word.replace(".", "/")
            yield from (f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py")
        if name in ("make", "gmake"):
            yield from _made(words[number + 1 :])
        if name not in _INTERPRETERS:
            return


def _made(words: Sequence[str]) -> Iterator[str]:
    """The files that `make` with these words takes for what it is to make."""
    where = next((f"{folder}/" for option, folder in itertools.pairwise(words) if option in ("-C", "--directory")), "")
    yield from (f"{where}{word}".removeprefix("./") for word in words if not word.startswith("-") and "=" not in word)


def _ran_by(path: str, words: Sequence[str]) -> bool:
    return any(word.removeprefix("./") == path for word in words)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return _expression(tuple(patterns)).match(name) is not None


@functools.lru_cache(maxsize=64)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or "(?!)")


def _verb(change: Change) -> str:
    return {"A": "adds", "D": "deletes", "R": "renames"}.get(change.status, "changes")


# Diffs
# -----
# The difference of two commits as files, hunks and lines. Pure.


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that lie together. Text whose bad bytes are replaced, without line breaks, else as the file has it."""

    old: int
    """Number of its first line in the older file."""
    new: int
    lines: tuple[tuple[str, str], ...]
    """Each with its sign: `-` gone, `+` come, a space for one that both have."""
    bare: frozenset[int] = frozenset()
    """Places in `lines` of those that end their file without a line end."""

    def numbered(self) -> Iterator[tuple[int | None, int | None, str, str]]:
        """Number in the older file, in the newer file, sign and text of each line."""
        old, new = self.old, self.new
        for sign, text in self.lines:
            yield (old if sign != "+" else None, new if sign != "-" else None, sign, text)
            old += sign != "+"
            new += sign != "-"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What became of one file. Names as `os.fsdecode` text; modes and oids as git writes them."""

    path: str
    """In the newer commit; of a file that is gone, where it was."""
    status: str
    """`A` added, `M` changed, `D` gone, `R` renamed, `C` copied, `T` another kind of file."""
    old_path: str = ""
    """Of one that was renamed."""
    old_mode: str = ""
    new_mode: str = ""
    old_oid: str = ""
    new_oid: str = ""
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False
    cut: bool = False
    """It is larger than what was read: the lines are not all, or none."""

    def lines(self, sign: str) -> tuple[str, ...]:
        """Those with this sign."""
        return tuple(text for hunk in self.hunks for mark, text in hunk.lines if mark == sign)

    @property
    def crlf(self) -> bool:
        """Every line that is here ends with CR LF: it is how the file is written, and no line has to say it."""
        lines = [text for hunk in self.hunks for place, (_, text) in enumerate(hunk.lines) if place not in hunk.bare]
        return bool(lines) and all(text.endswith("\r") for text in lines)

    @property
    def what(self) -> str:
        """What is special about it, in a few words; empty: nothing."""
        kinds = {"120000": "symbolic link", "160000": "submodule"}
        return kinds.get(self.new_mode, kinds.get(self.old_mode, "")) or ("CRLF line ends" if self.crlf else "")

    @property
    def plus(self) -> int:
        """How many lines came."""
        return sum(mark == "+" for hunk in self.hunks for mark, _ in hunk.lines)

    @property
    def minus(self) -> int:
        """How many lines went."""
        return sum(mark == "-" for hunk in self.hunks for mark, _ in hunk.lines)
