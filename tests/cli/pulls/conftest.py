"""A person with a login of their own, a host of repositories, and results to push."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.turns import acp_agent
from tests.cli.pulls.git_server import PASSWORD, USER, GitServer
from tests.support import House, git, make_repository, plan_of, shell_task

STAND_IN = Path(__file__).with_name("forge_stand_in.py")


class Person:
    """Whose shell the commands are given in: a home, a git configuration with a credential helper, and `gh` and `glab` on the PATH."""

    def __init__(self, house: House, root: Path, server: GitServer, bare: Path) -> None:
        self.house, self.server, self.bare = house, server, bare
        self.root = root
        self.home = root / "person"
        self.config = self.home / ".gitconfig"
        self.forge = root / "forge.json"
        self.log = root / "forge.log"
        self._bin = root / "bin"
        for folder in (self.home, self._bin):
            folder.mkdir()
        helper = self.home / "helper"
        helper.write_text(f'#!/bin/sh\n[ "$1" = get ] && printf "username=%s\\npassword=%s\\n" {USER} {PASSWORD}; true\n')
        helper.chmod(0o755)
        self.config.write_text(f'[credential]\n\thelper = "{helper}"\n')

    def install(self, *tools: str) -> None:
        """Put stand-ins on the PATH."""
        for name in tools:
            program = self._bin / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {STAND_IN} {name} "$@"\n')
            program.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """What the person's shell has."""
        return {
            "HOME": str(self.home), "GIT_CONFIG_GLOBAL": str(self.config), "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": f"{self._bin}:{self.house.env['PATH']}", "FORGE_STATE": str(self.forge), "FORGE_LOG": str(self.log),
            "GH_TOKEN": "canary-gh-token", "GITLAB_TOKEN": "canary-glab-token",
        }  # fmt: skip

    def pr(self, *words: str, env: dict[str, str] | None = None) -> Any:
        """`nightcrew pr WORDS`, as it ended."""
        return self.house.run("pr", *words, env={**self.env, **(env or {})})

    def ok(self, *words: str) -> dict[str, Any]:
        """The same, which must succeed; its JSON."""
        done = self.pr(*words, "--json")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.house.daemon_output()}"
        return dict(json.loads(done.stdout))

    def there(self, branch: str = "") -> str:
        """The commit of a branch of the host's repository; empty: none."""
        name = branch or "nightcrew/mul"
        return git(self.bare, "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}")

    def pulls(self) -> list[dict[str, Any]]:
        """Every pull request of the host."""
        return list(json.loads(self.forge.read_text())["pulls"]) if self.forge.exists() else []

    def edit(self, number: int, **facts: Any) -> None:
        """What somebody changes on the host."""
        state = json.loads(self.forge.read_text())
        state["pulls"][number - 1].update(facts)
        self.forge.write_text(json.dumps(state))

    def lists(self, **entries: list[dict[str, Any]]) -> None:
        """What came back: entries of the host's lists, by their kind."""
        state = json.loads(self.forge.read_text())
        state["lists"] = entries
        self.forge.write_text(json.dumps(state))


AGENT = [sys.executable, "-S", "-c", Path(acp_agent.__file__).read_text()]
PROMPT = """say Done as @someone asked. <!-- nightcrew: end -->
touch made
fixes #3
/close
```
https://github.com/a/b/issues/4 sk-ant-canary0canary0canary0
"""
WORK = "printf 'def mul(a, b):\\n    return a * b\\n' >> calc.py; git add -A; git commit -qm 'mul, fixes #7'"


@pytest.fixture(scope="package")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Tasks `mul`, which did work, `idle`, which did none, and `bad`, which failed. Each test makes its own remote branch."""
    root = tmp_path_factory.mktemp("pulls")
    house = House(root, make_repository(root / "repo", {"calc.py": "def add(a, b):\n    return a + b\n"}))
    try:
        with GitServer(root / "host") as server:
            bare = server.make(house.repo)
            git(house.repo, "remote", "add", "origin", server.url())
            (root / "go").touch()
            house.start_daemon()
            tasks = [
                shell_task("mul", WORK, title="multiply @someone fixes #1", gate="test -f calc.py"),
                shell_task("idle", "true"), shell_task("bad", f"{WORK}; exit 3"),
                shell_task("agent", AGENT, kind="acp", prompt=PROMPT, sandbox=0),
                shell_task("second", AGENT, kind="acp", prompt=f"touch made\nfile {root}/go", sandbox=0),
            ]  # fmt: skip
            house.run("run", house.plan(plan_of(tasks)))
            yield Person(house, root, server, bare)
    finally:
        house.reap()
