"""Programs of a virtual environment that was copied from the one which a zygote preloaded from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents import zygote
from supervisor.kernel.errors import Refused
from supervisor.sandbox import exec_step
from tests.agents.zygote import kit
from tests.agents.zygote.kit import Warm
from worktrees.private_repository import Layers

PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
FINDER = """
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, "{tree}/flat/" + name + ".py") if name == "flat" else None
def install():
    sys.meta_path.append(Finder)
"""
"""As setuptools makes it for an editable install of a flat layout."""
ASKS = """
import os, sys, sysconfig
import heavy, flat
from heavy import late
here = sys.prefix.rsplit("/", 1)[0] + "/"
print("warm" if heavy.PID != os.getpid() else "cold", late.TEXT, flat.TEXT, late.__file__.startswith(here), flat.__file__.startswith(here),
      "psutil" in sys.modules, sysconfig.get_path("purelib").startswith(here), len([p for p in sys.path if "site-packages" in p]))
"""


def venv(tree: Path) -> Path:
    """An environment in `tree`; its packages."""
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", "--symlinks", tree / "venv"], check=True)
    packages = tree / "venv" / PACKAGES
    for name, text in {
        f"venv/{PACKAGES}/heavy/__init__.py": "import os, sysconfig\nPID = os.getpid()\nsysconfig.get_config_vars()\n",
        f"venv/{PACKAGES}/heavy/late.py": "TEXT = 'late'\n",
        f"venv/{PACKAGES}/heavy-1.0.dist-info/METADATA": "Name: heavy\n",
        f"venv/{PACKAGES}/threads.py": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
        f"venv/{PACKAGES}/uses_ours.py": "import psutil\n",
        f"venv/{PACKAGES}/agents/__init__.py": "",
        f"venv/{PACKAGES}/outside.py": "import sys\nsys.path.append(__file__.split('/venv/')[0] + '/flat')\nimport flat\n",
        f"venv/{PACKAGES}/__editable___finder.py": FINDER.format(tree=tree),
        f"venv/{PACKAGES}/__editable__.pth": "import __editable___finder; __editable___finder.install()\n",
        "flat/flat.py": "TEXT = 'flat'\n",
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return packages


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("template") / "files"
    venv(tree)
    return tree


@pytest.fixture(scope="module")
def preloaded(template: Path) -> Iterator[zygote.Place]:
    with kit.living(zygote.Wanted(("heavy",), (str(template / "venv" / PACKAGES),))) as made:
        yield made


@pytest.fixture
def warm(preloaded: zygote.Place, tmp_path: Path, compiled_client: Path) -> Iterator[Warm]:
    with kit.attempts(tmp_path) as lab:
        yield Warm(preloaded, compiled_client, lab)


def copied(template: Path, tree: Path) -> Path:
    """As a backend makes an environment of a template: files that name its path name the other one. Its packages."""
    shutil.copytree(template, tree, symlinks=True)
    for file in tree.rglob("*"):
        if file.is_file() and not file.is_symlink() and str(template) in (text := file.read_text()):
            file.write_text(text.replace(str(template), str(tree)))
    return tree / "venv" / PACKAGES


def replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "nothing": ("warm late flat True True False True 1", lambda _: None),
    "compiled files": ("warm late flat True True False True 1", lambda packages: (packages / "__pycache__").mkdir(exist_ok=True)),
    "a module not preloaded": ("warm new flat True True False True 1", lambda packages: replace(packages / "heavy/late.py", "late", "new")),
    "the repository": (
        "warm late mine True True False True 1",
        lambda packages: replace(packages.parents[3] / "flat/flat.py", "flat", "mine"),
    ),
    "a preloaded module": (
        "cold late flat True True False True 1",
        lambda packages: replace(packages / "heavy/__init__.py", "getpid()\n", "getpid();"),
    ),
    "one preloaded is gone": ("ModuleNotFoundError", lambda packages: shutil.rmtree(packages / "heavy")),
    "another version": (
        "cold late flat True True False True 1",
        lambda packages: (packages / "heavy-1.0.dist-info").rename(packages / "heavy-2.0.dist-info"),
    ),
    "something installed": ("cold late flat True True False True 1", lambda packages: (packages / "more.py").touch()),
    "how it starts": (
        "cold late flat True True False True 1",
        lambda packages: replace(packages.parents[2] / "pyvenv.cfg", "command", "x"),
    ),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_was_preloaded_serves_the_same_files_alone(warm: Warm, template: Path, tmp_path: Path, changed: str) -> None:
    expected, change = CHANGES[changed]
    packages = copied(template, tmp_path / "worktree")
    change(packages)
    (tmp_path / "asks.py").write_text(ASKS)
    attempt = warm.attempt(str(packages.parents[2] / "bin" / "python"), "asks.py", cwd=str(tmp_path))
    warm.run(attempt)
    assert expected in (attempt.read("stdout.log") + attempt.read("stderr.log")).decode()


@pytest.mark.root
@pytest.mark.parametrize(("written", "how"), [(False, "warm"), (True, "cold")])
def test_an_overlay_shows_the_same_files_until_one_is_written(
    warm: Warm, template: Path, tmp_path: Path, how: str, *, written: bool
) -> None:
    tree, upper = tmp_path / "worktree", tmp_path / "upper"
    for folder in (tree, upper / "venv", tmp_path / "work"):
        folder.mkdir(parents=True)
    config = (template / "venv" / "pyvenv.cfg").read_text()
    (upper / "venv" / "pyvenv.cfg").write_text(config.replace(str(template), str(tree)))
    try:
        exec_step.new_mount("overlay", tree, Layers("overlay", str(template), str(upper), str(tmp_path / "work")).options(user=False))
    except OSError as error:
        pytest.skip(f"no overlay can be mounted here: {error.strerror}")
    try:
        if written:
            replace(tree / "venv" / PACKAGES / "heavy" / "__init__.py", "import os,", "import os ,")
        (tmp_path / "asks.py").write_text("import heavy, os; print('warm' if heavy.PID != os.getpid() else 'cold')")
        assert warm.lines(warm.attempt(str(tree / "venv" / "bin" / "python"), str(tmp_path / "asks.py"))) == [how]
    finally:
        exec_step.unmount(tree, lazy=True)


def test_the_template_s_own_programs_are_served(warm: Warm, template: Path, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    attempt = warm.attempt(str(template / "venv" / "bin" / "python"), "-B", str(tmp_path / "asks.py"))
    assert warm.lines(attempt) == ["warm late flat True True False True 1"]


def test_one_that_shares_the_packages_of_its_base_is_started_cold(tmp_path: Path, compiled_client: Path) -> None:
    packages = venv(tmp_path / "tree")
    replace(packages.parents[2] / "pyvenv.cfg", "packages = false", "packages = true")
    (tmp_path / "asks.py").write_text("import heavy, os; print('warm' if heavy.PID != os.getpid() else 'cold')")
    with kit.living(zygote.Wanted(("heavy",), (str(packages),))) as place, kit.attempts(tmp_path) as lab:
        warm = Warm(place, compiled_client, lab)
        assert warm.lines(warm.attempt(str(packages.parents[2] / "bin" / "python"), "-s", str(tmp_path / "asks.py"))) == ["cold"]


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("flat", "No module named 'flat'"),
        ("outside", "flat/flat.py is not among the packages of the environment"),
        ("uses_ours", "No module named 'psutil'"),
        ("agents", "nightcrew's own process has a package of this name"),
        ("threads", "importing it started 1 more thread"),
    ],
)
def test_what_is_not_the_environment_s_is_refused(template: Path, module: str, why: str) -> None:
    with pytest.raises(Refused) as refused, kit.living(zygote.Wanted(("heavy", module), (str(template / "venv" / PACKAGES),))):
        pass
    assert "cannot be preloaded" in refused.value.why and why in refused.value.why


def test_a_program_of_our_own_environment_has_its_own_and_what_was_preloaded(warm: Warm) -> None:
    attempt = warm.program("import sys, click, supervisor; print('heavy' in sys.modules, sys.prefix)")
    assert warm.lines(attempt) == [f"True {sys.prefix}"]
