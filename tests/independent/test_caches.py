"""An agent attacks a person's home and the caches of package managers in it, by every way that a process has to change files.

The author read the documentation (docs/environments.md, "Caches of package managers") and not the code. The person's home is a
temporary one. In tiers 1 and 2 nothing may change in it but the caches that the documentation calls "yours, writable". In tier 0,
which keeps nothing from an agent, the same program spoils all of it: so it can.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.support import House, make_repository, shell_task

# Files of a home, by what the documentation says of them.
OWN_CACHES = """.cache/pip .cache/uv .cache/go-build .cache/pnpm .cache/pypoetry .cache/yarn .npm .local/share/pnpm/store
.bun/install/cache""".split()  # noqa: SIM905
"""Caches in whose place the agents of a project have one of their own, and files of the person's in them."""
OWN_IN_CACHE = """.cache/pip/wheels/a/b.whl .cache/uv/archive-v0/x/y.py .cache/go-build/00/x-d .cache/pnpm/dlx/x/pkg .cache/pypoetry/x
.cache/yarn/v6/x""".split()  # noqa: SIM905
OWN_OUTSIDE = [
    ".npm/_npx/aa/node_modules/.bin/tool",
    ".npm/_cacache/index-v5/x",
    ".local/share/pnpm/store/v3/00/x",
    ".bun/install/cache/x/i.js",
]
SHOWN_IN_CACHE = """.cache/pre-commit/env/bin/python .cache/nightcrew/clients/bin/claude .cache/node/corepack/v1/pnpm.cjs
.cache/ms-playwright/chromium/chrome .cache/myprog/run.sh""".split()  # noqa: SIM905
NOT_THERE = [".cache/p10k-instant-prompt-me.zsh", ".cache/a-link"]
WRITABLE = {
    ".cargo/registry": "src/x/lib.rs",
    ".cargo/git": "db/x",
    "go/pkg/mod": "x@v1/x.go",
    ".m2/repository": "x.jar",
    ".nuget/packages": "x/x.dll",
    ".yarn/berry/cache": "x.zip",
    ".yarn/berry/index": "x",
    ".yarn/berry/metadata": "x",
}
"""The caches that are the person's and writable, and a file in each."""
STEERING = """.bashrc .profile .zshrc .bash_profile .gitconfig .npmrc .ssh/config .ssh/authorized_keys .python_history .pythonrc .tmux.conf
.config/fish/config.fish .config/pip/pip.conf .config/uv/uv.toml .config/git/config .local/bin/pip .local/share/uv/tools/x/bin/y
.local/lib/python3.11/site-packages/usercustomize.py .local/share/pnpm/pnpm .local/share/fish/history .cargo/bin/cargo .cargo/env
.cargo/config.toml go/bin/tool .m2/settings.xml .yarn/berry/other .yarnrc.yml .gradle/init.d/a.gradle .bun/bin/bun""".split()  # noqa: SIM905
FILES = [
    *OWN_IN_CACHE,
    *OWN_OUTSIDE,
    *SHOWN_IN_CACHE,
    NOT_THERE[0],
    *(f"{place}/{name}" for place, name in WRITABLE.items()),
    *STEERING,
]

