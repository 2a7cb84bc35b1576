"""Leases with a real supervisor: agents that ask at the socket, tasks that wait for paths, hooks that deny, and what a result says."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents import hook_client
from supervisor.client import protocol
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.errors import NotFound, Refused, UsageError
from tests.support import House, wait_until

FOREVER = "exec sleep 600"
WRITES = "mkdir -p src/api doc && echo x > src/api/x.py && echo y > doc/y && until test -e {go}; do sleep 0.05; done"


def token(house: House, name: str) -> str:
    view = house.task(name)
    return attempt_tokens.derive(secrets.own(house.home.secret), view.id, view.epoch)


def ask(house: House, name: str, op: str, **args: Any) -> dict[str, Any]:
    return protocol.call(house.home.agents_socket, "lease", {"op": op, **args}, timeout_s=30, token=token(house, name))


def runs(house: House, name: str) -> None:
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to run")


def why(house: House, name: str) -> dict[str, Any]:
    shape = json.loads(house.ok("status", name, "--json"))
    return dict(shape["tasks"][0]["waits_for"] or {})


def hook(house: House, client: Path, name: str, path: str, tool: str = "Edit") -> dict[str, Any]:
    """What the hook of an agent's command line prints before it writes."""
    event = {"tool_name": tool, "tool_input": {"file_path": path}, "cwd": house.task(name).worktree, "session_id": "s"}
    env = {"NIGHTCREW_AGENTS_SOCKET": str(house.home.agents_socket), "NIGHTCREW_TOKEN": token(house, name)}
    done = subprocess.run([client, "PreToolUse"], input=json.dumps(event).encode(), env=env, capture_output=True, timeout=30, check=True)
    return json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hook_client.program(tmp_path_factory.mktemp("client"))


def test_a_day_of_leases(house: House, tmp_path: Path, client: Path) -> None:
    """One house for all of it: a supervisor costs half a second."""
    go = tmp_path / "go"
    house.start_daemon()
    house.ok("add", "--id", "api", "--paths", "src/api/**", FOREVER)
    runs(house, "api")
    house.ok("add", "--id", "next", "--paths", "src", FOREVER)
    house.ok("add", "--id", "other", WRITES.format(go=go))
    runs(house, "other")
    holder = house.task("api").id

    wait_until(lambda: why(house, "next").get("code") == "paths", "it to wait for the paths")
    assert why(house, "next")["words"] == f"waits for {holder}, which has src/api"
    with pytest.raises(Refused, match=f"{holder} has src/api"):
        ask(house, "other", "take", globs=["src/*/x.py"])
    with pytest.raises(UsageError, match="below the root"):
        ask(house, "other", "take", globs=["../x"])
    (taken,) = ask(house, "other", "take", globs=["doc/"])["leases"]
    assert (taken["glob"], taken["mode"], taken["task"]) == ("doc", "exclusive", house.task("other").id)

    worktree = house.task("other").worktree
    said = hook(house, client, "other", f"{worktree}/src/api/x.py")
    assert "permissionDecision" not in said
    assert holder in said["additionalContext"]
    assert hook(house, client, "other", f"{worktree}/src/api/x.py") == {}, "said once"
    assert hook(house, client, "other", f"{worktree}/src/web.py") == {}
    assert hook(house, client, "other", "src/api/y.py", "Read") == {}
    assert ask(house, "other", "check", path=f"{worktree}/src/api/x.py")["decision"] == "warn"

    project = house.task("api").project
    listed = protocol.call(house.home.daemon_socket, "lease", {"op": "ls", "project": project})
    assert [(one["task"], one["glob"]) for one in listed["leases"]] == [(holder, "src/api"), (house.task("other").id, "doc")]
    with pytest.raises(UsageError, match="why"):
        protocol.call(house.home.daemon_socket, "lease", {"op": "release", "project": project, "fences": [taken["fence"]]})
    with pytest.raises(NotFound):
        protocol.call(house.home.daemon_socket, "lease", {"op": "release", "project": project, "fences": [10**6], "why": "x"})
    ask(house, "other", "release", globs=["doc"])

    go.touch()
    wait_until(lambda: house.task("other").result, "other to end")
    result = house.task("other").result or {}
    assert result["unleased"] == {"total": 1, "paths": [{"path": "src/api/x.py", "holder": holder}]}
    assert any("src/api/x.py" in note for note in result["notes"])
    house.ok("kill", "api")
    runs(house, "next")
    assert [one["glob"] for one in ask(house, "next", "ls")["leases"]] == ["src"]


