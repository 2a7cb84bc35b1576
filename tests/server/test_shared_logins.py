"""A login that a confined agent renews, as the supervisor keeps it: while the agent runs, and over a supervisor that is killed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.support import House, shell_task, wait_until

AGENT = """
cd "$HOME/.claude"
say() { echo "$1" > draft && mv draft .credentials.json; }
wait_for() { while [ ! -e "$NIGHTCREW_OUT/$1" ]; do sleep 0.05; done; }
echo '{"hooks": {"SessionStart": "evil"}}' > settings.json; mkdir -p plugins projects; echo evil > plugins/p
say "$FIRST"; wait_for go; say "$LAST"; wait_for end
"""


def login(token: str, expires: int) -> str:
    return json.dumps({"claudeAiOauth": {"accessToken": token, "refreshToken": f"r-{token}", "expiresAt": expires}})


def test_what_an_agent_renews_is_the_persons_also_when_the_supervisor_is_killed(house: House, tmp_path: Path) -> None:
    if Tier.FILES not in executors.known().tiers:
        pytest.skip("this host cannot")
    home, now = files.private_dir(tmp_path / "person"), int(time.time() * 1000)
    real = files.private_dir(home / ".claude") / ".credentials.json"
    real.write_text(login("old", now))
    params = {"HOME": str(home), "FIRST": login("first", now + 10_000), "LAST": login("last", now + 20_000)}
    files.private_dir(house.home.root)
    first = house.start_daemon()
    house.ok("run", "-d", house.plan(shell_task("agent", AGENT, sandbox=1, params=params)))
    wait_until(lambda: json.loads(real.read_text()) == json.loads(params["FIRST"]), "the first renewal to be the person's")
    first.kill()
    first.wait()
    out = house.home.attempt(house.task("agent").id, 1) / "out"
    (out / "go").touch()
    (out / "end").touch()
    house.start_daemon()
    house.wait_final()
    assert house.state("agent") == "done", house.account()
    assert real.read_text() == params["LAST"]
    assert [file.name for file in (home / ".claude").iterdir()] == [real.name], "nothing else of the agent's is in the home"
    own = out.parent / "home" / str(home.resolve()).lstrip("/") / ".claude"
    assert {file.name for file in own.iterdir()} == {".credentials.json", "settings.json", "plugins", "projects"}
    house.ok("clean", "--yes", "--discard", "agent")
    assert [file.name for file in own.iterdir()] == ["projects"], "no login and no settings stay in the records"