ATTACK = r"""
import contextlib, ctypes, json, os, shutil, sys

ORDERS = json.loads(sys.argv[1])
HOME, WORK = os.environ["HOME"], os.getcwd()
RENAME_EXCHANGE, MNT_DETACH, MS_REMOUNT, MS_BIND = 2, 2, 32, 4096
libc = ctypes.CDLL(None, use_errno=True)
won = []


def attempt(name, act, *arguments):
    with contextlib.suppress(OSError, UnicodeError):
        act(*arguments)
        won.append(name)


def system(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def write(path, mode="w"):
    with open(path, mode) as file:
        file.write("EVIL")


def replace(path):
    os.replace(shutil.copy(WORK + "/evil", WORK + "/evil-copy"), path)


def write_by_hard_link(path):
    link = f"{WORK}/hard-{len(won)}"
    os.link(path, link)
    write(link, "a")


def change_parent(path):
    parent = os.path.dirname(path)
    os.rename(parent, parent + ".evil")
    os.mkdir(parent)
    write(path)


def spoil(path):
    parent, name = os.path.split(path)
    attempt("make the directory", os.makedirs, parent, 0o777, True)
    for root in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/" + os.path.relpath("/", WORK), ""):
        attempt("append", write, root + path, "a")
    attempt("chmod", os.chmod, path, 0o4777)
    attempt("hard link out", write_by_hard_link, path)
    attempt("hard link in", os.link, WORK + "/evil", path + ".hard")
    attempt("symbolic link", os.symlink, WORK + "/evil", path + ".link")
    attempt("create", write, parent + "/evil-new")
    attempt("long name", write, parent + "/" + "E" * 255)
    attempt("odd name", write, parent + "/EVIL\n\x1b[2J\udcff")
    attempt("other case", write, parent + "/" + name.swapcase())
    attempt("replace", replace, path)
    attempt("unlink", os.unlink, path)
    if parent != HOME:
        attempt("change the parent", change_parent, path)


def move(path):
    os.mkdir(WORK + "/exchange")
    attempt("exchange", system, "renameat2", -100, path.encode(), -100, (WORK + "/exchange").encode(), RENAME_EXCHANGE)
    os.rename(WORK + "/exchange", f"{WORK}/exchanged-{len(os.listdir(WORK))}")
    attempt("move", os.rename, path, path + ".evil")


def change_mounts(path):
    attempt("umount", system, "umount2", path.encode(), MNT_DETACH)
    attempt("bind", system, "mount", WORK.encode(), path.encode(), None, MS_BIND, None)
    attempt("remount", system, "mount", None, path.encode(), None, MS_REMOUNT | MS_BIND, None)


def go_deep(path):
    os.chdir(path)
    for _ in range(60):
        os.mkdir("D" * 250)
        os.chdir("D" * 250)
    write("EVIL")


write(WORK + "/evil")
seen = [name for name in ORDERS["files"] if os.path.lexists(f"{HOME}/{name}")]
for name in ORDERS["files"]:
    spoil(f"{HOME}/{name}")
for name in ORDERS["places"]:
    if ORDERS["confined"]:  # in tier 0 root would really mount
        change_mounts(f"{HOME}/{name}")
    move(f"{HOME}/{name}")
for name in ORDERS["deep"]:
    attempt("deep", go_deep, f"{HOME}/{name}")
    os.chdir(WORK)
for path in ORDERS["elsewhere"]:
    attempt("write elsewhere", write, path)
print(json.dumps({"seen": seen, "won": sorted(set(won))}))
"""

WRITE_INTO = r"""
import contextlib, json, os, sys
written = []
for directory in json.loads(sys.argv[1]):
    with contextlib.suppress(OSError):
        with open(directory + "/EVIL", "a") as file:
            file.write("EVIL")
        written.append(directory)
print(json.dumps(written))
"""
"""Writes a file into each of the directories that it is told, and says where it could."""

LINK = r"""
import contextlib, json, os, sys
made = []
for link, target in json.loads(sys.argv[1]).items():
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(target, link)
        made.append(link)
print(json.dumps(made))
"""
"""Makes the links that it is told, and says which it could."""

Manifest = dict[str, tuple[object, ...]]


def manifest(top: Path) -> Manifest:
    """Return mode, inode, time, number of links and content of everything below a directory; links are not followed."""
    found: Manifest = {}
    for directory, names, file_names in os.walk(os.fsencode(top)):
        for name in (*names, *file_names):
            path = os.path.join(directory, name)  # bytes: an agent's names need not be UTF-8
            about = os.lstat(path)
            content = ""
            if stat.S_ISREG(about.st_mode):
                content = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            elif stat.S_ISLNK(about.st_mode):
                content = os.fsdecode(os.readlink(path))
            short = os.fsdecode(path).removeprefix(f"{top}/")
            found[short] = (about.st_mode, about.st_ino, about.st_mtime_ns, about.st_nlink, content)
    return found


