"""`nightcrew kinds test`: the real programs hold what their kinds promise, and a kind that does not is told by line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.gateway.clients.kit import CLIENTS
from tests.support import House

BIN = CLIENTS / "bin"
HELD = {"found", "version", "gateway", "edit", "protocol", "session", "failure"}
KIND = """
description = "a program that commits, and speaks a protocol that nobody reads: git, which is at the same place inside a sandbox"
binary = "git"
version = "1.0.0"
protocol = "claude"
headless = ["-c", "alias.ours=!echo work > work && git add work && git -c user.name=a -c user.email=a@b commit -qm work &&\
 echo '{}' && true", "ours", "--", "{prompt}", "{settings}"]
settings = "$NIGHTCREW_HOOK"
"""


def lines(house: House, kind: str, where: Path) -> dict[str, dict[str, str]]:
    done = house.run("kinds", "test", kind, "--json", env={"PATH": f"{where}:{os.environ['PATH']}"}, timeout_s=1500)
    shape = json.loads(done.stdout)
    assert shape["holds"] == (done.returncode == 0) == all(line["holds"] != "fail" for line in shape["lines"])
    return {line["name"]: line for line in shape["lines"]}


@pytest.mark.parametrize(
    ("kind", "more", "less"),
    [
        ("claude", {"hooks", "denial", "account"}, set()),
        pytest.param("gemini", {"account"}, set(), marks=pytest.mark.soak),
        pytest.param("codex", {"account"}, set(), marks=pytest.mark.soak),
        pytest.param("qwen", {"account"}, set(), marks=pytest.mark.soak),
        pytest.param("opencode", set(), set(), marks=pytest.mark.soak),
        pytest.param("aider", set(), {"protocol", "session", "failure"}, marks=pytest.mark.soak),
    ],
)
def test_a_real_program_holds_what_its_kind_promises(house: House, kind: str, more: set[str], less: set[str]) -> None:
    if not (BIN / kind).exists():
        pytest.skip(f"{kind} is not installed in {CLIENTS}: run make clients")
    found = lines(house, kind, BIN)
    assert {name for name, line in found.items() if line["holds"] == "ok"} >= (HELD | more) - less, found
    assert {name for name, line in found.items() if line["holds"] == "fail"} == less & {"failure"}, found


@pytest.mark.soak
def test_the_built_in_agent_too(house: House) -> None:
    found = lines(house, "builtin", BIN)
    assert {line["holds"] for line in found.values()} == {"ok", "skip"}, found


def test_what_does_not_hold_is_named_by_line_with_the_version_that_broke_it(house: House) -> None:
    kind = house.config.parent / "kinds" / "ours.toml"
    kind.parent.mkdir()
    kind.write_text(KIND.replace('"git"', '"no-such-agent"'))
    assert [*lines(house, "ours", BIN)] == ["found"], "nothing is tried without its program"
    kind.write_text(KIND)
    found = lines(house, "ours", BIN)
    assert {name for name, line in found.items() if line["holds"] == "fail"} == {"gateway", "edit", "protocol", "session", "hooks"}
    assert "asked nobody" in found["gateway"]["seen"]
    assert "printed no result" in found["edit"]["seen"], "its commit alone is not a success"
    for name in ("protocol", "session", "hooks"):
        assert "is newer than 1.0.0, with which this was recorded" in found[name]["seen"]
    assert "did you mean ours" in house.run("kinds", "test", "our").stderr
    kind.write_text(KIND.replace("1.0.0", "99.0").replace("headless", "interactive"))
    found = lines(house, "ours", BIN)
    assert "older than 99.0" in found["version"]["seen"] and found["headless"]["holds"] == "skip"