def test_an_agent_takes_no_whole_project_and_of_parallel_requests_one_gets_it(house: House) -> None:
    house.start_daemon()
    house.ok("add", "--id", "a", FOREVER)
    house.ok("add", "--id", "wide", "--paths", "**/*.md", "--kind", "shell", FOREVER)
    runs(house, "a")
    runs(house, "wide")
    for glob in ("**", "*", "**/*.py", "[!.]*", "src/" + "*/" * 9):
        for mode in ("exclusive", "shared"):
            with pytest.raises(Refused, match=r"may cover the whole project|more than 8 wildcards"):
                ask(house, "a", "take", globs=["doc", glob], mode=mode)
    assert ask(house, "wide", "take", globs=["**/*.md"])["leases"], "its plan says so"
    house.ok("kill", "wide")
    names = [f"t{number}" for number in range(5)]
    for name in names:
        house.ok("add", "--id", name, FOREVER)
        runs(house, name)
    with ThreadPoolExecutor(20) as crowd:
        asked = list(crowd.map(lambda number: attempt(house, names[number % 5]), range(40)))
    assert len({one["task"] for one in asked if one}) == 1 and [one for one in asked if not one]
    (held,) = ask(house, "a", "ls")["leases"]
    shown = house.ok("mem", "leases")
    assert shown.split()[:2] == [str(held["fence"]), "src"]
    assert house.ok("mem", "leases", "--end", str(held["fence"]), "--why", "mine") == f"{held['task']} no longer has src\n"
    with pytest.raises(Refused, match="a person took it from this task"):
        ask(house, held["task"].partition("/")[2], "take", globs=["src/x"])
    assert ask(house, "a", "take", globs=["src"])["leases"]


def attempt(house: House, name: str) -> dict[str, Any]:
    """The lease on src that an agent gets; nothing when another has it."""
    try:
        return dict(ask(house, name, "take", globs=["src"])["leases"][0])
    except Refused:
        return {}


def test_strict_denies_and_a_supervisor_that_was_killed_forgets_no_lease(house: House, tmp_path: Path, client: Path) -> None:
    with house.config.open("a") as config:
        config.write('[memory]\nleases = "strict"\n')
    go = tmp_path / "go"
    first = house.start_daemon()
    house.ok("add", "--id", "a", FOREVER)
    house.ok("add", "--id", "b", WRITES.format(go=go))
    runs(house, "a")
    runs(house, "b")
    (held,) = ask(house, "a", "take", globs=["src"])["leases"]
    first.kill()
    first.wait()
    house.start_daemon()
    house.ok("add", "--id", "later", "--paths", "src/x", FOREVER)
    with pytest.raises(Refused, match="has src"):
        ask(house, "b", "take", globs=["src"])
    said = hook(house, client, "b", f"{house.task('b').worktree}/src/api/x.py")
    assert said["permissionDecision"] == "deny"
    assert house.task("a").id in said["permissionDecisionReason"]
    go.touch()
    wait_until(lambda: house.task("b").result, "b to end")
    paths = (house.task("b").result or {})["unleased"]["paths"]
    assert paths == [{"path": "doc/y", "holder": None}, {"path": "src/api/x.py", "holder": house.task("a").id}]
    assert why(house, "later")["code"] == "paths"
    ended = protocol.call(
        house.home.daemon_socket, "lease", {"op": "release", "project": house.task("a").project, "fences": [held["fence"]], "why": "enough"}
    )
    assert [one["fence"] for one in ended["released"]] == [held["fence"]]
    runs(house, "later")