def is_writable(name: str) -> bool:
    """Return whether a path in the home is one of the caches that agents may write."""
    return any(name == place or name.startswith(f"{place}/") for place in WRITABLE)


def changes(before: Manifest, after: Manifest) -> list[str]:
    """Name what differs."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def furnished(home: Path) -> Path:
    """Make a home with all the files."""
    files.private_dir(home)
    for name in FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("the person's\n")
    (home / NOT_THERE[1]).symlink_to(home / ".ssh")
    return home


@pytest.fixture
def place() -> Iterator[Path]:
    """Make a directory outside of /tmp, which is an agent's own in a sandbox, and outside of what a sandbox shows as nightcrew's program;
    in /tmp where no other can be written."""
    base = Path(__file__).resolve().parents[2] / ".hypothesis"  # ignored by git
    try:
        base.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="caches-", dir=base))
    except PermissionError:
        made = Path(tempfile.mkdtemp(prefix="caches-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


class Nightcrew:
    """A supervisor, a person's home, and a directory beside it that is nobody's business."""

    def __init__(self, place: Path) -> None:
        self.house = House(place, make_repository(place / "repo"))
        self.home = furnished(place / "person")
        self.beside = files.private_dir(place / "beside")
        files.private_dir(self.house.home.root)

    def task(self, name: str, tier: int, program: str, orders: object, params: Mapping[str, str] | None = None) -> str:
        """Return the table of a task that runs a program with orders, for this person."""
        command = [sys.executable, "-I", "-S", "-c", program, json.dumps(orders)]
        return shell_task(name, command, sandbox=tier, params={"HOME": str(self.home), **(params or {})})

    def run(self, *tasks: str, repository: Path | None = None) -> None:
        """Run tasks to their end."""
        self.house.run("run", self.house.plan("\n".join(tasks)), cwd=repository, timeout_s=300)

    def said(self, name: str) -> Any:
        """Return what the program of a task printed, which must have ended well."""
        assert self.house.state(name) == "done", self.house.account() + self.house.run("logs", "--stream", "stderr", name).stdout
        return json.loads(self.house.ok("logs", "--raw", name))

    def attack(self, tier: int) -> dict[str, list[str]]:
        """Run the whole attack, and return what it saw and won."""
        unique = f"nightcrew-evil-{uuid.uuid4().hex}"
        outside = [Path("/dev/shm", unique), Path("/var/tmp", unique)] if tier else []
        orders = {
            "files": [*FILES, NOT_THERE[1]],
            "places": sorted({name.split("/")[0] for name in FILES} | {*WRITABLE, ".cache/pip", ".cache/uv", ".local/share/pnpm"}),
            "deep": [".cache/uv", ".npm"],
            "elsewhere": [*map(str, outside), f"{self.beside}/evil", f"{self.house.repo}/evil", f"{self.house.home.root}/projects/evil"],
            "confined": tier > 0,
        }
        try:
            self.run(self.task("attack", tier, ATTACK, orders))
            assert [path for path in outside if path.exists()] == []
        finally:
            for path in outside:
                path.unlink(missing_ok=True)
        said: dict[str, list[str]] = self.said("attack")
        return said

    def agents_wrote(self, cache: str) -> bool:
        """Return whether an agent has written a file into the cache that the agents of the project share in place of the person's."""
        for store in self.house.home.root.glob("projects/*/caches"):
            if any("evil-new" in names for _, _, names in os.walk(f"{store}{self.home}/{cache}")):
                return True
        return False

    def everything(self) -> dict[str, Manifest]:
        """Return what the person has: home, repository without what nightcrew keeps in `.git`, and the directory beside."""
        kept = (".git", ".git/objects", ".git/refs", ".git/logs", ".git/worktrees")
        repository = {
            name: about
            for name, about in manifest(self.house.repo).items()
            if name not in kept and not name.startswith(tuple(f"{each}/" for each in kept[1:]))
        }
        return {"home": manifest(self.home), "repository": repository, "beside": manifest(self.beside)}


