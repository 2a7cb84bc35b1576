"""The example of a package that extends nightcrew, installed into an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support import House, plan_of, shell_task

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "hello"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has nightcrew, its dependencies, and the example package."""
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    _do(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path), cwd=source)
    (wheel,) = tmp_path.glob("nightcrew_hello-*.whl")
    place = tmp_path / "environment"
    venv.create(place, symlinks=True)
    found = place / "bin" / "python"
    _do(Path(sys.prefix, "bin", "uv"), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", found, wheel)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return found


def _do(*argv: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in argv], cwd=cwd, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_package_adds_a_verb_a_request_a_kind_and_a_table(house: House, python: Path) -> None:
    def nightcrew(*words: str) -> str:
        return _do(python, "-I", "-m", "supervisor.cli.main", *words, cwd=house.repo, env=house.env)

    assert "Commands of other packages" in nightcrew("--help")
    nightcrew("up", "-d")
    assert nightcrew("hello", "you") == "hello you, 0 agents live\n"
    assert "An agent of the example package" in nightcrew("kinds", "ls")
    plan = house.plan(plan_of(['[[tasks]]\nid = "greet"\nkind = "greeter"\nprompt = "from a plan"\n', shell_task("other", "true")]))
    nightcrew("run", plan)
    assert "hello from a plan" in nightcrew("logs", "greet")
    program = "import json, sys; from supervisor.host.paths import home; from supervisor.views.web import records"
    program += "; print(json.dumps(records.more(home())))"
    page = _do(python, "-I", "-c", program, env=house.env)
    assert "Hello from a package" in page and "/greet" in page and "/other" in page


def test_without_such_a_package_nothing_of_it_is_there(house: House) -> None:
    done = house.run("hello")
    assert done.returncode == 2 and "no verb is called 'hello'" in done.stderr
    assert "Commands of other packages" not in house.ok("--help")