@pytest.fixture
def nightcrew(place: Path) -> Iterator[Nightcrew]:
    """A person's supervisor, not yet started."""
    made = Nightcrew(place)
    yield made
    made.house.reap()


@pytest.fixture(params=[1, 2])
def tier(request: pytest.FixtureRequest) -> int:
    """A tier that confines."""
    number = int(request.param)
    if Tier(number) not in executors.known().tiers:
        pytest.skip("this host cannot")
    return number


@pytest.mark.in_turns
def test_an_agent_changes_only_the_caches_that_are_writable(nightcrew: Nightcrew, tier: int) -> None:
    nightcrew.house.start_daemon()
    before = nightcrew.everything()
    said = nightcrew.attack(tier)
    after = nightcrew.everything()
    assert [name for name in changes(before["home"], after["home"]) if not is_writable(name)] == []
    assert (after["repository"], after["beside"]) == (before["repository"], before["beside"])
    # The documentation's tables: what is shown, what is not, and what is the agents' own.
    hidden = {*OWN_IN_CACHE, *OWN_OUTSIDE, *NOT_THERE}
    if nightcrew.home.is_relative_to("/tmp"):  # of which a sandbox shows nothing but caches
        hidden |= {*STEERING}
    assert sorted({*FILES, *NOT_THERE} - {*said["seen"]}) == sorted(hidden)
    for place in WRITABLE:
        assert any(name.startswith(f"{place}/") for name in changes(before["home"], after["home"])), place
    assert {cache for cache in OWN_CACHES if nightcrew.agents_wrote(cache)} == set(OWN_CACHES)
    nightcrew.house.ok("status")


@pytest.mark.in_turns
def test_without_shared_caches_an_agent_changes_nothing(nightcrew: Nightcrew, tier: int) -> None:
    config = nightcrew.house.config
    config.write_text("shared_caches = false\n" + config.read_text())
    nightcrew.house.start_daemon()
    before = nightcrew.everything()
    nightcrew.attack(tier)
    assert nightcrew.everything() == before
    assert [cache for cache in OWN_CACHES if nightcrew.agents_wrote(cache)] == []


def test_in_tier_0_the_same_attack_spoils_everything(nightcrew: Nightcrew) -> None:
    nightcrew.house.start_daemon()
    before = nightcrew.everything()
    said = nightcrew.attack(0)
    after = nightcrew.everything()
    assert set(FILES) <= set(said["seen"])
    changed = {name for name in before["home"] if before["home"][name] != after["home"].get(name)}
    assert set(FILES) <= changed
    assert after["beside"] != before["beside"] and after["repository"] != before["repository"]


@pytest.mark.in_turns
def test_another_project_sees_nothing_of_a_projects_caches(nightcrew: Nightcrew, place: Path, tier: int) -> None:
    nightcrew.house.start_daemon()
    other = make_repository(place / "other", {"README": "another project\n"})
    caches = [f"{nightcrew.home}/{cache}" for cache in OWN_CACHES]
    nightcrew.run(nightcrew.task("writes", tier, WRITE_INTO, caches))
    assert nightcrew.said("writes") == caches
    look = "import json, os, sys; print(json.dumps([each for each in json.loads(sys.argv[1]) if os.path.exists(each + '/EVIL')]))"
    nightcrew.run(nightcrew.task("same", tier, look, caches))
    assert nightcrew.said("same") == caches
    nightcrew.run(nightcrew.task("another", tier, look, caches), repository=other)
    assert nightcrew.said("another") == []


LINKS = {
    "GOMODCACHE": (".cargo/registry/gomod", ""),
    "CARGO_HOME": (".m2/repository/cargo", "/registry"),
    "YARN_GLOBAL_FOLDER": (".m2/repository/yarn", "/cache"),
    "NUGET_PACKAGES": (".cargo/git/nuget", ""),
    "npm_config_cache": (".cargo/registry/npm", ""),
    "XDG_CACHE_HOME": (".m2/repository/xdg", "/uv"),
    "PNPM_HOME": (".nuget/packages/pnpm", "/store"),
    "BUN_INSTALL": (".nuget/packages/bun", "/install/cache"),
    "GOPATH": (".nuget/packages/go", "/pkg/mod"),
    "PIP_CACHE_DIR": (".cargo/registry/pip", ""),
    "UV_CACHE_DIR": (".cargo/registry/uv", ""),
}
"""Variables that name a cache, a place for each in a cache that agents write, and where below it the cache lies."""


def test_a_link_in_a_cache_opens_no_directory_to_the_next_agent(nightcrew: Nightcrew) -> None:
    """One agent puts links into the caches that it writes. They lead to `.ssh`, and stand where variables of the person's lead later."""
    if Tier.FILES not in executors.known().tiers:
        pytest.skip("this host cannot")
    nightcrew.house.start_daemon()
    home, secret = nightcrew.home, nightcrew.home / ".ssh"
    links = {f"{home}/{place}{part}": str(secret) for place, part in LINKS.values()}
    nightcrew.run(nightcrew.task("links", 1, LINK, links))
    assert nightcrew.said("links") == list(links)
    before = manifest(secret)
    tasks = []
    for variable, (place, part) in LINKS.items():
        targets = [str(secret), f"{home}/{place}{part}"]
        tasks.append(nightcrew.task(variable.lower(), 1, WRITE_INTO, targets, {variable: f"{home}/{place}"}))
    nightcrew.run(*tasks)
    assert manifest(secret) == before
    assert [variable for variable in LINKS if str(secret) in nightcrew.said(variable.lower())] == []
    nightcrew.run(nightcrew.task("open", 0, WRITE_INTO, list(links)))
    assert nightcrew.said("open") == list(links) and manifest(secret) != before, "they lead nowhere, so the test proves nothing"


MOVED = [
    {},
    {"XDG_CACHE_HOME": "HOME/xdg"},
    {"XDG_CACHE_HOME": "HOME"},
    {"XDG_CACHE_HOME": "relative/directory"},
    {"npm_config_cache": "HOME/.ssh/../.npm"},
    {"npm_config_cache": "BESIDE", "PNPM_HOME": "BESIDE", "CARGO_HOME": "BESIDE", "GOPATH": "BESIDE"},
]
"""Variables of the person's; `HOME` is the home, `BESIDE` a directory outside of it that holds no cache."""


@pytest.mark.in_turns
def test_a_home_whose_caches_are_links_is_not_written(nightcrew: Nightcrew, place: Path, tier: int) -> None:
    """The person keeps caches on another disk. Only the registry of cargo is one that agents write."""
    nightcrew.house.start_daemon()
    home, disk = files.private_dir(place / "linked"), files.private_dir(place / "disk")
    for name in ("cache/pip", "cache/pre-commit", "npm/_npx", "pnpm/v3", "bun", "registry"):
        (disk / name).mkdir(parents=True)
    for name, target in (
        (".cache", "cache"),
        (".npm", "npm"),
        (".local/share/pnpm/store", "pnpm"),
        (".bun/install/cache", "bun"),
        (".cargo/registry", "registry"),
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(disk / target)
    for name in (".ssh", "xdg/pip", "xdg/tool"):
        (home / name).mkdir(parents=True)
    nightcrew.home = home
    targets = [str(home), str(disk), *(str(path) for top in (home, disk) for path in top.rglob("*") if path.is_dir())]
    before = manifest(home), manifest(disk), manifest(nightcrew.beside)
    tasks = []
    for number, variables in enumerate(MOVED):
        given = {name: text.replace("HOME", str(home)).replace("BESIDE", str(nightcrew.beside)) for name, text in variables.items()}
        tasks.append(nightcrew.task(f"moved-{number}", tier, WRITE_INTO, targets, given))
    nightcrew.run(*tasks)
    for number in range(len(MOVED)):
        assert f"{home}/xdg/tool" not in nightcrew.said(f"moved-{number}")
    after = manifest(home), manifest(disk), manifest(nightcrew.beside)
    assert (changes(before[0], after[0]), changes(before[2], after[2])) == ([], [])
    assert changes(before[1], after[1]) == ["registry", "registry/EVIL"]
